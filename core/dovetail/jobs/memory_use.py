"""The measured device memory of jobs, and the estimate for the next run of the same name.

Pure.

Two GPUJobs of a namespace are runs of one name if they have the same `metadata.generateName`, or without one the same
`metadata.name`. gbatch numbers `train`, `train-2`, `train-3` and writes `train-` into the former. A run teaches if it
succeeded (or ended at its time limit) and lasted for two readings of the agent. Each run records the ones before it in
its own status, so that they outlive their GPUJobs: the last GPUJob of the name takes the knowledge with it.

A run that reached its promise may have needed more: neither that run nor an older one counts. Before the first run, the
model's number of parameters gives an estimate, where the job has it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Job
from dovetail.api.gpujob import EarlierRun, GPUJob, MemoryUse, Phase
from dovetail.api.gpunode import GPUNode
from dovetail.decoding import UnreadableError, decode
from dovetail.engine.model.claims import Ask, Claim
from dovetail.formats.durations import moment
from dovetail.gpu.memory_strategy import CONSERVATIVE, DYNAMIC, fraction_of
from dovetail.jobs.model_memory import memory_of_model

# A tenth above the peak: agents sample at intervals, and allocators waste some memory.
MARGIN_PERCENT: Final = 110
# A run that used this part of its limit may have needed more.
LIMIT_RATIO: Final = 0.95
HISTORY: Final = 10
_TEACHING: Final[frozenset[Phase]] = frozenset({"Succeeded", "TimedOut"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most MiB that a worker of a job used of one device.

    `limited` if that was its whole promise.
    """

    mib: int = 0
    limited: bool = False


def name_of_runs(job: GPUJob) -> tuple[str, str]:
    """The namespace and name that the runs of one program share."""
    meta = job.metadata
    return meta.namespace, re.sub("-+$", "", meta.generate_name) or meta.name


def peaks_in(gpunode: GPUNode, *, claims: Iterable[Claim]) -> Iterator[tuple[str, Peak]]:
    """The most that each pod has used of one device, by its UID; `claims` are those on the node."""
    promised = {(claim.key, device.uuid): device.memory_mib for claim in claims for device in claim.devices}
    for device in gpunode.status.devices:
        # An agent of an earlier version reports no totals.
        used = [(each.uid, each.used_mib) for each in device.tenants]
        for uid, mib in [*used, *((each.uid, each.peak_mib) for each in device.totals if each.peak_mib)]:
            promise = promised.get((uid, device.uuid))
            if promise is not None:
                yield uid, Peak(mib=mib, limited=mib >= promise * LIMIT_RATIO)


def earlier_runs(job: GPUJob, *, two_looks: timedelta) -> list[EarlierRun]:
    """The runs in a GPUJob's status: those before it, and itself once it teaches."""
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
    """The peaks in MiB that count of `runs`, which are sorted newest first."""
    peaks: list[int] = []
    for run in runs:
        if run.limited:
            break
        peaks.append(run.peak_mib)
    return peaks


