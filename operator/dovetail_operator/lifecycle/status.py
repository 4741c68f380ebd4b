"""The status that follows from an observation and the job's stage: times, places, figures. Pure."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from dovetail import names
from dovetail.api import builtin
from dovetail.api.builtin import Job, Pod, is_terminated
from dovetail.api.gpujob import (
    FINISHED,
    AssignedDevice,
    Attempt,
    DeviceKind,
    Elastic,
    GPUJobStatus,
    Lease,
    MemoryUse,
    Placement,
)  # fmt: skip
from dovetail.api.meta import Condition, find_condition
from dovetail.api.reasons import conditions as says
from dovetail.api.reasons.clause import NOTHING
from dovetail.formats.durations import human, moment, timestamp
from dovetail.gpu.memory_strategy import DYNAMIC
from dovetail.jobs.batch_job import has_ended, is_guests, is_past, true_condition, worker_of
from dovetail.jobs.cpu_fallback import wait_start_time
from dovetail.jobs.plan import with_released
from dovetail.jobs.runs import earlier_end
from dovetail.pods.demand import request_of_job
from dovetail.queue.verdicts import Admitted
from dovetail_operator.devices import bad_devices, enforcement, idleness, memory_overuse
from dovetail_operator.job.actions import Stage
from dovetail_operator.job.missed_deadline import judged
from dovetail_operator.job.observation import Observed, bound_pods, devices_of, used_seconds
from dovetail_operator.job.plan import placement_of
from dovetail_operator.job.retries import retry_of
from dovetail_operator.lifecycle import moves, preemption

_NODES_IN_LINE: Final = 4
_KEPT_ATTEMPTS: Final = 16


def status_of(seen: Observed, *, stage: Stage) -> GPUJobStatus:
    """The status of a job in this stage.

    Nothing in it changes while a job merely runs, so that costs no write. The figures of a run are written at its end.
    """
    before, child = seen.job.status, seen.child
    placement = _placement(seen, stage=stage)
    nodes, devices = _places(seen, stage=stage, placement=placement)
    start = _start_time(seen, stage=stage)
    end = _completion_time(seen) if stage.phase in FINISHED else None
    active = [pod for pod in seen.pods if pod.status.phase in {"Pending", "Running"}]
    request = "" if seen.ask is None else str(seen.ask.gpu or request_of_job(seen.job) or "cpu")
    conditions = conditions_of(seen, stage=stage)
    stopped = None if start is None else earlier_end(end, start=start, conditions=conditions)
    status = GPUJobStatus(
        observed_generation=seen.job.metadata.generation,
        number=seen.number,
        phase=stage.phase,
        reason=stage.reason,
        message=stage.message,
        details=stage.why.listed,
        request=request or before.request,
        gpus=before.gpus if seen.ask is None else (seen.ask.gpu.count if seen.ask.gpu else 0) * seen.job.spec.workers,
        queue=stage.queue,
        placement=placement,
        preemption=preemption.preemption_of(seen, stage=stage),
        move=None if seen.move is None and before.move is None else moves.move_of(seen, stage=stage),
        plans=before.plans if placement is None else placement.generation,
        dependencies=list(seen.dependencies),
        selector="" if seen.job.spec.min_workers is None else f"{names.LABEL_JOB}={seen.job.metadata.name}",
        workers_active=len(active),
        workers_ready=sum(_is_ready(pod) for pod in active),
        workers_succeeded=child.status.succeeded if child else 0,
        workers_failed=child.status.failed if child else 0,
        nodes=nodes,
        node_list=_in_line(nodes),
        devices=devices,
        memory=_memory(seen, stage=stage),
        admitted_time=_admitted_time(seen, stage=stage),
        start_time=start,
        completion_time=end,
        elapsed=_elapsed(seen, stage=stage, start=start, end=stopped),
        measured=before.measured if _goes_on(stage) or stage.phase == before.phase else seen.measured,
        attempt=before.attempt,
        retries=before.retries,
        attempts=before.attempts,
        earlier_run_seconds=used_seconds(seen) if start is None else before.earlier_run_seconds,
        device=_device(seen, stage=stage, start=start),
        simulated=seen.simulated,
        elastic=elastic_of(seen, stage=stage, start=start),
        provisioning=stage.provisioning,
        gpu_wait_start_time=_gpu_wait_start_time(seen, stage=stage),
        lease=_lease(seen, stage=stage, start=start),
        notified=before.notified,
        conditions=conditions,
    )
    return _noted(status, ended=stage.ended)


def _device(seen: Observed, *, stage: Stage, start: str | None) -> DeviceKind | None:
    if stage.phase in FINISHED and (seen.job.status.device is not None or start is None):
        # A job that never began has run on no device.
        return seen.job.status.device
    if stage.phase not in {"Starting", "Running", *FINISHED}:
        return None
    if seen.ask is None:
        # The template was changed to an unreadable one; the running pods come from the previous template.
        return seen.job.status.device
    return "cpu" if seen.ask.gpu is None else "cuda"


def _gpu_wait_start_time(seen: Observed, *, stage: Stage) -> str | None:
    if stage.admitted is not False:
        return None
    return wait_start_time(seen.job, reason=stage.reason, after_seconds=seen.cpu_after_seconds, now=seen.now)


def _lease(seen: Observed, *, stage: Stage, start: str | None) -> Lease | None:
    spec = seen.job.spec.reservation
    if spec is None or start is None or stage.phase not in {"Starting", "Running"}:
        return None
    since = moment(start) if spec.renew_time is None else max(moment(start), moment(spec.renew_time))
    return Lease(expiration_time=timestamp(since + timedelta(seconds=spec.duration_seconds)))


def _placement(seen: Observed, *, stage: Stage) -> Placement | None:
    """The plan that the job follows: the queue's until its batch Job runs, then the status's."""
    if stage.phase not in {"Starting", "Running"}:
        return None
    at_work = seen.child is not None and not seen.child.spec.suspend
    if not at_work:
        return placement_of(seen.job, verdict=seen.verdict)
    known, replaced = seen.job.status.placement, seen.replacement
    if known is not None and is_guests(seen.job):
        return with_released(known, pods=seen.pods, workers=seen.job.spec.workers)
    # The status may have this replacement already, or another plan by now.
    if known is None or replaced is None or replaced.generation != known.generation:
        return known
    return replaced if replaced.replaced > known.replaced else known


def _places(seen: Observed, *, stage: Stage, placement: Placement | None) -> tuple[list[str], list[AssignedDevice]]:
    """Nodes and devices: the current ones of a running job, the last ones of an ended job."""
    bound = bound_pods(seen.pods)
    nodes, over = [pod.spec.node_name for pod in bound], stage.phase in FINISHED
    if not over and stage.phase not in {"Starting", "Running"}:
        return [], []
    # A worker that succeeded holds nothing. One that failed ends the run, whose status keeps what it held; so does the
    # success of all, which their Job says a second later.
    holding = [pod for pod in seen.pods if pod.status.phase != "Succeeded"]
    all_succeeded = len(seen.pods) - len(holding) >= seen.job.spec.workers
    devices = devices_of(seen.pods if over or all_succeeded else holding, given=seen.given)
    if over or _is_at_work(seen):
        # Pods that exceed their time limit or are deleted disappear before their Job says how it ended.
        before, there = seen.job.status, {worker_of(pod) for pod in bound}
        known = there | set(() if placement is None else placement.released)
        devices = [*devices, *(device for device in before.devices if device.worker not in known)]
        nodes = [*(before.nodes if len(there) < seen.job.spec.workers else ()), *nodes]
    return list(dict.fromkeys(nodes)), sorted(devices, key=lambda device: device.worker)


def _is_at_work(seen: Observed) -> bool:
    return seen.child is not None and not seen.child.spec.suspend and not is_past(seen.job, child=seen.child)


def _is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def _in_line(nodes: list[str]) -> str:
    """The nodes as one cell of a table."""
    shown = ",".join(nodes[:_NODES_IN_LINE])
    return shown if len(nodes) <= _NODES_IN_LINE else f"{shown},+{len(nodes) - _NODES_IN_LINE}"


def _admitted_time(seen: Observed, *, stage: Stage) -> str | None:
    before = seen.job.status
    if not stage.admitted:
        return before.admitted_time
    was = any(condition.type == "Admitted" and condition.status == "True" for condition in before.conditions)
    # A batch Job that carries the plan says when it was created, and the status has no condition yet.
    known = before.admitted_time if was or before.placement is not None else None
    return known or timestamp(seen.now)


def _start_time(seen: Observed, *, stage: Stage) -> str | None:
    """When the first worker of this run began.

    Kept after its pods are gone, reset when the job is queued.
    """
    if stage.phase in {"Held", "Suspended", "Cancelled"}:
        return seen.job.status.start_time
    if stage.ended is not None or seen.child is None or is_past(seen.job, child=seen.child):
        return None
    if seen.child.spec.suspend and stage.phase not in FINISHED:
        return None
    started = [time for pod in seen.pods if (time := _began(pod)) is not None]
    kept = [seen.job.status.start_time] if seen.job.status.start_time else []
    return min([*kept, *started], default=_start_of(seen.child) if stage.phase in FINISHED else None)


def _began(pod: Pod) -> str | None:
    """When the pod's first container began to run, else the pod's own start time."""
    if pod.status.phase != "Running" and not is_terminated(pod):
        return None
    times = [
        at
        for container in pod.status.container_statuses
        for state in (container.state.running, container.state.terminated)
        if state is not None and (at := state.started_at) is not None
    ]
    return min(times, default=pod.status.start_time)


def _start_of(child: Job | None) -> str | None:
    return None if child is None else child.status.start_time


def _completion_time(seen: Observed) -> str:
    """When the batch Job ended; the current time for an end that the operator decided."""
    if seen.child is None:
        return timestamp(seen.now)
    ended = true_condition(seen.child, "Complete", "Failed")
    end_time = seen.child.status.completion_time or (ended.last_transition_time if ended else None)
    return end_time or timestamp(seen.now)


def _elapsed(seen: Observed, *, stage: Stage, start: str | None, end: str | None) -> str:
    """The run time of a run that has ended, or is held; empty while it goes on."""
    if start is None or (end is None and stage.phase not in {"Held", "Suspended"}):
        return ""
    if end is None and (kept := seen.job.status.elapsed):
        return kept
    stopped = seen.now if end is None else moment(end)
    return human((stopped - moment(start)).total_seconds())


def _memory(seen: Observed, *, stage: Stage) -> MemoryUse | None:
    """The memory entry: a running job's peak is written only when it comes up to the promise."""
    before, use = seen.job.status.memory, seen.memory
    if use is None or not _goes_on(stage):
        return use
    if use.limited and not (before is not None and before.limited):
        return use
    if before is None and use.strategy != DYNAMIC:
        return None
    peak_mib, limited = (0, False) if before is None else (before.peak_mib, before.limited)
    return msgspec.structs.replace(use, peak_mib=peak_mib, limited=limited)


