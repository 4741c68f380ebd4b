"""The weights of the score's terms that a pod or a job chooses: as text, in annotations and in a GPUJob. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import POLICIES_BY_LETTERS, GPUJob
from dovetail.api.gpujob.spec import ScoreWeights
from dovetail.engine.model.ranking import MAX_WEIGHT, TERMS, Ranking
from dovetail.gpu.request import RequestError

EXAMPLE: Final = "fragmentation=0.6,cpu=0"
SPEC_FIELD: Final = "spec.scoreWeights"
POD_FIELD: Final = f"annotation {names.SCORE_WEIGHTS}"
# Without signs, exponents, infinity and digits of other scripts.
_DECIMALS: Final = 6
_WEIGHT: Final = re.compile(rf"[0-9]{{1,3}}(\.[0-9]{{1,{_DECIMALS}}})?")


def weights_in(annotations: Mapping[str, str]) -> dict[str, float]:
    """The weights in a pod's annotations, by term; empty without any. Raises `RequestError`."""
    text = annotations.get(names.SCORE_WEIGHTS)
    return {} if text is None else parse(text, field=POD_FIELD)


def weights_of(job: GPUJob) -> dict[str, float]:
    """The weights that a job chooses, by term; empty if it chooses none."""
    chosen = job.spec.score_weights
    if chosen is None:
        return {}
    # To as many digits as the annotation of the job's pods has, so that queue and extender compare the same number.
    return {term: round(weight, _DECIMALS) for term in TERMS if (weight := getattr(chosen, term)) is not None}


def check_pod(pod: Pod, *, ranking: Ranking) -> None:
    """Raise `RequestError` for a pod that chooses weights out of its namespace's bounds, or weights with policy Pack.

    A separate question from the pod's request: bounds may change after the pod has its place.
    """
    policy = POLICIES_BY_LETTERS.get(pod.metadata.annotations.get(names.POLICY, "").lower())
    _check(weights_in(pod.metadata.annotations), packs=policy == "Pack", ranking=ranking, field=POD_FIELD)


def check_job(job: GPUJob, *, ranking: Ranking) -> None:
    """As `check_pod`, for a job."""
    _check(weights_of(job), packs=job.spec.policy == "Pack", ranking=ranking, field=SPEC_FIELD)


def parse(text: str, *, field: str) -> dict[str, float]:
    """The weights by term of a text such as `fragmentation=0.6,cpu=0`; `field` is its name in errors.

    Raises `RequestError`.
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        term, _, weight = (piece.strip() for piece in part.partition("="))
        if term not in TERMS or term in found:
            why = f"has {term} twice" if term in found else f"the terms are {', '.join(TERMS)}"
            raise RequestError(text, field=field, problem=why, example=EXAMPLE)
        if not _WEIGHT.fullmatch(weight) or float(weight) > MAX_WEIGHT:
            problem = f"{term} must be a number from 0 to {MAX_WEIGHT:g}, with at most {_DECIMALS} decimals"
            raise RequestError(text, field=field, problem=problem, example=EXAMPLE)
        found[term] = float(weight)
    return found


def text_of(weights: Mapping[str, float]) -> str:
    """The text of weights by term, as `parse` reads it."""
    return ",".join(f"{term}={weight:.{_DECIMALS}f}".rstrip("0").rstrip(".") for term, weight in weights.items())


def _check(chosen: Mapping[str, float], *, packs: bool, ranking: Ranking, field: str) -> None:
    if chosen and packs:
        raise RequestError(
            text_of(chosen), field=field, problem="policy Pack uses the fragmentation term alone",
            example="policy Balanced, or no weights",
        )  # fmt: skip
    ranking.check(chosen, field=field)


def spec_of(weights: Mapping[str, float]) -> ScoreWeights | None:
    """Weights by term as `spec.scoreWeights`; None without any."""
    return ScoreWeights(**weights) if weights else None
