"""The conditions of a GPUJob's status: the queue's own, and the batch Job's mirrored. Pure."""

from datetime import datetime
from typing import Final

import msgspec

from dovetail.api import builtin
from dovetail.api.gpujob import FINISHED
from dovetail.api.meta import Condition, find_condition
from dovetail.api.reasons import conditions as says
from dovetail.api.reasons.clause import NOTHING
from dovetail.formats.durations import timestamp
from dovetail.jobs.batch_job import has_ended, is_past, true_condition
from dovetail_operator.devices import bad_devices, enforcement, idleness, memory_overuse
from dovetail_operator.job.actions import Stage
from dovetail_operator.job.missed_deadline import judged
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.retries import retry_of

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