def _goes_on(stage: Stage) -> bool:
    return stage.phase in {"Starting", "Running"}


def elastic_of(seen: Observed, *, stage: Stage, start: str | None) -> Elastic | None:
    """The latest run of an elastic job; None before its first run.

    `start` is when the current run began, None if no run is in progress.
    """
    before = seen.job.status.elastic
    if seen.job.spec.min_workers is None and before is None:
        return None
    earlier = 0 if before is None else before.earlier_worker_seconds
    if before is not None and start is None:
        over = used_seconds(seen) - seen.job.status.earlier_run_seconds
        earlier += before.workers * over
    if stage.phase in {"Starting", "Running"} or (before is None and stage.phase in FINISHED and start is not None):
        return Elastic(
            workers=seen.job.spec.workers,
            requested=_requested(seen),
            limit=_limit(seen),
            earlier_worker_seconds=earlier,
        )
    if before is None:
        return None
    return msgspec.structs.replace(before, earlier_worker_seconds=earlier)


def _requested(seen: Observed) -> int:
    """How many workers were requested when the run was planned."""
    at_work, before = seen.child is not None and not seen.child.spec.suspend, seen.job.status.elastic
    return before.requested if at_work and before is not None else seen.asked_workers or seen.job.spec.workers


def _limit(seen: Observed) -> str:
    """What limits the number of workers: as the queue says until the batch Job runs."""
    at_work = seen.child is not None and not seen.child.spec.suspend
    if not at_work and isinstance(seen.verdict, Admitted):
        return seen.verdict.limit
    return seen.job.status.elastic.limit if seen.job.status.elastic is not None else ""


