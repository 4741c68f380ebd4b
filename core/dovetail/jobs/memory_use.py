"""What jobs were measured to use of their devices' memory, and what that teaches about the next run of the same name.

Two GPUJobs of a namespace are runs of one name if their `metadata.generateName`, or without one their `metadata.name`,
is the same; gbatch numbers `train`, `train-2`, `train-3` and says `train-` in the former. A run teaches if it ended
well (or at its time limit) and lasted two looks of the agent. Each run notes those before it in its own status, so that
they outlive their GPUJobs: what is learned is lost only with the last GPUJob of the name.

A run that came up to what it was promised may have needed more: neither it nor what is older is believed.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.api.gpujob import EarlierRun, GPUJob, MemoryStrategy, MemoryUse, Phase
from dovetail.api.gpunode import GPUNode
from dovetail.decoding import UnreadableError, decode
from dovetail.engine.model.claims import GUARD_FRACTIONS, Ask, Claim
from dovetail.formats.durations import moment

# A tenth above the peak: agents sample at intervals, and allocators waste some memory.
MARGIN_PERCENT: Final = 110
# A run that used this part of its limit may have needed more.
LIMIT_RATIO: Final = 0.95
HISTORY: Final = 10
# A peak is written to the status when it has grown by this factor, and at the end.
_NEWS_RATIO: Final = 1.02
_TEACHING: Final[frozenset[Phase]] = frozenset({"Succeeded", "TimedOut"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most that a worker of a job was measured to use of one device; `limited` if that was all of its promise."""

    mib: int = 0
    limited: bool = False


def name_of_runs(job: GPUJob) -> tuple[str, str]:
    """Namespace and name that the runs of one program share."""
    meta = job.metadata
    return meta.namespace, re.sub("-+$", "", meta.generate_name) or meta.name


def peaks_in(gpunode: GPUNode, *, claims: Iterable[Claim]) -> Iterator[tuple[str, Peak]]:
    """What each pod uses by a report, at most on one device, by its UID; `claims` are those on the node."""
    promised = {(claim.key, device.uuid): device.memory_mib for claim in claims for device in claim.devices}
    for device in gpunode.status.devices:
        for tenant in device.tenants:
            promise = promised.get((tenant.uid, device.uuid))
            if promise is not None:
                yield tenant.uid, Peak(mib=tenant.used_mib, limited=tenant.used_mib >= promise * LIMIT_RATIO)


def told_by(job: GPUJob, *, two_looks: timedelta) -> list[EarlierRun]:
    """The runs that a GPUJob's status tells of: those before it, and itself once it teaches."""
    use = job.status.memory
    if use is None:
        return []
    itself = EarlierRun(
        uid=job.metadata.uid, created=job.metadata.creation_timestamp, peak_mib=use.peak_mib, limited=use.limited
    )
    own = [itself] if use.limited or (use.peak_mib and _ended_well(job, at_least=two_looks)) else []
    return [*own, *use.earlier_runs]


def newest(runs: Iterable[EarlierRun]) -> list[EarlierRun]:
    """The runs that are kept, the newest first."""
    return sorted(runs, key=lambda run: (run.created, run.uid), reverse=True)[:HISTORY]


def believed(runs: Sequence[EarlierRun]) -> list[int]:
    """The peaks that are believed of `runs`, which come newest first."""
    peaks: list[int] = []
    for run in runs:
        if run.limited:
            break
        peaks.append(run.peak_mib)
    return peaks


def plan(job: GPUJob, ask: Ask, *, strategy: MemoryStrategy, earlier: Sequence[EarlierRun], most_mib: int) -> MemoryUse:
    """The basis of the job's memory promise if it is admitted now. `earlier` are the runs before it, the newest first.

    An estimate above `most_mib`, all that any device has to promise, would never fit: the peak alone is then enough.
    """
    use = MemoryUse(strategy=strategy, basis="", earlier_runs=list(earlier))
    name, peaks = name_of_runs(job)[1], believed(earlier)
    if strategy != "Dynamic":
        return _with(use, basis=f"{GUARD_FRACTIONS[strategy]:g} of a shared device's memory may be promised")
    if ask.mode == "Exclusive":
        return _with(use, basis="Whole devices come with all their memory")
    if peaks:
        return _estimate(use, ask, name=name, peaks=peaks, most_mib=most_mib)
    if earlier:
        return _with(use, basis=f"No estimate: the last run of {name} used all that it was promised; as Conservative")
    return _with(use, basis=f"No estimate: no run of {name} has told yet what it needs; as Conservative")


