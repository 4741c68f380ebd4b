"""Index of which GPUJobs are tasks of which array or sweep. Pure.

Every user of the cluster may write labels and owner references on a GPUJob. A GPUJob therefore counts as a task only if
all of it agrees: namespace, label, the controlling GPUJob by kind, name and UID, and its own name, which has to be the
one that the array gives to the task with that index.
"""

from collections.abc import Iterator, Mapping

from dovetail import names
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.meta import ObjectMeta, key_of
from dovetail.api.reasons.start import EARLIER_TASK, TASK_NAME_TAKEN
from dovetail.formats.quantities import read_whole
from dovetail.jobs.array_indexes import indexes_in
from dovetail.jobs.array_tasks import TasksError, tasks_of
from dovetail.jobs.batch_job import controlling_gpujob, is_going, is_of_an_earlier_one, is_parent
from dovetail.jobs.obstacle import Obstacle


class TaskIndex:
    """The tasks by their array, kept up to date by `put` and `drop`."""

    def __init__(self) -> None:
        # By namespace and UID of the array that they name, then by their own UID.
        self._tasks: dict[tuple[str, str], dict[str, GPUJob]] = {}
        self._places: dict[str, tuple[str, str]] = {}
        # The names that each array gives, by its UID: the generation that they belong to, and the names by index.
        self._names: dict[str, tuple[int, Mapping[int, str]]] = {}
        # Arrays that cannot create a task, by the key of the GPUJob that has the task's name.
        self._waiting: dict[str, str] = {}

    def observe(self, job: GPUJob) -> None:
        """Record a version of a GPUJob. A user may have removed its label."""
        uid, parent = job.metadata.uid, parent_uid(job)
        place = None if parent is None else (job.metadata.namespace, parent)
        if place != self._places.get(uid):
            self._take_out(uid)
        if place is not None:
            self._places[uid] = place
            self._tasks.setdefault(place, {})[uid] = job

    def drop(self, job: GPUJob) -> None:
        """Record that a GPUJob is deleted."""
        self._names.pop(job.metadata.uid, None)
        self._take_out(job.metadata.uid)
        self._wait_no_more(key_of(job.metadata))

    def tasks_of(self, parent: GPUJob) -> tuple[GPUJob, ...]:
        """The existing tasks of an array."""
        claiming = self._tasks.get((parent.metadata.namespace, parent.metadata.uid), {})
        return tuple(each for each in claiming.values() if self._has_its_name(each, parent=parent))

    def in_the_way(self, parent: GPUJob, *, jobs: Mapping[str, GPUJob]) -> dict[str, Obstacle]:
        """By name, why the array cannot create tasks: another GPUJob has the name."""
        array = key_of(parent.metadata)
        self._wait_no_more(array)
        own = {each.metadata.name for each in self.tasks_of(parent)}
        found = {}
        for name in self._names_of(parent).values():
            key = f"{parent.metadata.namespace}/{name}"
            if name not in own and key in jobs:
                found[name] = obstacle_of(jobs[key].metadata, parent=parent)
                self._waiting[key] = array
        return found

    def waiting_for(self, key: str) -> str | None:
        """The key of the array that can go on once the GPUJob with this key is deleted."""
        return self._waiting.get(key)

    def is_unnoted(self, task: GPUJob, *, parent: GPUJob) -> bool:
        """Whether the array's status does not show yet how this task ended."""
        if parent_uid(task) != parent.metadata.uid or not self._has_its_name(task, parent=parent):
            return False
        if is_finished(parent) or is_going(parent):
            return False
        return task_index(task) not in set(_noted(parent))

    def _wait_no_more(self, array: str) -> None:
        """Forget for which names this array waits."""
        if array in self._waiting.values():
            self._waiting = {key: waiting for key, waiting in self._waiting.items() if waiting != array}

    def _take_out(self, uid: str) -> None:
        place = self._places.pop(uid, None)
        if place is None:
            return
        del self._tasks[place][uid]
        if not self._tasks[place]:
            del self._tasks[place]

    def _has_its_name(self, task: GPUJob, *, parent: GPUJob) -> bool:
        return self._names_of(parent).get(task_index(task)) == task.metadata.name

    def _names_of(self, parent: GPUJob) -> Mapping[int, str]:
        generation, known = self._names.get(parent.metadata.uid, (-1, {}))
        if generation != parent.metadata.generation:
            try:
                known = {task.index: task.name for task in tasks_of(parent)} if is_parent(parent) else {}
            except TasksError:  # its status says so
                known = {}
            self._names[parent.metadata.uid] = parent.metadata.generation, known
        return known


def parent_uid(job: GPUJob) -> str | None:
    """The UID of the array that a GPUJob claims, by its label and its controlling owner."""
    owner = controlling_gpujob(job.metadata)
    if owner is None or owner.name != job.metadata.labels.get(names.LABEL_ARRAY):
        return None
    return owner.uid


def parent_key(job: GPUJob) -> str | None:
    """`namespace/name` of the array that a GPUJob claims by its label."""
    name = job.metadata.labels.get(names.LABEL_ARRAY)
    return None if name is None else f"{job.metadata.namespace}/{name}"


def task_index(task: GPUJob) -> int:
    """The index of a task in its array; -1 if its label has none."""
    return read_whole(task.metadata.labels.get(names.LABEL_TASK, ""), otherwise=-1)


def obstacle_of(found: ObjectMeta, *, parent: GPUJob) -> Obstacle:
    """Why a task cannot be created whose name another GPUJob has."""
    if is_of_an_earlier_one(found, than=parent):
        return Obstacle.of(EARLIER_TASK(task=found.name))
    return Obstacle.of(TASK_NAME_TAKEN(name=found.name))


def _noted(parent: GPUJob) -> Iterator[int]:
    noted = parent.status.tasks
    for text in (noted.succeeded_indexes, noted.failed_indexes) if noted is not None else ():
        yield from indexes_in(text) if text else ()
