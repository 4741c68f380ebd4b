"""The extender's decisions without a process: a test puts objects in the order in which the watches would show them."""

from typing import Any

import msgspec

from dovetail.api.builtin import Node, Pod
from dovetail.api.disruption_budget import PodDisruptionBudget
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.refusals import Refusal
from dovetail.kube.errors import NotFound, Status
from dovetail_extender.decide.filter_score import Decisions, Rules
from dovetail_extender.decide.preempt import Preempting
from dovetail_extender.holds.planned_workers import Place, PlannedJob
from dovetail_extender.protocol import MetaPod, MetaVictims, PreemptArgs, ScheduledPod
from tests.clock import Clock
from tests.extender.builders import make_gpunode, make_node


class NoJobs:
    """The GPUJobs of an API server that has none."""

    async def read_job(self, *, namespace: str, name: str, deadline_seconds: float) -> PlannedJob:
        raise NotFound(Status(code=404, message=f"no {namespace}/{name} within {deadline_seconds} s"))


class NoGPUNodes:
    """The GPUNodes of an API server that has none."""

    async def read_gpunode(self, *, name: str, deadline_seconds: float) -> GPUNode:
        raise NotFound(Status(code=404, message=f"no {name} within {deadline_seconds} s"))


class Desk:
    """Managed nodes of V100: `Desk(a=8, b=8)`."""

    def __init__(self, **gpus: int) -> None:
        self.clock = Clock()
        self.ledger = Ledger()
        self.view = ClusterView(ledger=self.ledger)
        for name, count in gpus.items():
            self.view.node_changed(msgspec.convert(make_node(name), Node))
            self.view.gpunode_changed(msgspec.convert(make_gpunode(name, gpus=count), GPUNode))
        self.decisions = Decisions(view=self.view, rules=Rules(), clock=self.clock)
        self.plans = self.decisions.plans
        self.nominations = self.decisions.nominations
        self.pods: dict[str, Pod] = {}
        self.budgets: list[PodDisruptionBudget] = []
        self.preempting = Preempting(
            ask=self.decisions.ask,
            nominations=self.nominations,
            pods=self.pods.values,
            budgets=lambda: self.budgets,
            clock=self.clock,
        )

    # --- what the watches show ---

    def put(self, pod: dict[str, Any], *, node: str = "", phase: str = "", **meta: Any) -> Pod:
        """The pod is there or has changed; on `node` where one is given, in that phase, with this metadata."""
        changed = pod | {
            "metadata": pod["metadata"] | meta,
            "spec": pod["spec"] | ({"nodeName": node} if node else {}),
            "status": pod["status"] | ({"phase": phase} if phase else {}),
        }
        seen = msgspec.convert(changed, Pod)
        self.pods[seen.metadata.uid] = seen
        self.view.pod_changed(seen)
        self.nominations.pod_changed(seen)
        self.plans.pod_changed(seen)
        return seen

    def delete(self, pod: Pod) -> None:
        """The pod is no more."""
        self.pods.pop(pod.metadata.uid, None)
        self.view.pod_gone(pod)
        self.nominations.pod_gone(pod)
        self.plans.pod_gone(pod)

    def put_job(self, job: dict[str, Any]) -> None:
        """The GPUJob is there or has changed."""
        self.plans.job_changed(msgspec.convert(job, PlannedJob))

    def delete_job(self, job: dict[str, Any]) -> None:
        """The GPUJob is no more."""
        self.plans.job_gone(msgspec.convert(job, PlannedJob))

    # --- what kube-scheduler asks ---

    def filter(self, pod: dict[str, Any], *nodes: str) -> list[str]:
        """The nodes that the pod may go to."""
        asking = msgspec.convert(pod, ScheduledPod)
        return self.decisions.filter(asking, nodes=nodes or self.ledger.nodes()).nodes

    def why(self, pod: dict[str, Any], node: str) -> str:
        """Why the pod may not go to the node."""
        return self.decisions.filter(msgspec.convert(pod, ScheduledPod), nodes=[node]).refusals[node].message

    def bind(self, pod: dict[str, Any], node: str) -> Claim | Refusal:
        """The pod's bind to the node up to the write: its promise stands."""
        asking = msgspec.convert(pod, Pod)
        ask = self.ask(pod)
        found = self.decisions.claim(ask, pod=asking, node=node)
        if isinstance(found, Claim):
            self.ledger.commit(found)
        return found

    def preempt(self, pod: dict[str, Any], **picked: list[str]) -> dict[str, list[str]]:
        """The names of the victims by node; `picked` are those that kube-scheduler picked."""
        uids = {seen.metadata.name: uid for uid, seen in self.pods.items()}
        answer = self.preempting.preempt(
            PreemptArgs(
                pod=msgspec.convert(pod, ScheduledPod),
                victims={
                    node: MetaVictims(pods=[MetaPod(uid=uids.get(name, name)) for name in names])
                    for node, names in picked.items()
                },
            )
        )
        return {node: [self.pods[pod.uid].metadata.name for pod in each.pods] for node, each in answer.items()}

    # --- what is promised ---

    def ask(self, pod: dict[str, Any]) -> Ask:
        """What the pod asks of a node."""
        ask = self.decisions.ask(msgspec.convert(pod, Pod))
        assert ask is not None
        return ask

    def place(self, pod: dict[str, Any]) -> Place:
        """The pod's place in the plan of its job."""
        found = self.plans.place_of(msgspec.convert(pod, Pod))
        assert isinstance(found, Place)
        return found

    def held(self, *keys: str) -> list[str]:
        """The nodes on which these keys hold room; empty where one of them holds none."""
        return [claim.node if (claim := self.ledger.claim(key)) is not None else "" for key in keys]

    def devices(self, key: str) -> list[str]:
        """The devices that this key has."""
        claim = self.ledger.claim(key)
        return [] if claim is None else [device.uuid for device in claim.devices]