def _estimate(use: MemoryUse, ask: Ask, *, name: str, peaks: Sequence[int], most_mib: int) -> MemoryUse:
    peak = max(peaks)
    estimate = min(peak * MARGIN_PERCENT // 100, max(peak, most_mib))
    runs = f"{len(peaks)} run{'s' if len(peaks) > 1 else ''} of {name}"
    asked = None if ask.gpu is None else ask.gpu.memory_mib
    basis = f"Estimated {estimate:,} MiB from {runs}, peak {peak:,} MiB"
    if asked is not None and asked <= estimate:
        basis = f"As asked, {asked:,} MiB: {runs} used up to {peak:,} MiB"
    return _with(use, basis=basis, estimate_mib=estimate)


def _with(use: MemoryUse, *, basis: str, estimate_mib: int | None = None) -> MemoryUse:
    return msgspec.structs.replace(use, basis=basis, estimate_mib=estimate_mib)


def noted_on(child: Job) -> MemoryUse | None:
    """The basis of an admitted job's promise, from its batch Job; None if it has none."""
    text = child.metadata.annotations.get(names.MEMORY_ESTIMATE)
    try:
        return None if text is None else decode(text, as_type=MemoryUse)
    except UnreadableError:
        return None


@dataclass(slots=True)
class _Name:
    members: set[str] = field(default_factory=set)
    runs: dict[str, EarlierRun] = field(default_factory=dict)


class Learning:
    """The peaks of jobs that run, and the runs of each name. `look_seconds` is how often agents look."""

    def __init__(self, *, default: MemoryStrategy = "Conservative", look_seconds: float = 30.0) -> None:
        self._default = default
        self._two_looks = timedelta(seconds=2 * look_seconds)
        self._names: dict[tuple[str, str], _Name] = {}
        self._peaks: dict[str, Peak] = {}

    def put(self, job: GPUJob) -> None:
        """A GPUJob is there, or has changed."""
        known = self._names.setdefault(name_of_runs(job), _Name())
        known.members.add(job.metadata.uid)
        told = told_by(job, two_looks=self._two_looks)
        if told:
            known.runs.update({run.uid: run for run in told})
            known.runs = {run.uid: run for run in newest(known.runs.values())}

    def drop(self, job: GPUJob) -> None:
        """A GPUJob is gone."""
        self._peaks.pop(job.metadata.uid, None)
        name = name_of_runs(job)
        known = self._names.get(name)
        if known is None:
            return
        known.members.discard(job.metadata.uid)
        if not known.members:
            del self._names[name]

    def measured(self, job: GPUJob, peak: Peak) -> bool:
        """A worker of the job uses that much; whether that is so much more than the status says that it is news."""
        uid, told = job.metadata.uid, _told(job)
        self._peaks[uid] = _higher(self._peaks.get(uid, told), peak)
        return (peak.limited and not told.limited) or peak.mib > told.mib * _NEWS_RATIO

    def estimates(self, job: GPUJob) -> bool:
        """Whether what the job is promised goes by what its runs have used."""
        return (job.spec.memory.strategy or self._default) == "Dynamic"

    def use_of(
        self, job: GPUJob, ask: Ask | None, *, child: Job | None, most_mib: Callable[[], int]
    ) -> MemoryUse | None:
        """What is to be said of the job's memory; None while there is nothing to say.

        `ask` is as the job's spec has it, `child` its batch Job, `most_mib` tells the memory of the largest
        device; it is asked only where something is estimated.
        """
        if ask is None or ask.gpu is None:
            return job.status.memory
        strategy = job.spec.memory.strategy or self._default
        peak = _higher(self._peaks.get(job.metadata.uid, Peak()), _told(job))
        if strategy != "Dynamic" and not peak.mib:
            return None
        use = None if child is None else noted_on(child)
        if use is None:
            earlier = [run for run in self._runs_of(job) if run.uid != job.metadata.uid]
            use = plan(job, ask, strategy=strategy, earlier=earlier, most_mib=most_mib())
        return msgspec.structs.replace(use, peak_mib=peak.mib, limited=peak.limited)

    def _runs_of(self, job: GPUJob) -> list[EarlierRun]:
        known = self._names.get(name_of_runs(job))
        return [] if known is None else list(known.runs.values())


def _told(job: GPUJob) -> Peak:
    use = job.status.memory
    return Peak() if use is None else Peak(mib=use.peak_mib, limited=use.limited)


def _higher(one: Peak, other: Peak) -> Peak:
    return Peak(mib=max(one.mib, other.mib), limited=one.limited or other.limited)


def _ended_well(job: GPUJob, *, at_least: timedelta) -> bool:
    status = job.status
    if status.phase not in _TEACHING or status.start_time is None or status.completion_time is None:
        return False
    return moment(status.completion_time) - moment(status.start_time) >= at_least
