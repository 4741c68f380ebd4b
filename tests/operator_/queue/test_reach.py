"""A job that exceeds what it may use is told of which nodes that is: it may well be that others would do."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Taint
from dovetail.queue.verdicts import Waits
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, make_job, make_state


@pytest.fixture
def state() -> State:
    """Four GPUs for everybody, and four on a node with a taint."""
    state = make_state(a=4, b=4)
    known = state.store.view.nodes["b"]
    spec = msgspec.structs.replace(known.spec, taints=[Taint(key="team", value="vision", effect="NoSchedule")])
    state.store.view.node_changed(msgspec.structs.replace(known, spec=spec))
    return state


def told(state: State, **pod: Any) -> str:
    """What a gang of two that wants four GPUs each is told whose pods' spec says that."""
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}], **pod}}
    state.store.job_changed(make_job(status={"number": 1}, gpu=4, workers=2, template=template))
    (verdict,) = decide(state, cycle=survey(state, now=NOW))
    assert isinstance(verdict, Waits)
    assert verdict.reason == "ExceedsCapacity"
    return verdict.message


def test_taints_that_it_does_not_tolerate_are_named_as_the_cause(state: State) -> None:
    assert told(state).endswith("could ever run together (of the nodes whose taints it tolerates)")


def test_taints_that_it_tolerates_are_not(state: State) -> None:
    tolerations = [{"key": "team", "operator": "Exists"}]
    message = told(state, tolerations=tolerations, nodeSelector={"zone": "x"})
    assert message.endswith("(of the nodes that its nodeSelector or affinity allows)")


def test_a_node_that_it_does_not_choose_anyway_is_not_missed_for_its_taints(state: State) -> None:
    assert told(state, nodeSelector={"zone": "x"}).endswith("(of the nodes that its nodeSelector or affinity allows)")


def test_both_are_told_where_both_keep_it_off(state: State) -> None:
    label = {"key": "zone", "operator": "DoesNotExist"}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [label]}]}
    }
    message = told(state, affinity={"nodeAffinity": required})
    assert message.endswith("(of the nodes that its nodeSelector or affinity allows and whose taints it tolerates)")


def test_a_node_without_devices_is_not_missed_for_its_taints() -> None:
    state = make_state(a=4, control=0)
    known = state.store.view.nodes["control"]
    spec = msgspec.structs.replace(known.spec, taints=[Taint(key="control-plane", effect="NoSchedule")])
    state.store.view.node_changed(msgspec.structs.replace(known, spec=spec))
    assert told(state).endswith("could ever run together")
