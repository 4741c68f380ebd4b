"""Nodes of a vendor's plugin as the API server's objects have them: who is counted, and when devices get names."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import Assignment, GPUNode
from dovetail.cluster.view import ClusterView, node_facts
from dovetail.config.settings import Settings
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.ranking import DEFAULT_RANKING, Ranking
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.model.settings import Limits
from dovetail.pods.demand import ask_of_pod
from tests.core.engine.builders import make_ask

GPU = "nvidia.com/gpu"
LABELS = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB", "nvidia.com/gpu.memory": "32768"}


def make_node(
    *, gpus: int = 4, offered: int | None = None, labels: dict[str, str] | None = None, resource: str = GPU
) -> Node:
    there = {"cpu": "8", "memory": "64Gi"}
    return msgspec.convert(
        {
            "metadata": {"name": "a", "labels": LABELS if labels is None else labels},
            "status": {
                "capacity": {**there, resource: str(gpus)},
                "allocatable": {**there, resource: str(gpus if offered is None else offered)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        Node,
    )


def make_report(given: dict[str, list[int]] | None = None, *, gpus: int = 4, model: str = "V100") -> GPUNode:
    devices = [
        {"index": index, "uuid": f"GPU-{index}", "vendor": "nvidia", "model": model, "memoryMiB": 32768}
        for index in range(gpus)
    ]
    assignments = [
        msgspec.to_builtins(Assignment(uid=uid, namespace="ml", name=uid, devices=[f"GPU-{at}" for at in indexes]))
        for uid, indexes in (given or {}).items()
    ]
    status = {"devices": devices, "assignments": assignments}
    return msgspec.convert({"metadata": {"name": "a"}, "status": status}, GPUNode)


def make_pod(uid: str = "x", *, gpus: int = 1, node: str = "a", phase: str = "Running", resource: str = GPU) -> Pod:
    container = {"name": "c", "resources": {"limits": {resource: gpus}}}
    spec = {"nodeName": node, "containers": [container]}
    metadata = {"name": uid, "namespace": "ml", "uid": uid}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, Pod)


def make_view(*, report: GPUNode | None = None, node: Node | None = None, limits: Limits | None = None) -> ClusterView:
    view = ClusterView(ledger=Ledger(limits=limits))
    view.node_changed(node or make_node())
    if report is not None:
        view.gpunode_changed(report)
    return view


def free(view: ClusterView) -> int:
    """The largest number of devices that would fit now."""
    return max((n for n in range(1, 9) if isinstance(judge(view, str(n)), Fit)), default=0)


def judge(view: ClusterView, text: str) -> Fit | Refusal:
    return check(view.ledger, ask=replace(make_ask(text), resource=GPU), node="a", key="new")


def held(view: ClusterView, uid: str = "x") -> tuple[list[str], int]:
    claim = view.ledger.claim(uid)
    assert claim is not None
    return [device.uuid for device in claim.devices], claim.unnamed


def test_a_pod_that_any_scheduler_bound_counts_without_names_until_the_report_names_its_devices() -> None:
    view = make_view(report=make_report())
    view.pod_changed(make_pod(gpus=2))
    assert (held(view), free(view)) == (([], 2), 2)
    assert view.gpunode_changed(make_report({"x": [1, 3]})) == ["x"]
    assert (held(view), free(view)) == ((["GPU-1", "GPU-3"], 0), 2)
    claim = view.ledger.claim("x")
    assert claim is not None
    assert [(device.index, device.share_milli, device.memory_mib) for device in claim.devices] == [
        (1, 1000, 32768), (3, 1000, 32768),
    ]  # fmt: skip


def test_a_report_that_came_before_the_pod_names_its_devices_as_well() -> None:
    view = make_view(report=make_report({"x": [2]}))
    view.pod_changed(make_pod())
    assert held(view) == (["GPU-2"], 0)


def test_a_report_that_says_the_same_again_changes_no_claim() -> None:
    view = make_view(report=make_report({"x": [2]}))
    view.pod_changed(make_pod())
    assert view.gpunode_changed(make_report({"x": [2]})) == []


def test_devices_that_the_report_no_longer_has_are_counted_without_names() -> None:
    view = make_view(report=make_report({"x": [2, 3]}))
    view.pod_changed(make_pod(gpus=2))
    view.gpunode_changed(make_report({"x": [2, 3]}, gpus=3))
    assert (held(view), free(view)) == ((["GPU-2"], 1), 1)


@pytest.mark.parametrize("end", ["Succeeded", "gone"])
def test_a_pod_that_ends_frees_its_devices_though_the_report_still_names_it(end: str) -> None:
    view = make_view(report=make_report({"x": [0, 1, 2, 3]}))
    view.pod_changed(make_pod(gpus=4))
    assert free(view) == 0
    if end == "gone":
        view.pod_gone(make_pod(gpus=4))
    else:
        view.pod_changed(make_pod(gpus=4, phase=end))
    assert free(view) == 4


def test_without_an_agent_labels_tell_what_the_devices_are() -> None:
    view = make_view()
    assert isinstance(judge(view, "4(V100)"), Fit)
    refused = judge(view, "1(A100)")
    assert isinstance(refused, Refusal)
    assert refused.kind == "WrongModel"
    assert {device.memory_mib for device in view.ledger.devices("a")} == {32768}


@pytest.mark.parametrize(
    ("labels", "model"),
    [({names.LABEL_MODEL: "T4"}, "T4"), ({"amd.com/gpu.product-name": "MI300X"}, "MI300X"), ({}, "")],
)
def test_a_label_of_ours_or_of_another_vendor_s_names_the_model_too(labels: dict[str, str], model: str) -> None:
    view = make_view(node=make_node(labels=labels))
    assert {device.model for device in view.ledger.devices("a")} == {model}
    assert isinstance(judge(view, "4"), Fit)


def test_a_node_that_reports_no_memory_has_that_of_the_table_and_of_the_configuration() -> None:
    unlabelled = make_node(labels={names.LABEL_MODEL: "T4"})
    assert isinstance(judge(make_view(node=unlabelled), "4(>=16G)"), Fit)
    view = make_view(node=make_node(labels={names.LABEL_MODEL: "X9"}), limits=Limits(memory_specs={"X9": 24}))
    assert {device.memory_mib for device in view.ledger.devices("a")} == {24 * 1024}
    assert isinstance(judge(view, "4(>=24G)"), Fit)
    assert isinstance(judge(view, "4(>=25G)"), Refusal)


def test_a_label_that_is_no_number_tells_nothing() -> None:
    view = make_view(node=make_node(labels={"nvidia.com/gpu.memory": "lots"}))
    assert {device.memory_mib for device in view.ledger.devices("a")} == {0}


def test_the_agent_s_word_replaces_the_labels_and_labels_serve_again_when_its_report_is_gone() -> None:
    view = make_view(report=make_report({"x": [0]}, model="A100"))
    view.pod_changed(make_pod())
    assert isinstance(judge(view, "3(A100)"), Fit)
    view.node_changed(make_node())
    assert isinstance(judge(view, "3(A100)"), Fit)
    view.gpunode_gone("a")
    assert isinstance(judge(view, "3(V100)"), Fit)
    assert (held(view), free(view)) == (([], 1), 3)


def test_a_node_whose_cards_are_all_split_by_mig_is_known_by_its_labels() -> None:
    whole = make_report(gpus=4).status
    split = [msgspec.structs.replace(device, mig_profile="1g.10gb") for device in whole.devices]
    report = msgspec.structs.replace(make_report(), status=msgspec.structs.replace(whole, devices=split))
    assert isinstance(judge(make_view(report=report), "4(V100)"), Fit)


def test_a_plugin_that_withdraws_a_device_leaves_one_less() -> None:
    view = make_view(report=make_report())
    view.node_changed(make_node(offered=3))
    assert free(view) == 3
    view.node_changed(make_node(offered=0))
    assert free(view) == 0
    view.node_changed(make_node())
    assert free(view) == 4


def test_a_managed_node_on_which_a_plugin_advertises_takes_no_pods_and_says_why() -> None:
    view = make_view(node=make_node(labels={names.LABEL_MANAGED: "true"}), report=make_report())
    found = check(view.ledger, ask=make_ask("1"), node="a", key="new")
    assert isinstance(found, Refusal)
    expected = "the node is labelled dovetail.dev/managed, but a plugin advertises nvidia.com/gpu there too"
    assert found.text == expected


MIG = "nvidia.com/mig-1g.10gb"


def test_a_managed_node_on_which_a_plugin_advertises_mig_devices_alone_takes_no_pods_either() -> None:
    view = make_view(node=make_node(resource=MIG, labels={names.LABEL_MANAGED: "true"}), report=make_report())
    found = check(view.ledger, ask=make_ask("1"), node="a", key="new")
    assert isinstance(found, Refusal)
    assert found.text == f"the node is labelled dovetail.dev/managed, but a plugin advertises {MIG} there too"


@pytest.mark.parametrize("labels", [{}, {names.LABEL_MANAGED: "true"}], ids=["not managed", "managed, none left"])
def test_mig_devices_close_no_node_that_is_not_managed_or_has_none_any_more(labels: dict[str, str]) -> None:
    facts = node_facts(make_node(gpus=0 if labels else 4, resource=MIG, labels=labels))
    assert (facts.resource, facts.obstacle) == ("", "")


def test_a_plugin_s_zero_does_not_take_a_managed_node_from_us() -> None:
    facts = node_facts(make_node(gpus=0, labels={names.LABEL_MANAGED: "true"}))
    assert (facts.managed, facts.resource, facts.obstacle) == (True, "", "")


def test_a_configured_resource_makes_a_vendor_s_node() -> None:
    vendors = Settings(gpu_resource={"xe": "gpu.intel.com/xe"}).vendors
    view = ClusterView(ledger=Ledger(), vendors=vendors)
    view.node_changed(make_node(resource="gpu.intel.com/xe", labels={}))
    pod = make_pod(gpus=3, resource="gpu.intel.com/xe", node="")
    ask = ask_of_pod(pod, ranking=Ranking(policy="Pack"), vendors=vendors)
    assert ask is not None
    assert isinstance(check(view.ledger, ask=ask, node="a", key="y"), Fit)
    assert {device.vendor for device in view.ledger.devices("a")} == {"intel"}


class VendorMachine(RuleBasedStateMachine):
    """Pods come, are named and go in any order, with an agent and without: nothing is promised beyond the count."""

    def __init__(self) -> None:
        super().__init__()
        self.view = make_view()
        self.pods: dict[str, int] = {}
        self.given: dict[str, list[int]] = {}
        self.offered = 4
        self.number = 0

    @initialize(reported=st.booleans())
    def begin(self, reported: bool) -> None:
        if reported:
            self.report()

    @rule(count=st.integers(1, 4), seen=st.booleans())
    def ask(self, count: int, seen: bool) -> None:
        self.number += 1
        uid = f"pod-{self.number}"
        pod = make_pod(uid, gpus=count, node="")
        ask = ask_of_pod(pod, ranking=DEFAULT_RANKING)
        assert ask is not None
        found = check(self.view.ledger, ask=ask, node="a", key=uid)
        assert isinstance(found, Fit) == (count <= self.left)
        if isinstance(found, Fit):
            self.view.ledger.commit(found.claim)
            self.pods[uid] = count
            if seen:
                self.see(uid)

    @rule(data=st.data())
    def show(self, data: st.DataObject) -> None:
        if self.pods:
            self.see(data.draw(st.sampled_from(sorted(self.pods))))

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.pods:
            uid = data.draw(st.sampled_from(sorted(self.pods)))
            self.view.pod_gone(make_pod(uid, gpus=self.pods.pop(uid)))

    @rule()
    def report(self) -> None:
        self.given = {uid: indexes for uid, indexes in self.given.items() if uid in self.pods}
        free = [index for index in range(4) if all(index not in taken for taken in self.given.values())]
        for uid, count in self.pods.items():
            if uid not in self.given and count <= len(free):
                self.given[uid] = [free.pop() for _ in range(count)]
        self.view.gpunode_changed(make_report(self.given))

    @rule()
    def lose_agent(self) -> None:
        self.view.gpunode_gone("a")

    @rule(offered=st.integers(0, 4))
    def plugin_changes(self, offered: int) -> None:
        self.offered = offered
        self.view.node_changed(make_node(offered=offered))

    def see(self, uid: str) -> None:
        self.view.pod_changed(make_pod(uid, gpus=self.pods[uid]))

    @property
    def left(self) -> int:
        return self.offered - sum(self.pods.values())

    @invariant()
    def counts_are_kubelet_s(self) -> None:
        assert free(self.view) == max(0, self.left)

    @invariant()
    def no_device_has_two_names(self) -> None:
        named = [device.uuid for claim in self.view.ledger.claims() for device in claim.devices]
        assert len(named) == len(set(named))

    @invariant()
    def every_pod_keeps_its_count(self) -> None:
        for uid, count in self.pods.items():
            devices, unnamed = held(self.view, uid)
            assert len(devices) + unnamed == count


TestVendorMachine: Any = VendorMachine.TestCase
TestVendorMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
