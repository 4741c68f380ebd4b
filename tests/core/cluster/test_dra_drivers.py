"""DRA drivers on managed nodes: which nodes their slices close, and for how long after the slices have gone."""

from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail import names
from dovetail.api.builtin import Node, Pod, ResourceSlice
from dovetail.cluster.dra_drivers import ABSENT_SECONDS, NodeDrivers, drivers_now
from dovetail.cluster.view import ClusterView
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from tests.clock import Clock
from tests.core.builders import make_gpunode, make_node
from tests.core.engine.builders import make_ask

NVIDIA, AMD, CHANNELS = "gpu.nvidia.com", "gpu.amd.com", "compute-domain.nvidia.com"


def make_slice(name: str = "s", *, driver: str = NVIDIA, **spec: Any) -> ResourceSlice:
    where = spec or {"nodeName": "a"}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"driver": driver, **where}}, ResourceSlice)


def selecting(key: str, value: str) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}]}


def make_claimant(uid: str = "x", *, phase: str = "Running") -> Pod:
    spec = {"nodeName": "a", "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
    return msgspec.convert({"metadata": {"name": uid, "uid": uid}, "spec": spec, "status": {"phase": phase}}, Pod)


class Rig:
    """The managed nodes a and b with two GPUs each."""

    def __init__(self, *, started: bool = True) -> None:
        self.clock = Clock()
        self.view = ClusterView(ledger=Ledger(), drivers=NodeDrivers(clock=self.clock))
        for name in ("a", "b"):
            self.view.node_changed(make_node(name))
            self.view.gpunode_changed(make_gpunode(name))
        if started:
            self.wait(ABSENT_SECONDS)

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.view.drivers_pass()

    @property
    def open(self) -> list[str]:
        found = {name: check(self.view.ledger, ask=make_ask("1"), node=name, key="new") for name in ("a", "b")}
        return [name for name, fit in found.items() if isinstance(fit, Fit)]

    def reason(self, node: str = "a") -> str:
        found = check(self.view.ledger, ask=make_ask("1"), node=node, key="new")
        return "" if isinstance(found, Fit) else f"{found.kind}: {found.message}"


def test_a_slice_closes_its_node_and_says_whose_it_is() -> None:
    rig = Rig()
    rig.view.slice_changed(make_slice())
    assert rig.open == ["b"]
    assert rig.reason() == "Unhealthy: a: both Dovetail and the DRA driver gpu.nvidia.com hand out the node's GPUs"


def test_a_slice_is_a_cause_of_a_node_that_takes_no_pods_anyway() -> None:
    rig = Rig()
    rig.view.node_changed(make_node("a", ready="False"))
    rig.view.slice_changed(make_slice())
    facts = rig.view.ledger.facts("a")
    assert facts is not None
    assert [each.cause for each in facts.unavailable] == ["NodeNotReady", "ServedTwice"]


def test_a_job_that_waits_for_such_nodes_alone_is_told_why() -> None:
    rig = Rig()
    rig.view.slice_changed(make_slice(allNodes=True))
    found = place(rig.view.ledger, ask=make_ask("1"), workers=1, key="job", nodes=["a", "b"])
    assert isinstance(found, Shortage)
    assert found.reason == "NodeUnhealthy"
    assert found.message == (
        "Need 1 GPU, only 0 available: node a: both Dovetail and the DRA driver gpu.nvidia.com hand out the node's "
        "GPUs, and 1 more"
    )


def test_a_node_that_is_not_managed_or_comes_later_is_judged_by_the_slices_that_are_there() -> None:
    rig = Rig()
    rig.view.slice_changed(make_slice(nodeName="c"))
    rig.view.node_changed(make_node("c"))
    rig.view.gpunode_changed(make_gpunode("c"))
    assert "both Dovetail" in rig.reason("c")
    rig.view.node_changed(make_node("c", metadata={"name": "c", "labels": {}}))
    assert rig.view.conflict_of("c") == ""


@pytest.mark.parametrize(
    ("spec", "closed"),
    [
        ({"nodeName": "b"}, ["b"]),
        ({"allNodes": True}, ["a", "b"]),
        ({"nodeSelector": selecting(names.LABEL_MANAGED, "true")}, ["a", "b"]),
        ({"nodeSelector": selecting("zone", "1")}, []),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, []),
        (
            {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}},
            ["a"],
        ),
        ({"perDeviceNodeSelection": True, "devices": [{"name": "0", "nodeName": "a"}, {"name": "1"}]}, ["a"]),
        ({"perDeviceNodeSelection": True, "devices": [{"name": "0", "basic": {"nodeName": "b"}}]}, ["b"]),
        ({"perDeviceNodeSelection": True, "devices": None}, []),
        ({"nodeName": "a", "devices": None, "nodeSelector": None, "allNodes": None}, ["a"]),
        # As without perDeviceNodeSelection only the slice itself says where its devices are.
        ({"nodeName": "a", "devices": [{"name": "0", "nodeName": "b"}]}, ["a"]),
    ],
)  # fmt: skip
def test_a_slice_closes_the_nodes_from_which_its_devices_can_be_used(spec: dict[str, Any], closed: list[str]) -> None:
    rig = Rig()
    rig.view.slice_changed(make_slice(**spec))
    assert rig.open == [name for name in ("a", "b") if name not in closed]
    rig.view.slice_gone(make_slice(**spec))
    rig.wait(ABSENT_SECONDS)
    assert rig.open == ["a", "b"]


