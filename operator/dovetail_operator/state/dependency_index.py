"""Index of which GPUJob waits for which, from the jobs' specs. No I/O."""

from collections.abc import Mapping

from dovetail.api.gpujob import DependencyStatus, GPUJob, is_finished
from dovetail.api.meta import key_of
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.queue import CLOSE, COMMA, OPEN
from dovetail.jobs.obstacle import Obstacle
from dovetail.queue.dependencies import Needs, called, circles, states_of, unmet
from dovetail_operator.arrays import expected_tasks


class Dependencies:
    """The index, kept in step with `jobs` by `put` and `drop`. Keys are `namespace/name`."""

    def __init__(self, jobs: Mapping[str, GPUJob]) -> None:
        self._jobs = jobs
        self._awaited: dict[str, tuple[str, ...]] = {}
        self._dependents: dict[str, set[str]] = {}
        self._circles: dict[str, tuple[str, ...]] = {}
        # Tasks that jobs wait for and that do not exist yet, each with the array that will create it.
        self._unmade: dict[str, str] = {}
        self._stale = False
        self._news: set[str] = set()

    def observe(self, job: GPUJob) -> None:
        """Record a version of a job. Its dependencies may differ from the previous version's."""
        key = key_of(job.metadata)
        awaited = tuple(_key(job, name=each.name) for each in job.spec.dependencies)
        if (is_finished(job) and key in self._circles) or key in self._unmade:
            self._stale = True
        if awaited == self._awaited.get(key, ()):
            return
        self._set(key, awaited=awaited)
        # A new cycle passes through a job that others wait for; a known cycle may now be broken.
        self._stale = self._stale or key in self._dependents or key in self._circles
        self._stale = self._stale or (
            expected_tasks.has_tasks(job) and bool(expected_tasks.task_keys(job, keys=self._dependents))
        )

    def drop(self, job: GPUJob) -> None:
        """Record that a job is deleted. Jobs that depend on its name keep waiting."""
        key = key_of(job.metadata)
        self._set(key, awaited=())
        # A job that waits for it waits for an array again, whose task now has yet to be created.
        self._stale = self._stale or key in self._circles or (key in self._dependents and self._is_expected(key))

    def dependents_of(self, key: str) -> list[str]:
        """The keys of the jobs that depend on this one, sorted."""
        return sorted(self._dependents.get(key, ()))

    def take_news(self) -> set[str]:
        """Return the jobs whose dependency cycle has appeared or ended since the last call.

        The status of each of these jobs has to change.
        """
        self._find_circles()
        news, self._news = self._news, set()
        return news

    def is_awaited(self, job: GPUJob) -> bool:
        """Whether a dependent of this job does not have the job's current state in its status yet."""
        dependents = (self._jobs.get(key) for key in self.dependents_of(key_of(job.metadata)))
        return any(each is not None and self._has_to_note(each, name=job.metadata.name) for each in dependents)

    def states_of(self, job: GPUJob) -> list[DependencyStatus]:
        """The current state of each of the job's dependencies."""
        if not job.spec.dependencies:
            return []
        return states_of(
            job.spec.dependencies,
            job_named=lambda name: self._jobs.get(_key(job, name=name)),
            before=job.status.dependencies,
        )

    def obstacle_of(self, job: GPUJob) -> Obstacle | None:
        """Why the job's dependencies keep it from starting; None if they do not."""
        if not job.spec.dependencies:
            return None
        missing = unmet(self.states_of(job), spec=job.spec, called=lambda name: self._called(job, name=name))
        if missing is None:
            return None
        circle = self._circle_of(job) if missing.reason == "Dependency" else ()
        if circle:
            return Obstacle.of(self._circle_sentence(circle))
        return Obstacle.of(missing)

    def _called(self, job: GPUJob, *, name: str) -> str:
        return called(name, job=self._jobs.get(_key(job, name=name)))

    def _circle_sentence(self, circle: tuple[str, ...]) -> Sentence:
        found = says.CIRCLE(way=" → ".join(map(_name, circle)))
        tasks = [
            says.TASK_OF(task=_name(key), array=_name(array))
            for key in dict.fromkeys(circle)
            if (array := self._unmade.get(key)) is not None
        ]
        if tasks:
            first, *others = tasks
            found += sum((COMMA() + each for each in others), start=OPEN() + first) + CLOSE()
        return found + says.CHANGE_ONE()

    def _has_to_note(self, dependent: GPUJob, *, name: str) -> bool:
        if is_finished(dependent) or dependent.metadata.deletion_timestamp:
            return False
        now, noted = (
            {each.name: each.state for each in states}
            for states in (self.states_of(dependent), dependent.status.dependencies)
        )
        return now.get(name) != noted.get(name)

    def _circle_of(self, job: GPUJob) -> tuple[str, ...]:
        self._find_circles()
        circle = self._circles.get(key_of(job.metadata), ())
        return () if any(map(self._is_over, circle)) else circle

    def _is_over(self, key: str) -> bool:
        """Whether a job of a cycle has ended or is deleted, or a task that was missing now exists."""
        job = self._jobs.get(key)
        if key in self._unmade:
            return job is not None
        return job is None or is_finished(job)

    def _find_circles(self) -> None:
        if not self._stale:
            return
        waiting = [self._jobs[key] for key in self._awaited if key in self._jobs]
        self._unmade = expected_tasks.of_all(waiting, keys=[key for key in self._dependents if key not in self._jobs])
        # A task that does not exist yet waits for whatever its array waits for.
        needs = {task: Needs(keys=(array,)) for task, array in self._unmade.items()}
        before, needs = self._circles, needs | {key_of(job.metadata): self._needs(job) for job in waiting}
        self._circles = {key: way for key, way in circles(needs).items() if key in self._jobs}
        self._stale = False
        self._news |= {key for key in {**before, **self._circles} if before.get(key) != self._circles.get(key)}

    def _needs(self, job: GPUJob) -> Needs:
        if is_finished(job):
            return Needs(keys=())
        waiting = [each for each in self.states_of(job) if each.state in {"Waiting", "Unknown"}]
        any_one = job.spec.dependency_policy == "Any"
        met = any_one and unmet(self.states_of(job), spec=job.spec) is None
        return Needs(keys=() if met else tuple(_key(job, name=each.name) for each in waiting), any_one=any_one)

    def _is_expected(self, key: str) -> bool:
        """Whether an array or a sweep will create a job of this name; its name is the first part of its tasks'."""
        parts = key.split("-")
        arrays = (self._jobs.get("-".join(parts[:count])) for count in range(1, len(parts)))
        return any(
            array is not None and expected_tasks.has_tasks(array) and expected_tasks.task_keys(array, keys=[key])
            for array in arrays
        )

    def _set(self, key: str, *, awaited: tuple[str, ...]) -> None:
        for other in self._awaited.pop(key, ()):
            self._dependents[other].discard(key)
            if not self._dependents[other]:
                del self._dependents[other]
        if awaited:
            self._awaited[key] = awaited
        for other in awaited:
            self._dependents.setdefault(other, set()).add(key)


def _key(job: GPUJob, *, name: str) -> str:
    return f"{job.metadata.namespace}/{name}"


def _name(key: str) -> str:
    return key.partition("/")[2]
