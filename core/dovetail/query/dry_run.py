"""Where and when a job would start if it were submitted now, by the queue's rules. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import floor, isfinite
from typing import Final

from msgspec.structs import replace as with_fields

from dovetail.answers.questions import DryRun, DryRunPreemption, DryRunStart, NodeShare
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.answers.submission import with_text
from dovetail.api.gpujob import GPUJob, Reason
from dovetail.api.meta import key_of
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.codes import BEGIN_TIME, INVALID
from dovetail.api.reasons.queue import WOULD_BE_REQUESTED
from dovetail.cluster.objects import ClusterObjects
from dovetail.engine.model.claims import Claim
from dovetail.formats.timestamps import moment
from dovetail.gpu.request import RequestError
from dovetail.jobs.cpu_fallback import BUSY, explain_on_cpu
from dovetail.jobs.plan import planned_nodes
from dovetail.query.checkpoints import checkpoint
from dovetail.query.preemption import PreemptionView, preempting, preemption_view
from dovetail.query.queue_view import QueueView, queue_view
from dovetail.queue.dependencies import called, states_of, unmet
from dovetail.queue.estimates.simulation import Start
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.scope import reach
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Evictor
from dovetail.queue.verdicts import Admitted, Verdict, Waits, why_of

# What is said of a job on which the queue does not decide.
_INVALID: Final = DryRun(
    outcome="Invalid",
    reason=INVALID.code,
    message="",
    details=[],
    nodes=None,
    position=None,
    start=None,
    preemption=None,
    cpu_in_seconds=None,
    array=False,
    limits_counted=True,
    text="",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedQueue:
    """The queue at one time, prepared for any number of dry runs.

    Preparing it takes seconds on a large cluster; it does not change afterwards.
    """

    # All jobs by `namespace/name`.
    jobs: Mapping[str, GPUJob]
    queue: QueueView
    others: PreemptionView
    # The UIDs of each job's pods, which are the keys of their claims, by the job's `namespace/name`.
    pods: Mapping[str, Sequence[str]]
    # Whether the GPUQuotas could be read.
    limits_counted: bool = True


def prepare(objects: ClusterObjects, *, now: datetime) -> PreparedQueue:
    """Prepare dry runs on these objects at `now`."""
    queue = queue_view(objects, now=now)
    return PreparedQueue(
        jobs={key_of(job.metadata): job for job in objects.jobs},
        queue=queue,
        others=preemption_view(objects, queue=queue),
        pods={key: [pod.metadata.uid for pod in pods] for key, pods in objects.pods_by_job().items()},
        limits_counted=objects.quotas is not None,
    )


def dry_run(job: GPUJob, *, objects: ClusterObjects, now: datetime) -> DryRun:
    """The queue's decision on a job that is not submitted yet; for an array, on its first task."""
    return dry_run_on(prepare(objects, now=now), job=job)


def dry_run_on(
    prepared: PreparedQueue,
    *,
    job: GPUJob,
    most_cycles: int | None = None,
    in_place_of: str = "",
    submitted: bool = False,
    reader: Reader = EVERYTHING,
) -> DryRun:
    """The same on a prepared queue, as if the waiting job of the UID `in_place_of` were cancelled first.

    With `submitted`, the job keeps its age; otherwise it comes last of its priority. What `reader` may not read is not
    named.

    The estimate of the start simulates many futures, which takes up to a minute on a large cluster. With `most_cycles`,
    it simulates the likeliest future alone and gives up after so many scheduling cycles. On 1,000 full nodes, one takes
    20-100 ms.
    """
    found = _decided(
        prepared, job=job, most_cycles=most_cycles, in_place_of=in_place_of, submitted=submitted, reader=reader
    )
    return with_text(found, namespace=job.metadata.namespace, now=prepared.queue.now)


def _decided(
    prepared: PreparedQueue,
    *,
    job: GPUJob,
    most_cycles: int | None,
    in_place_of: str,
    submitted: bool,
    reader: Reader,
) -> DryRun:
    """The answer without its text."""
    if any(each.key == in_place_of for each in prepared.queue.waiting):
        # One that runs stays: its devices are in the ledger.
        prepared = replace(prepared, queue=prepared.queue.without(in_place_of))
    is_array = job.spec.array is not None or job.spec.sweep is not None
    unplaced = with_fields(_INVALID, array=is_array, limits_counted=prepared.limits_counted)
    begin = None if job.spec.begin_time is None else moment(job.spec.begin_time)
    if begin is not None and begin > prepared.queue.now:
        return with_fields(unplaced, outcome="NotBefore", reason=BEGIN_TIME.code, message=job.spec.begin_time or "")

    def named(name: str) -> GPUJob | None:
        return prepared.jobs.get(f"{job.metadata.namespace}/{name}")

    states = states_of(job.spec.dependencies, job_named=named)
    blocked = unmet(states, spec=job.spec, called=lambda name: called(name, job=named(name)))
    if blocked is not None:
        return with_fields(_said(unplaced, why=blocked, reader=reader), outcome="Blocked")
    try:
        asked, counted = prepared.queue.asked_as(job, submitted=submitted)
    except RequestError as error:
        return with_fields(unplaced, message=reader.readable(str(error)))
    question = _Question(
        job, asked=asked, counted=counted, prepared=prepared, most_cycles=most_cycles, reader=reader, unplaced=unplaced
    )
    return question.answer()


