"""What the owner of a pod chooses beyond its request, by annotations of the pod or by the spec of its GPUJob. Pure.

The operator writes these annotations for the pods of a GPUJob; a plain pod has its owner's.
"""

from collections.abc import Mapping
from typing import Final, TypeVar, get_args

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import POLICIES_BY_LETTERS, GPUJob, GPUJobSpec, Policy, Workload
from dovetail.api.gpujob.fields import fields_of
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import Ranking
from dovetail.engine.model.settings import Weights
from dovetail.formats.quantities import read_whole
from dovetail.gpu.memory_strategy import fraction_of, text_of
from dovetail.gpu.request import RequestError
from dovetail.pods.allocation import MAX_PRIORITY
from dovetail.pods.options import score_weights

Word = TypeVar("Word", bound=str)
_POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)
_WORKLOADS: Final[tuple[Workload, ...]] = get_args(Workload)
_CARRIED: Final = tuple(field for field in fields_of(GPUJobSpec).values() if field.annotation)
# All annotations of this kind, in the order of the spec's fields.
NAMES: Final = tuple(field.annotation for field in _CARRIED)
# Those whose fields may change while the job waits.
CHANGING: Final = tuple(field.annotation for field in _CARRIED if not field.stays)


def of_job(job: GPUJob, *, ask: Ask) -> dict[str, str | None]:
    """The annotations for the pods of a job with GPUs and this request, by name; None for those that they lack."""
    strategy = None if ask.guard_fraction is None else text_of(ask.guard_fraction)
    return {
        names.MODE: ask.mode,
        names.POLICY: ask.policy,
        names.SCORE_WEIGHTS: score_weights.text_of(score_weights.weights_of(job)) or None,
        names.MEMORY_STRATEGY: strategy,
        names.WORKLOAD: ask.workload,
        names.PRIORITY: str(job.spec.priority) if ask.mode == "TimeShared" else None,
    }


def ranked_job(job: GPUJob, *, ranking: Ranking) -> tuple[Policy, Weights]:
    """The policy and the weights of a job, by its spec and its namespace's ranking."""
    return job.spec.policy or ranking.policy, ranking.weights_with(score_weights.weights_of(job))


def ranked_pod(pod: Pod, *, ranking: Ranking) -> tuple[Policy, Weights]:
    """The policy and the weights of a pod, by its annotations and its namespace's ranking. Raises `RequestError`."""
    annotations = pod.metadata.annotations
    text = annotations.get(names.POLICY)
    named = POLICIES_BY_LETTERS.get((text or "").lower()) or _one_of(_POLICIES, text=text, field="policy")
    return named or ranking.policy, ranking.weights_with(score_weights.weights_in(annotations))


def check_job(job: GPUJob, *, ranking: Ranking) -> None:
    """Raise `RequestError` for a job that chooses what its namespace does not allow.

    A separate question from the job's request: what is allowed may change after the job has its place.
    """
    score_weights.check_job(job, ranking=ranking)


def check_pod(pod: Pod, *, ranking: Ranking) -> None:
    """As `check_job`, for a pod."""
    score_weights.check_pod(pod, ranking=ranking)


def guard_in(annotations: Mapping[str, str]) -> float | None:
    """The part of memory that a pod's annotations allow to promise, 0 to 1; None for the configured one.

    What Dynamic learns is in the request of a GPUJob's pods; other pods learn nothing. Raises `RequestError`.
    """
    text = annotations.get(names.MEMORY_STRATEGY)
    return None if text is None else fraction_of(text)


def workload_in(annotations: Mapping[str, str]) -> Workload | None:
    """The workload in a pod's annotations. Raises `RequestError`."""
    return _one_of(_WORKLOADS, text=annotations.get(names.WORKLOAD), field="workload")


def priority_in(annotations: Mapping[str, str]) -> int | None:
    """The weight in turns in a pod's annotations; None without one. Raises `RequestError`."""
    text = annotations.get(names.PRIORITY)
    if text is None:
        return None
    weight = read_whole(text, otherwise=-1)
    if not 0 <= weight <= MAX_PRIORITY:
        allowed = f"a whole number from 0 to {MAX_PRIORITY}"
        raise RequestError(text, field="priority", problem=f"must be {allowed}", example="20")
    return weight


def _one_of(allowed: tuple[Word, ...], *, text: str | None, field: str) -> Word | None:
    """The allowed word in `text`; None without text. Raises `RequestError` for any other word."""
    if text is None:
        return None
    for word in allowed:
        if word == text:
            return word
    raise RequestError(text, field=field, problem=f"unknown {field}", example=", ".join(allowed))