def test_a_node_opens_only_when_its_slices_have_been_absent_for_a_minute() -> None:
    rig = Rig()
    rig.view.slice_changed(make_slice())
    rig.view.slice_gone(make_slice())
    rig.wait(ABSENT_SECONDS - 1)
    assert rig.open == ["b"]
    rig.wait(1)
    assert rig.open == ["a", "b"]


def test_while_kubelet_restarts_again_and_again_the_node_never_opens() -> None:
    rig = Rig()
    for round_ in range(5):
        rig.view.slice_changed(make_slice(f"s{round_}"))
        rig.wait(ABSENT_SECONDS * 2)
        assert rig.open == ["b"]
        rig.view.slice_gone(make_slice(f"s{round_}"))
        rig.wait(ABSENT_SECONDS - 1)
        assert rig.open == ["b"]


def test_the_last_of_two_slices_and_the_last_of_two_drivers_decide() -> None:
    rig = Rig()
    for name, driver in (("1", NVIDIA), ("2", NVIDIA), ("3", AMD)):
        rig.view.slice_changed(make_slice(name, driver=driver))
    assert "gpu.amd.com and gpu.nvidia.com" in rig.reason()
    rig.view.slice_gone(make_slice("1"))
    rig.view.slice_gone(make_slice("3", driver=AMD))
    rig.wait(ABSENT_SECONDS)
    assert "the DRA driver gpu.nvidia.com hand" in rig.reason()
    rig.view.slice_gone(make_slice("2"))
    rig.wait(ABSENT_SECONDS)
    assert rig.open == ["a", "b"]


def test_right_after_a_start_a_node_whose_pods_hold_claims_is_closed_for_that_minute() -> None:
    rig = Rig(started=False)
    rig.view.pod_changed(make_claimant())
    assert "pods there hold resource claims" in rig.reason()
    rig.wait(ABSENT_SECONDS)
    assert rig.open == ["a", "b"]
    rig.view.pod_changed(make_claimant("y"))
    assert rig.open == ["a", "b"]


@pytest.mark.parametrize("end", [lambda view: view.pod_gone(make_claimant()),
                                 lambda view: view.pod_changed(make_claimant(phase="Succeeded"))])  # fmt: skip
def test_it_opens_sooner_when_these_pods_have_ended(end: Any) -> None:
    rig = Rig(started=False)
    rig.view.pod_changed(make_claimant())
    end(rig.view)
    assert rig.open == ["a", "b"]


@pytest.mark.parametrize("expression", [{"operator": "In"}, {"key": 1, "operator": "In"}, {"key": "a"}, ["a"]])
def test_a_selector_that_no_api_server_takes_never_reaches_the_nodes(expression: Any) -> None:
    """Each event of each node judges the wide slices: one that fails there would keep every node from being seen."""
    with pytest.raises(msgspec.ValidationError):
        make_slice(nodeSelector={"nodeSelectorTerms": [{"matchExpressions": [expression]}]})


@pytest.mark.parametrize("terms", [None, [], [{}], [{"matchExpressions": None, "matchFields": []}]])
def test_a_selector_without_expressions_covers_no_node(terms: Any) -> None:
    rig = Rig()
    rig.view.slice_changed(make_slice(nodeSelector={"nodeSelectorTerms": terms}))
    assert rig.open == ["a", "b"]


def test_channels_between_nodes_are_no_gpu_driver_s() -> None:
    assert CHANNELS not in names.GPU_DRIVERS


def test_a_slice_keeps_no_devices_in_memory() -> None:
    found = make_slice(nodeName="a", devices=[{"name": str(at), "attributes": {}} for at in range(128)])
    assert found.spec.devices is None


def test_drivers_at_one_moment_are_those_of_the_slices() -> None:
    drivers = drivers_now([make_slice(), make_slice("t", driver=AMD, nodeName="b")])
    nodes = [msgspec.convert({"metadata": {"name": name}}, Node) for name in "abc"]
    assert [drivers.serving(node, has_claims=True) for node in nodes] == [(NVIDIA,), (AMD,), ()]


class Machine(RuleBasedStateMachine):
    """Compared with a model that remembers when each node was last covered."""

    @initialize()
    def start(self) -> None:
        self.rig = Rig()
        self.slices: dict[str, ResourceSlice] = {}
        self.covered_at: dict[str, float] = {}

    @rule(name=st.sampled_from("xyz"), node=st.sampled_from("ab"), driver=st.sampled_from((NVIDIA, AMD)))
    def put(self, name: str, node: str, driver: str) -> None:
        self._note()
        self.slices[name] = make_slice(name, driver=driver, nodeName=node)
        self.rig.view.slice_changed(self.slices[name])

    @rule(name=st.sampled_from("xyz"))
    def delete(self, name: str) -> None:
        if name in self.slices:
            self._note()
            self.rig.view.slice_gone(self.slices.pop(name))

    @rule(seconds=st.sampled_from((1.0, 29.0, 30.0, 60.0)))
    def wait(self, seconds: float) -> None:
        self._note()
        self.rig.wait(seconds)

    def _note(self) -> None:
        for each in self.slices.values():
            assert each.spec.node_name is not None
            self.covered_at[each.spec.node_name] = self.rig.clock.now

    @invariant()
    def the_same_nodes_are_open(self) -> None:
        covered = {each.spec.node_name for each in self.slices.values()}
        now, at = self.rig.clock.now, self.covered_at
        closed = {node for node in "ab" if node in covered or (node in at and now - at[node] < ABSENT_SECONDS)}
        assert set(self.rig.open) == {"a", "b"} - closed


TestMachine = Machine.TestCase
