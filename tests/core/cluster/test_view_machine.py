"""The view over time beside one that is built from the objects: nodes, devices, instances and pods, in any order.

After each change every column and claim has to be the same, and every cached fit. What a fit promises is counted again.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.dra_drivers import NodeDrivers
from dovetail.cluster.view import ClusterView
from dovetail.engine.filter.fit import Fit, screen
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu import mig
from dovetail.gpu.request import GPURequest
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from tests.core.engine.builders import make_ask
from tests.world.tables import content_of, tables

# When a new view sees the pods: before the other objects, after them one by one, or as a list.
Ways = Literal["first", "last", "listed"]
WAYS: Final[tuple[Ways, ...]] = get_args(Ways)
GPU: Final = "nvidia.com/gpu"
SMALL, LARGE = "1g.10gb", "3g.40gb"
NODES: Final = ("managed", "mixed", "plugin", "split")
# What each node has, as model, memory in MiB and profile; the second form after somebody has changed it.
DEVICES: Final[dict[str, tuple[tuple[tuple[str, int, str], ...], ...]]] = {
    "managed": ((("V100", 32768, ""),) * 2, (("V100", 16384, ""), ("V100", 32768, ""), ("V100", 32768, ""))),
    "mixed": ((("A100", 81920, ""), ("A100", 10240, SMALL), ("A100", 10240, SMALL)), (("A100", 40960, LARGE),)),
    "plugin": ((("A100", 40960, ""), ("A100", 81920, "")), (("A100", 81920, ""),) * 2),
    "split": ((("A100", 10240, SMALL),) * 2, (("A100", 40960, LARGE), ("A100", 81920, ""))),
}
ASKS: Final = (
    make_ask("1"),
    make_ask("2"),
    make_ask("0.5"),
    make_ask("20G,0.25"),
    make_ask("1(A100)"),
    make_ask(SMALL),
    make_ask(f"2x{SMALL}"),
    make_ask(LARGE),
    Ask(gpu=GPURequest(count=1, share_milli=1000), resource=GPU),
    Ask(gpu=GPURequest(count=2, share_milli=1000), resource=GPU),
    Ask(gpu=GPURequest(count=1, share_milli=1000, memory_mib=60000), resource=GPU),
    Ask(gpu=GPURequest(count=1, share_milli=1000, memory_mib=30000)),
)


class ViewMachine(RuleBasedStateMachine):
    """Objects beside a view that sees each of their changes once."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, Node] = {}
        self.gpunodes: dict[str, GPUNode] = {}
        self.pods: dict[str, Pod] = {}
        self.asked: dict[str, Ask] = {}
        self.view = empty_view()
        self.fits = FitCache(self.view.ledger)
        self.count = 0
        self.looks = 0

    @initialize(there=st.sampled_from([NODES, NODES, ()]))
    def begin(self, there: tuple[str, ...]) -> None:
        """All nodes are there, or none."""
        for name in there:
            self.node_changes(name, cordoned=False, ready="True")
            self.report(name, form=0, sick=-1, cordoned=-1, split_again=False)

    # --- changes -----------------------------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(NODES),
        cordoned=st.sampled_from([False, False, True]),
        ready=st.sampled_from(["True", "True", "False"]),
    )
    def node_changes(self, name: str, cordoned: bool, ready: str) -> None:
        by_plugin = name == "plugin"
        labels = {"rack": name[0]} if by_plugin else {names.LABEL_MANAGED: "true", "rack": name[0]}
        status = {
            "allocatable": {"cpu": "8", "memory": "64Gi"} | ({GPU: "2"} if by_plugin else {}),
            "conditions": [{"type": "Ready", "status": ready}],
        }
        values = {"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": cordoned}, "status": status}
        self.nodes[name] = msgspec.convert(values, Node)
        self.view.node_changed(self.nodes[name])

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        if self.nodes.pop(name, None) is not None:
            self.view.node_gone(name)

    @rule(
        name=st.sampled_from(NODES),
        form=st.sampled_from([0, 0, 1]),
        sick=st.sampled_from([-1, -1, 0, 1]),
        cordoned=st.sampled_from([-1, -1, 0, 1]),
        split_again=st.sampled_from([False, False, True]),
    )
    def report(self, name: str, form: int, sick: int, cordoned: int, split_again: bool) -> None:
        """With `split_again`, the one GPU with instances is to be partitioned again."""
        card = f"{name}-card"
        devices = [
            {
                "index": at, "uuid": f"{name}-{form}-{at}", "vendor": "nvidia", "model": model, "memoryMiB": memory,
                "migProfile": profile, "health": "Unhealthy" if at == sick else "Healthy",
                "parent": card if profile else "",
            }
            for at, (model, memory, profile) in enumerate(DEVICES[name][form])
        ]  # fmt: skip
        spec: dict[str, Any] = {"cordoned": [f"{name}-{form}-{cordoned}"]}
        if split_again:
            spec["reshape"] = {card: {"profiles": [LARGE], "requestedTime": "2026-01-01T00:00:00Z", "job": "uid"}}
        values = {"metadata": {"name": name}, "spec": spec, "status": {"devices": devices}}
        self.gpunodes[name] = msgspec.convert(values, GPUNode)
        self.view.gpunode_changed(self.gpunodes[name])

    @rule(name=st.sampled_from(NODES))
    def report_goes(self, name: str) -> None:
        if self.gpunodes.pop(name, None) is not None:
            self.view.gpunode_gone(name)

    @rule(node=st.sampled_from(NODES), ask=st.sampled_from(ASKS))
    def bind(self, node: str, ask: Ask) -> None:
        self.count += 1
        uid = f"pod-{self.count}"
        found = self.fits.check(ask, node=node, key=uid)
        if isinstance(found, Fit):
            self.asked[uid] = ask
            self.pods[uid] = pod_of(found.claim, ask=ask)
            self.view.pod_changed(self.pods[uid])

    @rule(node=st.sampled_from(NODES))
    def bind_with_resource_claim(self, node: str) -> None:
        """A pod whose devices come from a DRA driver that is not known yet."""
        self.count += 1
        uid = f"claims-{self.count}"
        spec = {"nodeName": node, "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}
        values = {"metadata": {"name": uid, "namespace": "team", "uid": uid}, "spec": spec}
        self.pods[uid] = msgspec.convert({**values, "status": {"phase": "Running"}}, Pod)
        self.view.pod_changed(self.pods[uid])

    @rule(data=st.data(), deleted=st.booleans())
    def pod_ends(self, data: st.DataObject, deleted: bool) -> None:
        if not self.pods:
            return
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        if deleted:
            self.view.pod_gone(self.pods.pop(uid))
        else:
            status = msgspec.structs.replace(self.pods[uid].status, phase="Succeeded")
            self.pods[uid] = msgspec.structs.replace(self.pods[uid], status=status)
            self.view.pod_changed(self.pods[uid])
        self.asked.pop(uid, None)

    # --- what is checked ---------------------------------------------------------------------------------------

    def rebuilt(self, *, pods: Ways) -> ClusterView:
        view = empty_view()
        for pod in self.pods.values() if pods == "first" else ():
            view.pod_changed(pod)
        for gpunode in self.gpunodes.values():
            view.gpunode_changed(gpunode)
        for node in self.nodes.values():
            view.node_changed(node)
        for pod in self.pods.values() if pods == "last" else ():
            view.pod_changed(pod)
        if pods == "listed":
            view.pods_listed(self.pods.values())
        return view

    @invariant()
    def the_view_is_what_the_objects_say(self) -> None:
        self.looks += 1
        fresh = self.rebuilt(pods=WAYS[self.looks % len(WAYS)])
        have, want = content_of(self.view.ledger), content_of(fresh.ledger)
        for name in have.keys() | want.keys():
            assert have.get(name) == want.get(name), name
        ours, theirs = tables(self.view), tables(fresh)
        for path in ours.keys() - {"ClusterView.ledger.Ledger.content"}:
            assert ours[path].content == theirs[path].content, path

    @invariant()
    def cached_fits_are_those_of_a_new_view(self) -> None:
        fresh = self.rebuilt(pods="last").ledger
        for ask in ASKS:
            want = screen(fresh, ask=ask, nodes=NODES, key="")
            assert self.fits.best(ask, nodes=NODES, key="") == want.fits, ask
            for node in want.fits:
                found = self.fits.check(ask, node=node, key="new")
                assert isinstance(found, Fit)
                self.check_fit(found.claim, ask=ask)
            refused = self.fits.refusals(ask, nodes=NODES, key="")
            assert {name: each.kind for name, each in refused.items()} == {
                name: each.kind for name, each in want.refusals.items()
            }

    def check_fit(self, claim: Claim, *, ask: Ask) -> None:
        """The node takes pods, and has so much that nobody else has."""
        node, report = self.nodes[claim.node], self.gpunodes.get(claim.node)
        assert not node.spec.unschedulable
        assert node.status.conditions[0].status == "True"
        assert report is not None
        assert not any(pod.spec.resource_claims and pod.status.phase == "Running" for pod in self.on_node(claim.node))
        assert ask.gpu is not None
        devices = {device.uuid: device for device in report.status.devices}
        usable = [
            each
            for each in devices.values()
            if each.health == "Healthy"
            and each.uuid not in report.spec.cordoned
            and each.parent not in report.spec.reshape
        ]
        if ask.resource:
            # Kubelet picks any of them.
            assert min(each.memory_mib for each in devices.values()) >= (ask.gpu.memory_mib or 0)
            others = [other.gpu.count for uid, other in self.asked.items() if self.is_on(uid, claim.node) and other.gpu]
            assert claim.unnamed + sum(others) <= len(usable)
            return
        assert len(claim.devices) == ask.gpu.count
        for device in claim.devices:
            fact = devices[device.uuid]
            assert fact in usable
            assert mig.normalised(fact.mig_profile) == ask.profile or not ask.profile
            assert fact.memory_mib >= (ask.gpu.memory_mib or 0)
            taken = [each for uid in self.asked for each in held_by(self.pods[uid]) if each.uuid == device.uuid]
            assert sum(each.share_milli for each in taken) + device.share_milli <= 1000
            assert sum(each.memory_mib for each in taken) + device.memory_mib <= fact.memory_mib

    def on_node(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name == name]

    def is_on(self, uid: str, node: str) -> bool:
        return self.pods[uid].spec.node_name == node

    def teardown(self) -> None:
        """When every object is deleted, nothing is kept of them."""
        for pod in self.pods.values():
            self.view.pod_gone(pod)
        for name in self.gpunodes:
            self.view.gpunode_gone(name)
        for name in self.nodes:
            self.view.node_gone(name)
        for path, table in tables(self.view).items():
            assert not table.content or path.endswith("Ledger.content"), path
        assert not self.view.ledger.claims()
        assert not self.view.ledger.nodes()


def empty_view() -> ClusterView:
    """A view that has just started: a slice may have been deleted a moment ago."""
    return ClusterView(ledger=Ledger(), drivers=NodeDrivers(clock=lambda: 0.0))


def pod_of(claim: Claim, *, ask: Ask) -> Pod:
    """The pod that is bound with the claim."""
    annotations, limits = dict[str, str](), dict[str, str]()
    if ask.resource and ask.gpu is not None:
        limits = {ask.resource: str(ask.gpu.count)}
    else:
        devices = [
            AllocatedDevice(
                uuid=each.uuid, index=each.index, share_milli=each.share_milli, memory_mib=each.memory_mib,
                mig=each.mig or msgspec.UNSET,
            )
            for each in claim.devices
        ]  # fmt: skip
        containers = [ContainerAllocation(index=0, devices=devices)]
        annotations = annotations_of(
            Allocation(node=claim.node, mode=claim.mode, containers=containers, guard_fraction=claim.guard_fraction)
        )
    values: dict[str, Any] = {
        "metadata": {"name": claim.key, "namespace": "team", "uid": claim.key, "annotations": annotations},
        "spec": {"nodeName": claim.node, "containers": [{"name": "c", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }
    return msgspec.convert(values, Pod)


def held_by(pod: Pod) -> Sequence[AllocatedDevice]:
    """The devices that a pod's annotations name."""
    text = pod.metadata.annotations.get(names.ALLOCATION)
    return () if text is None else msgspec.json.decode(text, type=Allocation).devices


TestView = ViewMachine.TestCase
TestView.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