_MIRRORED: Final = ("Suspended", "SuccessCriteriaMet", "Complete", "FailureTarget", "Failed")
_ORDER: Final = (
    "Admitted",
    enforcement.CONDITION,
    bad_devices.CONDITION,
    memory_overuse.CONDITION,
    idleness.CONDITION,
    *_MIRRORED,
)


def conditions_of(seen: Observed, *, stage: Stage) -> list[Condition]:
    """The current conditions, each with the time when its status last changed."""
    # Other conditions of an earlier run say nothing about this run.
    found = {each.type: each for each in seen.job.status.conditions if each.type in {"Admitted", "Suspended"}}
    wanted = [*_of_the_queue(seen, stage=stage), *_of_the_child(seen, stage=stage), *_without_child(seen, stage=stage)]
    wanted += _of_devices(seen, stage=stage)
    for condition in wanted:
        found[condition.type] = _since(
            condition, before=find_condition(seen.job.status.conditions, type=condition.type)
        )
    listed = sorted(found.values(), key=lambda condition: _ORDER.index(condition.type))
    return [msgspec.structs.replace(each, observed_generation=seen.job.metadata.generation) for each in listed]


def _since(condition: Condition, *, before: Condition | None) -> Condition:
    if before is None or before.status != condition.status:
        return condition
    return msgspec.structs.replace(condition, last_transition_time=before.last_transition_time)