def plan(job: GPUJob, *, ask: Ask, strategy: str, earlier: Sequence[EarlierRun], most_mib: int) -> MemoryUse:
    """The basis of the job's memory promise if it is admitted now.

    `earlier` are earlier runs, newest first.

    An estimate from runs above `most_mib`, all that any device has to promise, would never fit: then the peak alone is
    the estimate. An estimate from the model's parameters stays as it is, and the job waits with that number: nothing
    shows that it fits.
    """
    use = MemoryUse(strategy=strategy, basis="", earlier_runs=list(earlier))
    name, peaks = name_of_runs(job)[1], believed(earlier)
    if strategy != DYNAMIC:
        return _with(use, basis=f"{fraction_of(strategy):g} of a shared device's memory may be promised")
    if ask.mode == "Exclusive":
        return _with(use, basis="Whole devices come with all their memory")
    if ask.gpu is not None and ask.gpu.memory_percent is not None:
        return _with(use, basis=f"As asked, {ask.gpu.memory_percent} % of each device's memory")
    if peaks:
        return _estimate(use, ask=ask, name=name, peaks=peaks, most_mib=most_mib)
    if earlier:
        return _with(use, basis=f"No estimate: the last run of {name} used all that it was promised; as Conservative")
    of_model = memory_of_model(job.spec.memory, workload=job.spec.workload)
    if of_model is not None:
        return _of_model(use, ask=ask, job=job, mib=of_model * MARGIN_PERCENT // 100)
    return _with(use, basis=f"No estimate: no run of {name} has shown yet what it needs; as Conservative")


def _of_model(use: MemoryUse, *, ask: Ask, job: GPUJob, mib: int) -> MemoryUse:
    memory = job.spec.memory
    origin = f"{memory.parameters:,} parameters and a batch of {memory.batch_size or 1:,}"
    asked = None if ask.gpu is None else ask.gpu.memory_mib
    basis = f"Estimated {mib:,} MiB from {origin}"
    if asked is not None and asked <= mib:
        basis = f"As asked, {asked:,} MiB: {origin} may need {mib:,} MiB"
    return _with(use, basis=basis, estimate_mib=mib)


def _estimate(use: MemoryUse, *, ask: Ask, name: str, peaks: Sequence[int], most_mib: int) -> MemoryUse:
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
    """The peaks of running jobs, and the runs of each name.

    `look_seconds` is the agents' interval.
    """

    def __init__(self, *, default: str = CONSERVATIVE, look_seconds: float = 30.0) -> None:
        self._default = default
        self._two_looks = timedelta(seconds=2 * look_seconds)
        self._names: dict[tuple[str, str], _Name] = {}
        self._peaks: dict[str, Peak] = {}

    def observe(self, job: GPUJob) -> None:
        """Add or update a GPUJob."""
        known = self._names.setdefault(name_of_runs(job), _Name())
        known.members.add(job.metadata.uid)
        reported = earlier_runs(job, two_looks=self._two_looks)
        if reported:
            known.runs.update({run.uid: run for run in reported})
            known.runs = {run.uid: run for run in newest(known.runs.values())}

    def drop(self, job: GPUJob) -> None:
        """Remove a GPUJob that was deleted."""
        self._peaks.pop(job.metadata.uid, None)
        name = name_of_runs(job)
        known = self._names.get(name)
        if known is None:
            return
        known.members.discard(job.metadata.uid)
        if not known.members:
            del self._names[name]

    def measured(self, job: GPUJob, *, peak: Peak) -> bool:
        """Record the use of a worker. Returns whether it has come up to its promise and the status does not say so."""
        uid, reported = job.metadata.uid, _reported_peak(job)
        self._peaks[uid] = _higher(self._peaks.get(uid, reported), other=peak)
        return peak.limited and not reported.limited

    def peak_of(self, job: GPUJob) -> int:
        """The highest use of a device by a worker so far, in MiB; 0 without any."""
        return self._peaks.get(job.metadata.uid, Peak()).mib

    def estimates(self, job: GPUJob) -> bool:
        """Whether the job's promise depends on the use of its earlier runs."""
        return (job.spec.memory.strategy or self._default) == DYNAMIC

    def use_of(
        self, job: GPUJob, *, ask: Ask | None, child: Job | None, most_mib: Callable[[], int]
    ) -> MemoryUse | None:
        """The memory use to show for the job; None while there is nothing to show.

        `ask` is the request in the job's spec, `child` its batch Job. `most_mib` returns the memory of the largest
        device and is called only for an estimate.
        """
        if ask is None or ask.gpu is None:
            return job.status.memory
        strategy = job.spec.memory.strategy or self._default
        peak = _higher(self._peaks.get(job.metadata.uid, Peak()), other=_reported_peak(job))
        if strategy != DYNAMIC and not peak.mib:
            return None
        use = None if child is None else noted_on(child)
        if use is None:
            earlier = [run for run in self._runs_of(job) if run.uid != job.metadata.uid]
            use = plan(job, ask=ask, strategy=strategy, earlier=earlier, most_mib=most_mib())
        return msgspec.structs.replace(use, peak_mib=peak.mib, limited=peak.limited)

    def _runs_of(self, job: GPUJob) -> list[EarlierRun]:
        known = self._names.get(name_of_runs(job))
        return [] if known is None else list(known.runs.values())


def with_peak(job: GPUJob, *, mib: int) -> MemoryUse | None:
    """The memory entry of the job's status with a peak that it does not have yet; None if nothing was measured."""
    use = job.status.memory
    if use is None:
        return MemoryUse(strategy=job.spec.memory.strategy or CONSERVATIVE, basis="", peak_mib=mib) if mib else None
    return msgspec.structs.replace(use, peak_mib=max(use.peak_mib, mib))


def _reported_peak(job: GPUJob) -> Peak:
    use = job.status.memory
    return Peak() if use is None else Peak(mib=use.peak_mib, limited=use.limited)


def _higher(one: Peak, *, other: Peak) -> Peak:
    return Peak(mib=max(one.mib, other.mib), limited=one.limited or other.limited)


def _ended_well(job: GPUJob, *, at_least: timedelta) -> bool:
    status = job.status
    if status.phase not in _TEACHING or status.start_time is None or status.completion_time is None:
        return False
    return moment(status.completion_time) - moment(status.start_time) >= at_least
