"""When waiting jobs start: scheduling cycles simulated from one predicted end to the next."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate, Leaving, Sites
from dovetail.queue.model.gate import Gate
from dovetail.queue.verdicts import Admitted

# How many jobs of the queue get an estimate, and how many ends are simulated: later ones are too uncertain.
FORESEEN_JOBS: Final = 100
_ENDS_AHEAD: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """The estimated start of the job `key`, which requests `gpus` GPUs, in `in_seconds`.

    `basis` says in one sentence what the estimate assumes, where the simulation explains its starts. `range_seconds`
    contains nine of ten simulated starts; None without simulated futures.
    """

    key: str
    in_seconds: float
    basis: Sentence = NOTHING
    gpus: float = 0.0
    range_seconds: tuple[float, float] | None = None


def foresee(
    waiting: Iterable[Candidate],
    *,
    ledger: Ledger,
    sites: Sites,
    leaving: Iterable[Leaving],
    gate: Gate | None = None,
) -> Iterator[Start | None]:
    """Yield the estimated starts of the first waiting jobs.

    Uses up `ledger` and `gate`: pass copies.

    Yields None between two cycles, so that the caller can spread a long simulation over several turns.
    """
    look = SchedulingCycle(ledger, sites=sites, leaving=leaving, gate=gate)
    return play(first_that_wait(look.in_order(waiting), look=look), look=look, explains=True)


def play(
    pending: list[Candidate],
    *,
    look: SchedulingCycle,
    coming: Iterable[tuple[float, Candidate]] = (),
    only: str | None = None,
    explains: bool = False,
) -> Iterator[Start | None]:
    """Simulate the cycles after the first one, in which the `pending` jobs have to wait.

    `coming` are the jobs that arrive: (seconds, job), by time. One takes part from the next end on: it may take what
    that end frees. With `only`, the simulation ends once this job has started. With `explains`, each start has
    its basis.
    """
    over, awaited = _Over() if explains else None, _Awaited(coming)
    foreseen = {job.key for job in pending}
    for _ in range(_ENDS_AHEAD):
        ended = look.advance() if foreseen else None
        if ended is None:
            return
        if over is not None:
            over.add(ended)
        yield None
        left = []
        for job in awaited.merged_with(pending, look=look):
            start = _without_gpus(job, before=look.now) if job.key in foreseen else None
            start = start or _start_now(job, look=look, over=over)
            if start is None:
                left.append(job)
            elif job.key in foreseen:
                foreseen.remove(job.key)
                yield start
                if job.key == only:
                    return
        pending = left


def _without_gpus(job: Candidate, *, before: float) -> Start | None:
    """The start of a job that ran on the CPU before this time, in seconds; None if it still waits then."""
    if job.cpu_in_seconds is None or job.cpu_in_seconds >= before:
        return None
    return Start(key=job.key, in_seconds=job.cpu_in_seconds, basis=says.ON_CPU_FROM_THEN())


def _start_now(job: Candidate, *, look: SchedulingCycle, over: "_Over | None") -> Start | None:
    verdict = look.at(job)
    if not isinstance(verdict, Admitted):
        return None
    basis = NOTHING
    if over is not None:
        basis = says.ON_CPU_FROM_THEN() if verdict.on_cpu else over.basis(verdict.claims, at=look)
    return Start(key=job.key, in_seconds=look.now, basis=basis, gpus=job.gpus)


def first_that_wait(ordered: Iterable[Candidate], *, look: SchedulingCycle) -> list[Candidate]:
    """The first jobs that wait in the cycle of `look`: those that get an estimate."""
    pending = []
    for job in ordered:
        if not isinstance(look.at(job), Admitted):
            pending.append(job)
        if len(pending) == FORESEEN_JOBS:
            break
    return pending


class _Awaited:
    """The jobs that arrive, by time."""

    def __init__(self, coming: Iterable[tuple[float, Candidate]]) -> None:
        self._coming = iter(coming)
        self._next = next(self._coming, None)

    def merged_with(self, pending: Sequence[Candidate], *, look: SchedulingCycle) -> Sequence[Candidate]:
        """The waiting jobs and those that have arrived by the time of `look`, in order."""
        came = []
        while self._next is not None and self._next[0] <= look.now:
            came.append(self._next[1])
            self._next = next(self._coming, None)
        return look.in_order([*pending, *came]) if came else pending


class _Over:
    """The jobs whose ends the estimates rely on, by node."""

    def __init__(self) -> None:
        self._ended: dict[str, dict[str, bool]] = {}
        self._early: set[str] = set()

    def add(self, ended: Iterable[tuple[Leaving, Claim]]) -> None:
        for leaving, claim in ended:
            self._ended.setdefault(claim.node, {})[leaving.job] = leaving.assumed
            if leaving.expected_seconds < leaving.at_seconds:
                self._early.add(leaving.job)

    def basis(self, claims: Iterable[Claim], *, at: SchedulingCycle) -> Sentence:
        """The sentence about the ends on the nodes of `claims`."""
        nodes = sorted({claim.node for claim in claims})
        ended = {job: assumed for node in nodes for job, assumed in self._ended.get(node, {}).items()}
        if not ended:
            return says.WINDOW_OVER() if at.is_after_windows else says.ITS_TURN()
        return self._of_jobs(nodes, ended=ended) + (says.AND_WINDOW_OVER() if at.is_after_windows else NOTHING)

    def _of_jobs(self, nodes: Sequence[str], *, ended: Mapping[str, bool]) -> Sentence:
        many, jobs, assumed = len(nodes), len(ended), sum(ended.values())
        found = (
            says.ENDED_ON_NODE(jobs=jobs, node=nodes[0]) if many == 1 else says.ENDED_ON_NODES(jobs=jobs, nodes=many)
        )
        if not self._early.isdisjoint(ended):
            like = found + says.AS_JOBS_LIKE_THEM()
            return like + says.AND_AS_CONFIGURED(jobs=assumed) if assumed else like
        return found + (says.AS_CONFIGURED(jobs=assumed) if assumed else says.BY_TIME_LIMITS())
