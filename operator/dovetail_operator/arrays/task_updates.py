"""Changes to unfinished tasks of an array: cancel, hold, release, and changed fields. Pure.

A task's annotation has the values that it last received from its array. A field that the array has changed since is
copied to the task. A field that a user changed in the task alone stays until the array's field changes.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob, GPUJobSpec, Phase
from dovetail.api.gpujob.fields import fields_of
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.start import HELD_BY_PARALLELISM, HELD_WITH_ARRAY
from dovetail.decoding import UnreadableError, decode
from dovetail_operator.job.actions import ChangeTask

_FOLLOWED: Final = {name: field.attribute for name, field in fields_of(GPUJobSpec).items() if field.tasks_follow}
_LIMITS: Final = frozenset({"activeDeadlineSeconds", "maximumExecutionTimeSeconds"})
_BEGUN: Final[frozenset[Phase]] = frozenset({"Running", "Starting"})
_HELD_WITH_ARRAY: Final = "true"
_HELD_FOR_OTHERS: Final = "parallelism"


def is_in_line(task: GPUJob) -> bool:
    """Whether an unfinished task counts towards the array's parallelism.

    A task that a user holds does not.
    """
    return not task.spec.suspend or names.HELD_WITH in task.metadata.annotations or task.status.phase in _BEGUN


def noted_fields(parent: GPUJob) -> dict[str, str]:
    """The annotation with the array's current values of the followed fields."""
    return {names.AS_ARRAY_SAYS: json.dumps(_said(parent), sort_keys=True)}


def changes(parent: GPUJob, *, tasks: Sequence[GPUJob], at_a_time: int) -> list[ChangeTask]:
    """The changes to unfinished tasks, of which `at_a_time` may be released at once."""
    in_line = sorted((task for task in tasks if is_in_line(task)), key=lambda task: task.status.phase not in _BEGUN)
    surplus = {task.metadata.uid for task in in_line[at_a_time:] if task.status.phase not in _BEGUN}
    found = (_change(task, parent=parent, is_surplus=task.metadata.uid in surplus) for task in tasks)
    return [change for change in found if change is not None]


def why_held(task: GPUJob) -> Sentence | None:
    """Why a task is held by its array; None for any other job."""
    array, held = task.metadata.labels.get(names.LABEL_ARRAY), task.metadata.annotations.get(names.HELD_WITH)
    if array is None or held is None or not task.metadata.owner_references:
        # A deleted array that left its tasks behind no longer holds any.
        return None
    if held == _HELD_FOR_OTHERS:
        return HELD_BY_PARALLELISM(array=array)
    return HELD_WITH_ARRAY(array=array)


def _change(task: GPUJob, *, parent: GPUJob, is_surplus: bool) -> ChangeTask | None:
    if parent.spec.cancel:
        return None if task.spec.cancel else ChangeTask(task=task, spec={"cancel": True})
    spec, annotations = _followed(task, parent=parent)
    held = _holding(task, parent=parent, is_surplus=is_surplus)
    if held is not None:
        spec, annotations = {**spec, **held.spec}, {**annotations, **held.annotations}
    return ChangeTask(task=task, spec=spec, annotations=annotations) if spec or annotations else None


def _holding(task: GPUJob, *, parent: GPUJob, is_surplus: bool) -> ChangeTask | None:
    held_by_us = task.metadata.annotations.get(names.HELD_WITH)
    why = _HELD_WITH_ARRAY if parent.spec.suspend else _HELD_FOR_OTHERS if is_surplus else None
    if not task.spec.suspend and why is not None:
        return ChangeTask(task=task, spec={"suspend": True}, annotations={names.HELD_WITH: why})
    if task.spec.suspend and held_by_us is not None and held_by_us != why:
        return ChangeTask(task=task, spec={} if why else {"suspend": False}, annotations={names.HELD_WITH: why})
    return None


def _followed(task: GPUJob, *, parent: GPUJob) -> tuple[dict[str, Any], dict[str, str | None]]:
    """The fields that the array has changed, and the annotation that records them."""
    said, own = _said(parent), _said(task)
    known = _read(task.metadata.annotations.get(names.AS_ARRAY_SAYS)) or own
    news = [field for field in _FOLLOWED if known.get(field) != said[field]]
    if not news:
        return {}, {}
    changed = {field: said[field] for field in news if own[field] != said[field]}
    if (placement := task.status.placement) is not None and placement.limit_seconds is not None:
        # The API server refuses to raise these: the task started where others wait, by this limit.
        changed = {field: value for field, value in changed.items() if not _grows(field, own=own[field], said=value)}
    return changed, {**noted_fields(parent)}


def _grows(field: str, *, own: int | None, said: int | None) -> bool:
    """Whether a time limit is raised or removed."""
    return field in _LIMITS and own is not None and (said is None or said > own)


def _said(job: GPUJob) -> dict[str, Any]:
    return {name: msgspec.to_builtins(getattr(job.spec, attribute)) for name, attribute in _FOLLOWED.items()}


def _read(text: str | None) -> Mapping[str, Any]:
    """The values in the annotation; empty if a user wrote something else into it."""
    try:
        return decode(text or "{}", as_type=dict[str, Any])
    except UnreadableError:
        return {}
