"""Dependencies of a job on other jobs of its namespace, by name, and cycles among them.

Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.gpujob import (
    FINISHED,
    Dependency,
    DependencyCondition,
    DependencyState,
    DependencyStatus,
    GPUJob,
    GPUJobSpec,
    Reason,
)
from dovetail.api.reasons import start as says
from dovetail.api.reasons.capacity import AND
from dovetail.api.reasons.clause import NOTHING, Clause, Sentence
from dovetail.api.reasons.queue import COMMA

_NAMED: Final = 3
_TO_DO: Final[Mapping[DependencyCondition, Clause]] = {
    "Succeeded": says.TO_SUCCEED, "Finished": says.TO_END, "Started": says.TO_START,
}  # fmt: skip
_NOT_DONE: Final[Mapping[DependencyCondition, Clause]] = {
    "Succeeded": says.NOT_SUCCEEDED, "Finished": says.NOT_ENDED, "Started": says.NOT_STARTED,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmet(Sentence):
    """The dependencies of a job are not met: the reason, and a sentence that names them."""

    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The jobs that one job still waits for: all of them, or `any_one`."""

    keys: tuple[str, ...]
    any_one: bool = False


def states_of(
    wanted: Iterable[Dependency], *, job_named: Callable[[str], GPUJob | None], before: Sequence[DependencyStatus] = ()
) -> list[DependencyStatus]:
    """The state of each dependency.

    What was met `before` stays met, even if that job has gone since then.
    """
    met = {(each.name, each.condition) for each in before if each.state == "Met"}
    return [
        DependencyStatus(
            name=each.name,
            condition=each.condition,
            state="Met" if (each.name, each.condition) in met else _state(each, job=job_named(each.name)),
        )
        for each in wanted
    ]


def called(name: str, *, job: GPUJob | None) -> str:
    """A job as its user knows it: by its number, with its name; by the name alone before it has a number."""
    return with_number(name, number=0 if job is None else job.status.number or 0)


def with_number(name: str, *, number: int) -> str:
    """A job's name with its number, as in `job 7 (prep)`; the name alone for number 0."""
    return f"job {number} ({name})" if number else name


def unmet(states: Sequence[DependencyStatus], *, spec: GPUJobSpec, called: Callable[[str], str] = str) -> Unmet | None:
    """Why the job may not start yet, or ever; None when its dependencies are met.

    The sentence names other jobs as `called` does.
    """
    if not states:
        return None
    open_ones = [each for each in states if each.state in {"Waiting", "Unknown"}]
    failed = [each for each in states if each.state == "Failed"]
    met = len(states) - len(open_ones) - len(failed)
    if spec.dependency_policy == "Any":
        if met:
            return None
        if open_ones:
            return _waiting(open_ones, link=says.OR(), called=called)
        return _failed(failed, called=called)
    if failed:
        return _failed(failed, called=called)
    return _waiting(open_ones, link=AND(), called=called) if open_ones else None


def circles(needs: Mapping[str, Needs]) -> dict[str, tuple[str, ...]]:
    """The jobs that wait for themselves, each with the path from itself back to itself.

    A job that only waits for a job of a cycle is not included.
    """
    stuck = _stuck(needs)
    found = {}
    for start in stuck:
        following, way = start, dict.fromkeys([start])
        while (following := next(key for key in needs[following].keys if key in stuck)) not in way:
            way[following] = None
        if following == start:
            found[start] = (*way, start)
    return found


def _stuck(needs: Mapping[str, Needs]) -> set[str]:
    """The jobs that no order of starts and ends ever releases."""
    awaited = {key: {need for need in needs[key].keys if need in needs} for key in needs}
    dependents: dict[str, list[str]] = {}
    for key, others in awaited.items():
        for other in others:
            dependents.setdefault(other, []).append(key)
    free = [key for key, others in awaited.items() if not others or _has_another(needs[key], others=others)]
    stuck = set(needs) - set(free)
    while free:
        done = free.pop()
        for key in dependents.get(done, ()):
            awaited[key].discard(done)
            if key in stuck and (needs[key].any_one or not awaited[key]):
                stuck.discard(key)
                free.append(key)
    return stuck


def _has_another(need: Needs, *, others: set[str]) -> bool:
    return need.any_one and len(others) < len(set(need.keys))


def _state(wanted: Dependency, *, job: GPUJob | None) -> DependencyState:
    if job is None:
        return "Unknown"
    phase = job.status.phase
    finished = phase in FINISHED
    if wanted.condition == "Started":
        met = job.status.start_time is not None or phase in {"Running", "Succeeded"}
    else:
        met = finished if wanted.condition == "Finished" else phase == "Succeeded"
    if met:
        return "Met"
    return "Failed" if finished else "Waiting"


def _waiting(states: Sequence[DependencyStatus], *, link: Sentence, called: Callable[[str], str]) -> Unmet:
    named = [
        _TO_DO[each.condition](job=called(each.name)) + (says.NO_SUCH_JOB() if each.state == "Unknown" else NOTHING)
        for each in states
    ]
    return Unmet.of(says.WAITS_FOR() + _listed(named, link=link))


def _failed(states: Sequence[DependencyStatus], *, called: Callable[[str], str]) -> Unmet:
    named = [_NOT_DONE[each.condition](job=called(each.name)) for each in states]
    return Unmet.of(says.UNMEETABLE() + _listed(named, link=COMMA()))


def _listed(named: Sequence[Sentence], *, link: Sentence) -> Sentence:
    """The first few of them, and how many more there are."""
    first, *others = named[:_NAMED]
    more = len(named) - _NAMED
    if more > 0:
        others.append(says.MORE(count=more))
    return sum((link + each for each in others), start=first)