def _of_the_queue(seen: Observed, *, stage: Stage) -> list[Condition]:
    if stage.admitted is None:
        return []
    now = timestamp(seen.now)
    if stage.admitted:
        workers = seen.job.spec.workers
        asked = seen.asked_workers or workers
        how = says.WITH_SOME(workers=workers, asked=asked) if workers < asked else says.WITH_ALL(workers=workers)
        why = says.BY_THE_QUEUE() + how if asked > 1 else says.BY_THE_QUEUE()
        return [says.condition("Admitted", status="True", why=why, at=now)]
    return [says.condition("Admitted", status="False", why=stage.why, at=now)]


def _of_the_child(seen: Observed, *, stage: Stage) -> list[Condition]:
    child = seen.child
    if child is None or stage.ended is not None or is_past(seen.job, child=child):
        return []
    failing = true_condition(child, "FailureTarget")
    if failing is not None and stage.phase not in FINISHED:
        failing = judged(failing, seen=seen, child=child)
        if retry_of(seen, child=child, failed=failing, how=NOTHING):
            # The attempt fails, but the job does not.
            return []
    news = [condition for condition in child.status.conditions if _is_news(condition)]
    return [_mirrored(judged(condition, seen=seen, child=child), at=seen.now) for condition in news]


def _is_news(condition: builtin.Condition) -> bool:
    return condition.type in _MIRRORED and (condition.status == "True" or condition.type == "Suspended")


def _mirrored(condition: builtin.Condition, *, at: datetime) -> Condition:
    return Condition(
        type=condition.type,
        status="True" if condition.status == "True" else "False",
        reason=condition.reason or condition.type,
        message=condition.message,
        last_transition_time=condition.last_transition_time or timestamp(at),
    )


def _without_child(seen: Observed, *, stage: Stage) -> list[Condition]:
    """Conditions that no batch Job can have, because there is none or it is deleted."""
    over, now = seen.child is not None and has_ended(seen.child), timestamp(seen.now)
    if stage.phase == "Cancelled" or (stage.phase in {"TimedOut", "Failed"} and not over):
        return [says.condition("Failed", status="True", why=stage.why, at=now)]
    if seen.child is not None:
        return []
    if stage.reason == "Held":
        return [says.condition("Suspended", status="True", why=stage.why, at=now)]
    if find_condition(seen.job.status.conditions, type="Suspended") is not None:
        return [says.condition("Suspended", status="False", why=says.NO_LONGER_HELD(), at=now)]
    return []


def _of_devices(seen: Observed, *, stage: Stage) -> list[Condition]:
    had, finished, now = seen.job.status.conditions, stage.phase in FINISHED, timestamp(seen.now)
    healthy = bad_devices.condition_of(
        seen.bad_cards, before=find_condition(had, type=bad_devices.CONDITION), finished=finished, now=now
    )
    within = memory_overuse.condition_of(
        seen.overuses, before=find_condition(had, type=memory_overuse.CONDITION), finished=finished, now=now
    )
    held = enforcement.condition_of(
        seen.enforcement,
        mode=seen.ask.mode if seen.ask is not None and seen.ask.gpu is not None else None,
        before=find_condition(had, type=enforcement.CONDITION),
        finished=finished,
        now=now,
    )
    if seen.ask is None and seen.enforcement:
        # The template was changed to an unreadable one; the running pods come from the previous template.
        held = find_condition(had, type=enforcement.CONDITION)
    idle = idleness.condition_of(
        seen.idle_since, before=find_condition(had, type=idleness.CONDITION), finished=finished, now=now
    )
    return [each for each in (held, healthy, within, idle) if each is not None]


def _noted(status: GPUJobStatus, *, ended: Attempt | None) -> GPUJobStatus:
    """The status with `ended` added to the ended attempts, and the next attempt number."""
    if ended is None:
        return status
    return msgspec.structs.replace(
        status,
        attempt=ended.number + 1,
        retries=status.retries + ended.counted,
        attempts=[*status.attempts, ended][-_KEPT_ATTEMPTS:],
    )
