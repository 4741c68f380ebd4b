"""What is kept between choices changes none of them: FGD and PH against themselves with nothing kept."""

import pytest
from hypothesis import given, settings

from dovetail.fragmentation import policy as policy_module
from dovetail.fragmentation.fgd import fgd
from dovetail.fragmentation.priced_headroom import PH
from dovetail.fragmentation.prices import PHSettings
from tests.core.fragmentation import strategies
from tests.core.fragmentation.builders import fits

# Prices at every placement: else a policy made a moment ago has fresher ones.
MAKES = {"fgd": fgd, "ph": lambda columns, *, mix: PH(columns, mix=mix, settings=PHSettings(refresh_placements=1))}


@pytest.mark.parametrize("name", MAKES)
@settings(max_examples=60)
@given(columns=strategies.clusters(), expected=strategies.mixes(), history=strategies.histories)
def test_choices_are_those_of_a_policy_that_keeps_nothing(name, columns, expected, history):
    policy, running = MAKES[name](columns, mix=expected), []
    for step in history:
        choice = policy.choose(step.shape)
        assert choice == MAKES[name](columns.copy(), mix=expected).choose(step.shape)
        strategies.apply(columns, step, running=running)


@pytest.mark.parametrize("name", MAKES)
@settings(max_examples=60)
@given(columns=strategies.clusters(), expected=strategies.mixes(), history=strategies.histories)
def test_a_pod_is_placed_where_it_fits_and_refused_only_where_nothing_does(name, columns, expected, history):
    policy = MAKES[name](columns, mix=expected)
    for step in history:
        choice = policy.choose(step.shape)
        able = [node for node in range(len(columns)) if fits(columns, step.shape, node=node)]
        assert (choice is None) == (not able)
        if choice is not None:
            assert choice.node in able
            assert len(set(choice.devices)) == step.shape.gpus
            columns.place(choice)
            assert columns.left.min() >= 0
            assert columns.spare.min() >= 0


@pytest.mark.parametrize("name", MAKES)
@settings(max_examples=30)
@given(columns=strategies.clusters(), expected=strategies.mixes(), history=strategies.histories)
def test_equal_nodes_scored_once_change_no_choice(name, columns, expected, history):
    running = []
    for step in history:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(policy_module, "MANY_ROWS", 0)
            together = MAKES[name](columns.copy(), mix=expected).choose(step.shape)
        assert together == MAKES[name](columns.copy(), mix=expected).choose(step.shape)
        strategies.apply(columns, step, running=running)
