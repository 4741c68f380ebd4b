"""Pods as anybody may write them: whatever they say, the extender and the webhook answer."""

from contextlib import suppress
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import given, settings

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.refusals import Refusal
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.gpu.request import RequestError
from dovetail_extender.decide.filter_score import Decisions, Rules
from dovetail_extender.decide.preempt import Preempting
from dovetail_extender.protocol import MetaPod, MetaVictims, PreemptArgs, ScheduledPod
from dovetail_webhook.mutation import patch_of_pod
from tests.cli.builders import make_gpunode
from tests.core.explain.builders import make_node

NODES = ["a", "b"]
PLAN = '{"job":"j","generation":1,"nodes":["a"]}'
ALLOCATION = (
    '{"version":1,"node":"a","mode":"Fractional","containers":[{"index":0,"devices":[{"uuid":"a-0","index":0,'
    '"shareMilli":%d,"memoryMiB":%d}]}]}'
)
LONG = "9" * 5000
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["1", "2", "0.5", "2x0.5", "8G,0.5", "1(V100)", "1@cuda:1", "１", LONG, f"1(V100-{LONG}GB)", "-1", "0"]
    ),
    st.sampled_from(
        ["TimeShared", "Fractional", "Exclusive", "Spread", "Training", "Inference", "Aggressive", "Dynamic"]
    ),
    st.sampled_from(
        ["null", "[]", "{}", PLAN, ALLOCATION % (500, 8192), ALLOCATION % (10**22, -5), ALLOCATION % (-1, 1)]
    ),
)
CONTAINERS = [f"{names.REQUEST}.{name}" for name in ("c0", "d0", "i0", "")]
ANNOTATIONS = st.sampled_from([
    names.REQUEST, names.MODE, names.POLICY, names.WORKLOAD, names.MEMORY_STRATEGY, names.PRIORITY, names.PLAN,
    names.ALLOCATION, names.COMPLETION_INDEX, names.TERM, *CONTAINERS,
])  # fmt: skip
# As the API server writes them: whatever was larger than the last is that.
AMOUNTS = st.sampled_from(["0", "1", "2", "500", "1000", "1500", "2k", "1Gi", "9223372036854775807"])
RESOURCES = st.dictionaries(
    st.sampled_from([names.GPU_MILLI, names.GPU_MEMORY_MIB, names.GPU_TURN, "nvidia.com/gpu", "amd.com/gpu", "cpu"]),
    AMOUNTS,
    max_size=3,
)


@st.composite
def containers(draw: st.DrawFn, *, named: str) -> list[dict[str, Any]]:
    count = draw(st.integers(0, 2))
    return [
        {"name": f"{named}{at}", "resources": {draw(st.sampled_from(["limits", "requests"])): draw(RESOURCES)}}
        for at in range(count)
    ]


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(st.sampled_from(["p", "q", "r"]))
    spec: dict[str, Any] = {"containers": [{"name": "c0", "resources": {"limits": draw(RESOURCES)}}]}
    spec["containers"] += draw(containers(named="d"))
    spec["initContainers"] = draw(containers(named="i"))
    spec["priority"] = draw(st.integers(-(10**9), 2 * 10**9))
    if draw(st.booleans()):
        spec["nodeName"] = draw(st.sampled_from(["a", "b", "gone"]))
    status = {"phase": draw(st.sampled_from(["Pending", "Running", "Failed"]))}
    if draw(st.booleans()):
        status["nominatedNodeName"] = draw(st.sampled_from(["a", "gone"]))
    meta = {
        "name": name,
        "namespace": "default",
        "uid": f"uid-{name}",
        "annotations": draw(st.dictionaries(ANNOTATIONS, TEXTS, max_size=4)),
    }
    if draw(st.booleans()):
        meta["labels"] = {names.LABEL_JOB: "j", names.LABEL_JOB_NUMBER: draw(TEXTS)}
        meta["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
        ]
    return {"metadata": meta, "spec": spec, "status": status}


class Extender:
    """Its decisions over two nodes of two devices, without its watches and binds."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.view = ClusterView(ledger=self.ledger)
        for name in NODES:
            self.view.node_changed(make_node(name))
            self.view.gpunode_changed(make_gpunode(name, gpus=2))
        self.decisions = Decisions(view=self.view, rules=Rules(), clock=lambda: 0.0)
        self.seen: dict[str, Pod] = {}

    def hears(self, pod: Pod) -> None:
        self.seen[pod.metadata.uid] = pod
        self.view.pod_changed(pod)
        self.decisions.nominations.pod_changed(pod)
        self.decisions.plans.pod_changed(pod)
        self.decisions.quotas.pod_event("MODIFIED", pod)
        for _ in self.decisions.count_pods([pod]):
            pass

    def schedules(self, raw: dict[str, Any], pod: Pod) -> None:
        asked = msgspec.convert(raw, ScheduledPod, strict=False)
        found = self.decisions.filter(asked, nodes=NODES)
        if found.nodes:
            scores = self.decisions.prioritize(asked, nodes=found.nodes)
            node = found.nodes[scores.index(max(scores))]
            ask = self.decisions.ask(pod)
            if ask is not None and not isinstance(claim := self.decisions.claim(ask, pod=pod, node=node), Refusal):
                self.ledger.commit(claim)

    def preempts(self, pod: Pod) -> None:
        victims = {"a": MetaVictims(pods=[MetaPod(uid=uid) for uid in self.seen])}
        preempting = Preempting(
            ask=self.decisions.ask,
            nominations=self.decisions.nominations,
            pods=self.seen.values,
            budgets=list,
            clock=lambda: 0.0,
        )
        preempting.preempt(PreemptArgs(pod=pod, victims=victims))


@settings(max_examples=60, deadline=None)
@given(st.lists(pods(), min_size=1, max_size=4))
def test_whatever_pods_say_the_extender_answers(said: list[dict[str, Any]]) -> None:
    extender = Extender()
    for raw in said:
        pod = msgspec.convert(raw, Pod, strict=False)
        extender.hears(pod)
        if not pod.spec.node_name:
            extender.schedules(raw, pod)
            extender.preempts(pod)
        extender.decisions.nominations.review()


@settings(max_examples=100, deadline=None)
@given(pods(), st.sampled_from(["", "ephemeralcontainers"]))
def test_whatever_a_pod_says_the_webhook_completes_it_or_says_why_not(raw: dict[str, Any], subresource: str) -> None:
    with suppress(RequestError):
        patch_of_pod(raw, subresource=subresource, policy="Balanced", vendors=DEFAULT_VENDORS)
