"""The operator plans by price: nodes that best fit would break are kept for what the mix needs."""

import pytest

from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.queue.verdicts import Admitted
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.state.state import State, build_state
from tests.operator_.builders import NOW, make_child, make_job, make_pod, make_state


def busy(state: State, *, node: str, devices: int) -> None:
    """A running job takes so many devices of the node."""
    name = f"runs-{node}"
    state.store.job_changed(make_job(name, status={"number": 1}, policy="Pack"))
    state.store.child_changed(make_child(state.store.jobs[f"team/{name}"], uid=f"child-{name}"))
    meta = {"labels": {"dovetail.dev/job": name}, "uid": f"pod-{name}"}
    state.store.pod_event("ADDED", make_pod(node=node, devices=devices, owner=f"child-{name}", meta=meta))


def planned(state: State) -> list[str]:
    """The nodes of the one waiting job, with one GPU for each of its workers."""
    state.store.job_changed(make_job("new", gpu="1", policy="Pack", status={"number": 2}))
    (verdict,) = decide(state, cycle=survey(state, now=NOW))
    assert isinstance(verdict, Admitted)
    return [claim.node for claim in verdict.claims]


def two_nodes(*, fragmentation: FragmentationPolicy) -> State:
    """Jobs of two GPUs are usual; node a has three free GPUs, node b one pair."""
    state = make_state(a=4, b=4, fragmentation=fragmentation)
    for number in range(32):
        job = make_job(f"usual-{number}", gpu="2", status={"number": number + 1})
        state.count_submitted(job)
    while state.mix.term.work():
        pass
    busy(state, node="a", devices=1)
    busy(state, node="b", devices=2)
    return state


@pytest.mark.parametrize(("fragmentation", "node"), [("ph", "a"), ("fgd", "a"), ("bestfit", "b")])
def test_a_plan_uses_the_configured_term(fragmentation: FragmentationPolicy, node: str) -> None:
    assert planned(two_nodes(fragmentation=fragmentation)) == [node]


def test_without_a_configuration_plans_are_priced() -> None:
    assert build_state(make_state(a=1).store.view).mix.term.live == "ph"