class _Question:
    """One job of the query, and the queue that decides on it."""

    def __init__(
        self,
        job: GPUJob,
        *,
        asked: Candidate,
        counted: Counted,
        prepared: PreparedQueue,
        most_cycles: int | None,
        reader: Reader,
        unplaced: DryRun,
    ) -> None:
        self._job = job
        self._asked = asked
        self._counted = counted
        self._queue = prepared.queue
        self._others = prepared.others
        self._most_cycles = most_cycles
        self._reader = reader
        self._unplaced = unplaced

    def answer(self) -> DryRun:
        evictor = self._others.evictor()
        position, verdict = verdict_on(self._asked, counted=self._counted, queue=self._queue, evictor=evictor)
        if isinstance(verdict, Admitted):
            on_cpu = explain_on_cpu(verdict.on_cpu).message if verdict.on_cpu else ""
            nodes = _on_nodes(verdict.claims)
            return with_fields(self._unplaced, outcome="Starts", reason="", message=on_cpu, nodes=nodes)
        why = _why(verdict) + reach(
            self._job, reason=verdict.reason, pools=self._queue.quotas.pools_of(self._job), view=self._queue.view
        )
        refused = _said(self._unplaced, why=why, reader=self._reader)
        if verdict.reason == "ExceedsCapacity":
            return with_fields(refused, outcome="Never")
        by_preemption = preempting(evictor, key=self._asked.key, others=self._others, reader=self._reader)
        start = None if by_preemption else self._start()
        by_preemption = by_preemption or self._preempting_later(start)
        return with_fields(
            refused,
            outcome="Waits",
            position=position,
            start=start,
            preemption=by_preemption,
            cpu_in_seconds=self._cpu_in_seconds(verdict.reason),
        )

    def _start_row(self, start: Start) -> DryRunStart:
        """The estimate as the status of a waiting job has it, to the second."""
        expected = self._queue.learned.expectations.expected(start)
        bounds = expected.bounds
        is_ranged = start.range_seconds is not None
        return DryRunStart(
            seconds=floor(expected.seconds + 0.5),
            earliest=floor(bounds.earliest_seconds + 0.5) if is_ranged else None,
            latest=floor(bounds.latest_seconds + 0.5) if is_ranged else None,
            basis=self._reader.readable(expected.basis.message),
            basis_details=self._reader.details(expected.basis),
        )

    def _cpu_in_seconds(self, reason: Reason) -> float | None:
        left = self._asked.cpu_in_seconds
        return left if left is not None and isfinite(left) and reason in BUSY else None

    def _start(self) -> DryRunStart | None:
        start = self._queue.start_of(self._asked, counted=self._counted, most_cycles=self._most_cycles)
        return None if start is None else self._start_row(start)

    def _preempting_later(self, start: DryRunStart | None) -> DryRunPreemption | None:
        """The preemption once other jobs have run long enough, if that is sooner than `start`."""
        for wait in self._others.ripe_in(priority=self._asked.priority):
            evictor = self._others.evictor(in_seconds=wait)
            verdict_on(self._asked, counted=self._counted, queue=self._queue, evictor=evictor)
            found = preempting(evictor, key=self._asked.key, others=self._others, reader=self._reader, in_seconds=wait)
            if found is not None:
                return found if start is None or start.seconds > found.starts_in_seconds else None
        return None


def verdict_on(
    asked: Candidate, *, counted: Counted, queue: QueueView, evictor: Evictor | None = None
) -> tuple[int, Verdict]:
    """The place of the query's job among waiting jobs, from 1, and the verdict on it."""
    look, position = queue.cycle(counted, evictor=evictor), 1
    for job in look.in_order([asked, *queue.waiting]):
        checkpoint()
        verdict = look.at(job)
        if job.key == asked.key:
            return position, verdict
        position += isinstance(verdict, Waits) and verdict.reason != "ExceedsCapacity"
    raise AssertionError("the job that is asked about is among those that wait")


def _why(verdict: Waits) -> Sentence:
    """The verdict's sentence; of nodes that are not requested yet, that they would be."""
    request = verdict.provisioning
    if request is None:
        return why_of(verdict)
    return WOULD_BE_REQUESTED(nodes=request.nodes, pool=request.pool)


def _said(found: DryRun, *, why: Sentence, reader: Reader) -> DryRun:
    """The answer with this reason, as the reader may see it."""
    return with_fields(found, reason=why.reason, message=reader.readable(why.message), details=reader.details(why))


def _on_nodes(claims: Sequence[Claim]) -> list[NodeShare] | None:
    if not claims:
        return None
    held = {node.name: [claim for claim in claims if claim.node == node.name] for node in planned_nodes(claims)}
    return [
        NodeShare(node=name, gpus=sum(len(claim.devices) + claim.picked for claim in each))
        for name, each in held.items()
    ]
