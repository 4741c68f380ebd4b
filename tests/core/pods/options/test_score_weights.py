"""The weights that pods and jobs choose: how they are written, and what a namespace allows."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import names
from dovetail.engine.model.ranking import DEFAULT_RANKING, TERMS, Range, Ranking, Rankings
from dovetail.engine.model.settings import DEFAULT_WEIGHTS, Weights
from dovetail.gpu.request import RequestError
from dovetail.pods.demand import ask_of_job, ask_of_pod
from dovetail.pods.options.annotations import (
    check_job,
    check_pod,
    parse_weights,
    spec_of_weights,
    text_of_weights,
    weights_in,
    weights_of,
)
from tests.core.builders import make_job, make_pod

VISION = Ranking(
    weights=Weights(utilization=0, memory=0, cpu=0, fragmentation=0.5),
    allowed={"fragmentation": Range(low=0.3, high=0.6), "cpu": Range(low=0, high=0)},
    namespace="vision",
)


def chosen_by(text: str, **annotations: str) -> Any:
    return make_pod({names.GPU_MILLI: "500"}, annotations={names.SCORE_WEIGHTS: text, **annotations})


def test_a_pod_and_a_job_choose_the_same_weights() -> None:
    pod, job = (
        chosen_by("fragmentation=0.6, cpu=0"),
        make_job(gpu="0.5", scoreWeights={"fragmentation": 0.6, "cpu": 0}),
    )
    expected = replace(DEFAULT_WEIGHTS, fragmentation=0.6, cpu=0)
    of_pod = ask_of_pod(pod, ranking=DEFAULT_RANKING)
    assert of_pod is not None
    assert of_pod.weights == ask_of_job(job, ranking=DEFAULT_RANKING).weights == expected


def test_without_a_choice_the_namespace_decides() -> None:
    pod = make_pod({names.GPU_MILLI: "500"})
    assert getattr(ask_of_pod(pod, ranking=VISION), "weights", None) == VISION.weights
    assert ask_of_job(make_job(gpu=1), ranking=VISION).weights == VISION.weights
    check_pod(pod, ranking=VISION)
    check_job(make_job(gpu=1), ranking=VISION)


def test_a_ranking_belongs_to_its_namespace() -> None:
    rankings = Rankings(by_namespace={"vision": VISION})
    assert rankings.of("vision") == VISION
    assert rankings.of("speech") == DEFAULT_RANKING


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("fragmentation=0.7", r'\.fragmentation "0\.7": must be from 0\.3 to 0\.6 in namespace vision; write .* 0\.6$'),
        ("fragmentation=0.2,memory=1", r'\.fragmentation "0\.2": must be from 0\.3 to 0\.6 in namespace vision'),
        ("cpu=0.1", r'\.cpu "0\.1": must be 0 in namespace vision'),
    ],
)
def test_weights_out_of_bounds_are_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=f"^annotation {names.SCORE_WEIGHTS}{sentence}"):
        check_pod(chosen_by(text), ranking=VISION)
    job = make_job(gpu=1, scoreWeights=parse_weights(text, field=""))
    with pytest.raises(RequestError, match=f"^spec.scoreWeights{sentence}"):
        check_job(job, ranking=VISION)
    # What runs on keeps a request, with weights that its namespace allows.
    weights = ask_of_job(job, ranking=VISION).weights
    assert 0.3 <= weights.fragmentation <= 0.6
    assert weights.cpu == 0


@pytest.mark.parametrize("weight", ["0.3", "0.45", "0.6"])
def test_the_ends_of_a_range_are_allowed(weight: str) -> None:
    check_pod(chosen_by(f"fragmentation={weight}"), ranking=VISION)


def test_one_weight_must_stay_above_0() -> None:
    nothing = Ranking(weights=Weights(utilization=0, memory=0, cpu=0, fragmentation=0.5))
    with pytest.raises(RequestError, match=r"^spec.scoreWeights .*all weights are 0; one must be above 0"):
        check_job(make_job(gpu=1, scoreWeights={"fragmentation": 0}), ranking=nothing)


def test_weights_with_policy_pack_are_refused() -> None:
    with pytest.raises(RequestError, match="policy Pack uses the fragmentation term alone"):
        check_pod(chosen_by("cpu=1", **{names.POLICY: "Pack"}), ranking=DEFAULT_RANKING)
    with pytest.raises(RequestError, match="policy Pack uses the fragmentation term alone"):
        check_job(make_job(gpu=1, policy="Pack", scoreWeights={"cpu": 1}), ranking=DEFAULT_RANKING)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "the terms are utilization, memory, cpu, fragmentation"),
        ("gpu=1", "the terms are utilization, memory, cpu, fragmentation"),
        ("cpu=1,cpu=2", "has cpu twice"),
        ("cpu", "cpu must be a number from 0 to 100"),
        ("cpu=101", "cpu must be a number from 0 to 100"),
        ("cpu=-1", "cpu must be a number from 0 to 100"),
        ("cpu=nan", "cpu must be a number from 0 to 100"),
        ("cpu=inf", "cpu must be a number from 0 to 100"),
        ("cpu=1e2", "cpu must be a number from 0 to 100"),
        ("cpu=1_0", "cpu must be a number from 0 to 100"),
        ("cpu=\u0661", "cpu must be a number from 0 to 100"),
        ("cpu=0.1234567", "with at most 6 decimals"),
    ],
)
def test_what_is_no_weight_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        ask_of_pod(chosen_by(text), ranking=DEFAULT_RANKING)


@given(st.dictionaries(st.sampled_from(TERMS), st.integers(0, 100_000_000).map(lambda n: n / 1_000_000), min_size=1))
def test_a_job_s_pods_choose_what_the_job_chooses(weights: dict[str, float]) -> None:
    job = make_job(gpu=1)
    chosen = weights_of(
        type(job)(metadata=job.metadata, spec=type(job.spec)(gpu=1, score_weights=spec_of_weights(weights)))
    )
    assert chosen == weights
    assert weights_in({names.SCORE_WEIGHTS: text_of_weights(chosen)}) == chosen
