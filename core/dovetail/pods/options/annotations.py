"""What the owner of a pod chooses beyond its request, by annotations of the pod or by the spec of its GPUJob. Pure.

The operator writes these annotations for the pods of a GPUJob; a plain pod has its owner's.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeVar, get_args

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import POLICIES_BY_LETTERS, GPUJob, GPUJobSpec, Policy, Workload
from dovetail.api.gpujob.fields import fields_of
from dovetail.api.gpujob.spec import ScoreWeights
from dovetail.api.reasons import start as says
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import MAX_WEIGHT, TERMS, Ranking
from dovetail.engine.model.settings import Weights
from dovetail.formats.quantities import read_whole
from dovetail.gpu.memory_strategy import fraction_of, text_of
from dovetail.gpu.request import RequestError
from dovetail.pods.allocation import MAX_PRIORITY

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
        names.SCORE_WEIGHTS: text_of_weights(weights_of(job)) or None,
        names.MEMORY_STRATEGY: strategy,
        names.WORKLOAD: ask.workload,
        names.PRIORITY: str(job.spec.priority) if ask.mode == "TimeShared" else None,
    }


def ranked_job(job: GPUJob, *, ranking: Ranking) -> tuple[Policy, Weights]:
    """The policy and the weights of a job, by its spec and its namespace's ranking."""
    return job.spec.policy or ranking.policy, ranking.weights_with(weights_of(job))


def ranked_pod(pod: Pod, *, ranking: Ranking) -> tuple[Policy, Weights]:
    """The policy and the weights of a pod, by its annotations and its namespace's ranking. Raises `RequestError`."""
    annotations = pod.metadata.annotations
    text = annotations.get(names.POLICY)
    named = POLICIES_BY_LETTERS.get((text or "").lower()) or _one_of(_POLICIES, text=text, field="policy")
    return named or ranking.policy, ranking.weights_with(weights_in(annotations))


def guard_in(annotations: Mapping[str, str]) -> float | None:
    """The part of memory that a pod's annotations allow to promise, 0 to 1; None for the configured one.

    What Dynamic learns is in the request of a GPUJob's pods; other pods learn nothing. Raises `RequestError`.
    """
    text = annotations.get(names.MEMORY_STRATEGY)
    return None if text is None else fraction_of(text)


def workload_in(annotations: Mapping[str, str]) -> Workload | None:
    """The workload in a pod's annotations. Raises `RequestError`."""
    return _one_of(_WORKLOADS, text=annotations.get(names.WORKLOAD), field="workload")


