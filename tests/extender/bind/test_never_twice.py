"""Decisions and binds as a state machine: a cache that lags, writes that get lost or land late, restarts, time in
office that runs out, nodes that come back with other devices, nominations.

The truth is what the API server's pods say. Whatever happens in between, no device of theirs is promised beyond what it
has, and every device that the truth names is promised in the ledger once the cache has caught up.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, Literal

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.kube.errors import Conflict, DeadlineExceeded, Forbidden, NotFound, Status
from dovetail.pods.allocation import allocation_in
from dovetail_extender.bind.binder import Binder
from dovetail_extender.bind.unsettled import SETTLE_SECONDS
from dovetail_extender.decide.filter_score import Decisions, Rules
from dovetail_extender.protocol import BindingArgs, ScheduledPod
from tests.clock import Clock
from tests.extender.builders import make_gpunode, make_node, make_pod, make_share
from tests.extender.desk import NoGPUNodes, NoJobs

NODES = ("a", "b")
Fate = Literal["answered", "lost", "unanswered", "late"]


class Truth:
    """The API server's pods and a cache that is told later. `fate` is what becomes of the next write."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.shown: dict[str, Pod] = {}
        self.untold: deque[tuple[str, str, Pod]] = deque()
        self.late: list[tuple[str, str, dict[str, str]]] = []
        self.fate: Fate = "answered"
        self.term = 0

    def cached(self, *, namespace: str, name: str) -> Pod | None:
        return self.shown.get(name)

    async def read(self, *, namespace: str, name: str, deadline_seconds: float) -> Pod:
        if name not in self.pods:
            raise NotFound(Status(code=404))
        return self._pod(name)

    async def bind(self, pod: Pod, *, node: str, annotations: Mapping[str, str], deadline_seconds: float) -> None:
        name = pod.metadata.name
        if self.fate in {"answered", "unanswered"}:
            self._bound(name, node=node, annotations=annotations)
        if self.fate == "late":
            self.late.append((name, node, dict(annotations)))
        if self.fate != "answered":
            raise DeadlineExceeded("here", deadline_seconds=deadline_seconds)

    def land(self) -> None:
        """A write that was on its way arrives; the API server refuses it where it must."""
        name, node, annotations = self.late.pop(0)
        try:
            self._bound(name, node=node, annotations=annotations)
        except (NotFound, Conflict, Forbidden):
            return

    def put(self, pod: dict[str, Any]) -> None:
        self.pods[pod["metadata"]["name"]] = pod
        self._tell("changed", pod["metadata"]["name"])

    def delete(self, name: str) -> None:
        self._tell("gone", name)
        del self.pods[name]

    def _bound(self, name: str, *, node: str, annotations: Mapping[str, str]) -> None:
        pod = self.pods.get(name)
        if pod is None:
            raise NotFound(Status(code=404))
        # As the policy dovetail-terms has it.
        if names.ALLOCATION in annotations and int(annotations[names.TERM]) < self.term:
            raise Forbidden(Status(code=403))
        if pod["spec"].get("nodeName"):
            raise Conflict(Status(code=409, message="assigned already"))
        pod["spec"]["nodeName"] = node
        pod["metadata"]["annotations"] = pod["metadata"]["annotations"] | dict(annotations)
        self._tell("changed", name)

    def _tell(self, event: str, name: str) -> None:
        self.untold.append((event, name, self._pod(name)))

    def _pod(self, name: str) -> Pod:
        return msgspec.convert(self.pods[name], Pod)


class InOffice:
    """The holder of a lease that lasts."""

    def __init__(self, *, term: int = 1) -> None:
        self.term = term
        self.remaining_seconds = 15.0


class ExtenderMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.truth = Truth()
        self.clock = Clock()
        self.count = 0
        # How often the devices of each node were replaced.
        self.replaced = dict.fromkeys(NODES, 0)

    def teardown(self) -> None:
        self.runner.close()

    @initialize()
    def start(self) -> None:
        self.restart()

    @rule()
    def restart(self) -> None:
        # What the old process sent may still be on its way.
        self.truth.term += 1
        self.office = InOffice(term=self.truth.term)
        self.truth.untold.clear()
        self.truth.shown = {name: self.truth._pod(name) for name in self.truth.pods}
        self.view = ClusterView(ledger=Ledger())
        for name in NODES:
            self._node_is_there(name)
        self.decisions = Decisions(view=self.view, rules=Rules(), clock=self.clock)
        for pod in self.truth.shown.values():
            self._tell(pod)
        self.binder = Binder(
            ledger=self.view.ledger,
            pods=self.truth,
            jobs=NoJobs(),
            gpunodes=NoGPUNodes(),
            office=self.office,
            decisions=self.decisions,
            deadline_seconds=4,
            clock=self.clock,
        )

    @rule(milli=st.sampled_from([300, 500, 700, 1000, 2000]))
    def create(self, milli: int) -> None:
        self.count += 1
        name = f"p{self.count}"
        self.truth.put(make_share(name, milli) if milli < 1000 else make_pod(name, str(milli // 1000), milli=milli))

    @precondition(lambda self: self.truth.pods)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        self.truth.delete(self._any(data))

    @precondition(lambda self: self.truth.pods)
    @rule(data=st.data(), fate=st.sampled_from(["answered", "answered", "lost", "unanswered", "late"]))
    def schedule(self, data: st.DataObject, fate: Fate) -> None:
        """As kube-scheduler does: filter, prioritize, bind to any node that was left."""
        raw = self.truth.pods[self._any(data)]
        pod = msgspec.convert(raw, ScheduledPod)
        nodes = self.decisions.filter(pod, nodes=NODES).nodes
        if len(nodes) > 1:
            self.decisions.prioritize(pod, nodes=nodes)
        if nodes:
            self._bind(pod, node=data.draw(st.sampled_from(nodes)), fate=fate)

    @precondition(lambda self: self.truth.pods)
    @rule(data=st.data(), node=st.sampled_from(NODES))
    def bind_out_of_the_blue(self, data: st.DataObject, node: str) -> None:
        pod = msgspec.convert(self.truth.pods[self._any(data)], ScheduledPod)
        self._bind(pod, node=node, fate="answered")

    @precondition(lambda self: self.truth.untold)
    @rule(count=st.integers(1, 5))
    def the_cache_is_told(self, count: int) -> None:
        for _ in range(min(count, len(self.truth.untold))):
            event, name, pod = self.truth.untold.popleft()
            if event == "gone":
                self.truth.shown.pop(name, None)
                self.view.pod_gone(pod)
                self.decisions.nominations.pod_gone(pod)
            else:
                self.truth.shown[name] = pod
                self._tell(pod)

    @precondition(lambda self: self.truth.late)
    @rule()
    def a_late_write_lands(self) -> None:
        self.truth.land()

    @precondition(lambda self: self.truth.pods)
    @rule(data=st.data(), node=st.sampled_from(["", *NODES]))
    def kube_scheduler_nominates(self, data: st.DataObject, node: str) -> None:
        pod = self.truth.pods[self._any(data)]
        if not pod["spec"].get("nodeName"):
            self.truth.put(pod | {"status": {"phase": "Pending", "nominatedNodeName": node}})

    @rule(node=st.sampled_from(NODES), others=st.booleans())
    def a_node_vanishes_and_returns(self, node: str, others: bool) -> None:
        """Under the same name, with the same devices or with others."""
        self.replaced[node] += others
        self.view.gpunode_gone(node)
        self.view.node_gone(node)
        self._node_is_there(node)

    @rule(seconds=st.sampled_from([0.0, 1.0, 15.0]))
    def the_time_in_office_changes(self, seconds: float) -> None:
        self.office.remaining_seconds = seconds

    @rule(seconds=st.sampled_from([1, 6, 12, 40]))
    def time_passes(self, seconds: int) -> None:
        if seconds >= SETTLE_SECONDS:
            while self.truth.late:  # by then the API server has given up
                self.truth.land()
        self.clock.now += seconds
        self.view.ledger.expire_holds(self.clock.now)
        self.decisions.nominations.review()
        self.runner.run(self.binder.settle())

    @invariant()
    def no_device_is_promised_beyond_what_it_has(self) -> None:
        shares: dict[str, int] = defaultdict(int)
        for pod in self.truth.pods.values():
            allocation = allocation_in(pod["metadata"]["annotations"])
            for device in allocation.devices if allocation else ():
                shares[device.uuid] += device.share_milli
        assert all(share <= 1000 for share in shares.values()), shares

    @invariant()
    def what_the_truth_promises_the_ledger_promises(self) -> None:
        if self.truth.untold or not hasattr(self, "view"):
            return
        for name in self.truth.pods:
            pod = self.truth._pod(name)
            if pod.spec.node_name:
                claim = self.view.ledger.claim(pod.metadata.uid)
                assert claim is not None
                assert claim.node == pod.spec.node_name

    def _bind(self, pod: ScheduledPod, *, node: str, fate: Fate) -> None:
        self.truth.fate = fate
        meta = pod.metadata
        args = BindingArgs(pod_name=meta.name, pod_namespace=meta.namespace, pod_uid=meta.uid, node=node)
        late = len(self.truth.late)
        outcome = self.runner.run(self.binder.bind(args))
        if self.office.remaining_seconds < 4:
            assert len(self.truth.late) == late, "nothing is sent that the lease does not cover"
        if not outcome.error:
            bound = self.truth.pods.get(meta.name)
            assert bound is None or bound["spec"]["nodeName"] == node, "no success without a bind"

    def _node_is_there(self, name: str) -> None:
        devices = make_gpunode(f"{name}{self.replaced[name]}", gpus=2)
        self.view.node_changed(msgspec.convert(make_node(name), Node))
        self.view.gpunode_changed(msgspec.convert(devices | {"metadata": {"name": name, "uid": name}}, GPUNode))

    def _tell(self, pod: Pod) -> None:
        self.view.pod_changed(pod)
        self.decisions.nominations.pod_changed(pod)

    def _any(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.truth.pods)))


TestExtenderMachine = ExtenderMachine.TestCase
TestExtenderMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
