"""Weights that a pod or a job chooses: what keeps it from its place, and what explain foretells of them."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from dovetail import names
from dovetail.api.gpujob import Policy
from dovetail.cluster.view import ClusterView
from dovetail.config.settings import Settings
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.ranking import TERMS, Range, Ranking, Rankings
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.gpu.request import RequestError
from dovetail.pods.options.annotations import text_of_weights
from dovetail_extender.decide.filter_score import Asks
from dovetail_operator.state.state import build_state
from tests.extender.decide.test_demand import make_pod
from tests.extender.decide.test_explained import Cluster, arrivals, foretold_as_chosen
from tests.operator_.builders import NOW, make_job

weights = st.fixed_dictionaries({term: st.sampled_from([0, 0.25, 1]) for term in TERMS}).filter(
    lambda drawn: any(drawn.values())
)


@settings(max_examples=25, deadline=None)
@given(arrivals, weights, st.lists(weights, min_size=24, max_size=24), st.sampled_from(["Balanced", "Spread"]))
def test_what_is_foretold_under_weights_of_namespace_and_pod_is_what_the_extender_chooses(
    asked: list[tuple[int, int]],
    of_namespace: dict[str, float],
    of_pods: list[dict[str, float]],
    policy: Policy,
) -> None:
    bounds = {term: {"default": weight} for term, weight in of_namespace.items()}
    configured = Settings.model_validate({"policy": policy, "namespace_score_weights": {"default": bounds}})
    # Every second pod chooses its own weights; the others have their namespace's.
    said = [{names.SCORE_WEIGHTS: text_of_weights(each)} if number % 2 else {} for number, each in enumerate(of_pods)]
    foretold_as_chosen(Cluster(configured), asked, said=said)


def test_weights_out_of_the_namespace_s_bounds_are_an_error_until_the_bounds_change() -> None:
    asks = Asks(rankings=Rankings(), vendors=DEFAULT_VENDORS)
    pod = make_pod(said={names.SCORE_WEIGHTS: "cpu=2"})
    asks.configure(rankings=Rankings(by_namespace={"a": Ranking(allowed={"cpu": Range(high=1)}, namespace="a")}))
    with pytest.raises(RequestError, match=r'score-weights.cpu "2": must be from 0 to 1 in namespace a;'):
        asks.request(pod)
    asks.configure(rankings=Rankings())
    asked = asks.request(pod)
    assert asked is not None
    assert asked.weights.cpu == 2


def test_weights_out_of_bounds_keep_a_job_from_starting_and_leave_its_request_known() -> None:
    vision = Ranking(allowed={"cpu": Range(low=0, high=1)}, namespace="team")
    state = build_state(ClusterView(ledger=Ledger()), rankings=Rankings(by_namespace={"team": vision}))
    job = make_job(scoreWeights={"cpu": 2})
    state.store.job_changed(job)
    reading = state.requests.read(job)
    assert reading.obstacle is not None
    assert reading.obstacle.message.startswith('spec.scoreWeights.cpu "2": must be from 0 to 1 in namespace team')
    assert state.obstacle_of(job, now=NOW) == reading.obstacle
    # A job that runs when the bounds change runs on.
    assert {ask.weights.cpu for ask in reading.asks} == {1}
    state.requests.configure(rankings=Rankings(), levels=())
    assert state.obstacle_of(job, now=NOW) is None
    assert state.requests.read(job).asks[0].weights.cpu == 2