# Each is compared with each node that fits.
MAX_WARM_NODES: Final = 16
# A Kubernetes node's name: an RFC 1123 subdomain.
_NODE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def warm_in(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The nodes in a pod's annotations that have what it loads; empty without any. Raises `RequestError`."""
    text = annotations.get(names.WARM_NODES, "")
    found = tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text.strip() else ()
    if len(found) > MAX_WARM_NODES or not all(_NODE.fullmatch(name) for name in found):
        raise RequestError(
            text, field=f"annotation {names.WARM_NODES}", problem=says.NODES_AT_MOST(most=MAX_WARM_NODES),
            example="gpu-1,gpu-2",
        )  # fmt: skip
    return found


def priority_in(annotations: Mapping[str, str]) -> int | None:
    """The weight in turns in a pod's annotations; None without one. Raises `RequestError`."""
    text = annotations.get(names.PRIORITY)
    if text is None:
        return None
    weight = read_whole(text, otherwise=-1)
    if not 0 <= weight <= MAX_PRIORITY:
        problem = says.WHOLE_FROM_TO(low=0, high=MAX_PRIORITY)
        raise RequestError(text, field="priority", problem=problem, example="20")
    return weight


def _one_of(allowed: tuple[Word, ...], *, text: str | None, field: str) -> Word | None:
    """The allowed word in `text`; None without text. Raises `RequestError` for any other word."""
    if text is None:
        return None
    for word in allowed:
        if word == text:
            return word
    raise RequestError(text, field=field, problem=says.NO_SUCH_WORD(kind=field), example=", ".join(allowed))


_WEIGHTS_EXAMPLE: Final = "fragmentation=0.6,cpu=0"
WEIGHTS_FIELD: Final = "spec.scoreWeights"
_POD_WEIGHTS: Final = f"annotation {names.SCORE_WEIGHTS}"
# Without signs, exponents, infinity and digits of other scripts.
_DECIMALS: Final = 6
_WEIGHT: Final = re.compile(rf"[0-9]{{1,3}}(\.[0-9]{{1,{_DECIMALS}}})?")


def weights_in(annotations: Mapping[str, str]) -> dict[str, float]:
    """The weights in a pod's annotations, by term; empty without any. Raises `RequestError`."""
    text = annotations.get(names.SCORE_WEIGHTS)
    return {} if text is None else parse_weights(text, field=_POD_WEIGHTS)


def weights_of(job: GPUJob) -> dict[str, float]:
    """The weights that a job chooses, by term; empty if it chooses none."""
    chosen = job.spec.score_weights
    if chosen is None:
        return {}
    # To as many digits as the annotation of the job's pods has, so that queue and extender compare the same number.
    return {term: round(weight, _DECIMALS) for term in TERMS if (weight := getattr(chosen, term)) is not None}


def check_pod(pod: Pod, *, ranking: Ranking) -> None:
    """Raise `RequestError` for a pod that chooses weights out of its namespace's bounds, or weights with policy Pack.

    A separate question from the pod's request: what is allowed may change after the pod has its place.
    """
    policy = POLICIES_BY_LETTERS.get(pod.metadata.annotations.get(names.POLICY, "").lower())
    _check_weights(weights_in(pod.metadata.annotations), packs=policy == "Pack", ranking=ranking, field=_POD_WEIGHTS)


def check_job(job: GPUJob, *, ranking: Ranking) -> None:
    """As `check_pod`, for a job."""
    _check_weights(weights_of(job), packs=job.spec.policy == "Pack", ranking=ranking, field=WEIGHTS_FIELD)


def parse_weights(text: str, *, field: str) -> dict[str, float]:
    """The weights by term of a text such as `fragmentation=0.6,cpu=0`; `field` is its name in errors.

    Raises `RequestError`.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        term, _, weight = (piece.strip() for piece in part.partition("="))
        if term not in TERMS or term in found:
            why = says.TERM_TWICE(term=term) if term in found else says.TERMS_ARE(terms=", ".join(TERMS))
            raise RequestError(text, field=field, problem=why, example=_WEIGHTS_EXAMPLE)
        if not _WEIGHT.fullmatch(weight) or float(weight) > MAX_WEIGHT:
            problem = says.WEIGHT_BEYOND(term=term, most=MAX_WEIGHT, decimals=_DECIMALS)
            raise RequestError(text, field=field, problem=problem, example=_WEIGHTS_EXAMPLE)
        found[term] = float(weight)
    return found


def text_of_weights(weights: Mapping[str, float]) -> str:
    """The text of weights by term, as `parse` reads it."""
    return ",".join(f"{term}={weight:.{_DECIMALS}f}".rstrip("0").rstrip(".") for term, weight in weights.items())


def _check_weights(chosen: Mapping[str, float], *, packs: bool, ranking: Ranking, field: str) -> None:
    if chosen and packs:
        raise RequestError(
            text_of_weights(chosen), field=field, problem=says.PACK_ALONE(),
            example="policy Balanced, or no weights",
        )  # fmt: skip
    ranking.check(chosen, field=field)


def spec_of_weights(weights: Mapping[str, float]) -> ScoreWeights | None:
    """Weights by term as `spec.scoreWeights`; None without any."""
    return ScoreWeights(**weights) if weights else None
