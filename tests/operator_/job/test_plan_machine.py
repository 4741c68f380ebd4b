"""The queue, its plans and their replanning as a state machine: jobs come and go, nodes fail, strangers take room.

The world around the operator is dumb: it makes a pod for each worker of a Job that is not suspended, binds pods one by
one where their plan says, and deletes the pods of a suspended Job. Whatever happens in between, once nothing more
happens no gang is half bound, and every job that waits has its reason.
"""

from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.jobs.batch_job import worker_of
from dovetail.jobs.plan import nodes_by_worker
from dovetail.queue.verdicts import Waits
from dovetail_operator.job.actions import Action, CreateJob, DeleteJob, PatchJob
from dovetail_operator.job.plan_doubts import Doubts
from dovetail_operator.lifecycle.reconcile import carries_plan, is_status_first, reconcile
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.queue.cycle_caches import caches_for
from dovetail_operator.state.decisions import MANY_STARTS
from tests.operator_.builders import NOW, at, condition, make_job, make_pod, make_state

NODES = {"a": 4, "b": 4, "c": 2}
CLOSED_SET = {
    "Held", "BeginTime", "Dependency", "DependencyFailed", "Invalid", "ExceedsCapacity", "Quota", "Priority",
    "Resources", "Fragmentation", "MemoryGuard", "GangWaiting", "Reserved", "NodeUnhealthy", "ExternallyManaged",
    "Evaluating",
}  # fmt: skip


class PlanMachine(RuleBasedStateMachine):
    """One operator over a world that does what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.state = make_state(**NODES)
        self.caches = caches_for(self.state)
        self.now = NOW
        self.versions = 100
        self.submitted = 0
        self.doubts = Doubts()
        self.children: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, Pod] = {}
        self.cordoned: set[str] = set()
        self.told: dict[str, GPUJobStatus] = {}

    # --- what people and machines do ---------------------------------------------------------------------------

    @initialize()
    def begin_with_a_gang(self) -> None:
        self.submit(gpu=2, workers=3, least=None, priority=10)

    @rule(
        gpu=st.sampled_from([1, 2, 4]),
        workers=st.integers(1, 4),
        least=st.one_of(st.none(), st.just(1)),
        priority=st.sampled_from([10, 10, 11]),
    )
    def submit(self, gpu: int, workers: int, least: int | None, priority: int) -> None:
        name = f"j{self.submitted}"
        self.submitted += 1
        spec: dict[str, Any] = {"gpu": gpu, "workers": workers, "priority": priority}
        if least is not None:
            spec["minWorkers"] = least
        meta = {"creationTimestamp": at(-1000 + self.submitted), "resourceVersion": self.version()}
        self.state.store.job_changed(make_job(name, status={"number": self.submitted}, meta=meta, **spec))

    @rule(node=st.sampled_from(sorted(NODES)))
    def cordon(self, node: str) -> None:
        self.cordoned ^= {node}
        known = self.state.store.view.nodes[node]
        spec = msgspec.structs.replace(known.spec, unschedulable=node in self.cordoned)
        self.state.store.view.node_changed(msgspec.structs.replace(known, spec=spec))

    @precondition(lambda self: self.awaited() - self.cordoned)
    @rule(data=st.data(), how=st.sampled_from(["cordoned", "taken"]))
    def a_plan_is_overtaken(self, data: st.DataObject, how: str) -> None:
        node = data.draw(st.sampled_from(sorted(self.awaited() - self.cordoned)))
        if how == "cordoned":
            self.cordon(node)
        else:
            self.a_stranger_takes_room(node, self.free(node))

    @rule(node=st.sampled_from(sorted(NODES)), gpus=st.integers(1, 2))
    def a_stranger_takes_room(self, node: str, gpus: int) -> None:
        if self.free(node) >= gpus > 0:
            meta = {"name": f"stranger-{self.versions}", "uid": f"stranger-{self.version()}", "labels": {}}
            self.put_pod(self.holding(make_pod(node=node, owner="other", meta=meta), node=node, gpus=gpus))

    @precondition(lambda self: any(uid.startswith("stranger") for uid in self.pods))
    @rule(data=st.data())
    def a_stranger_leaves(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(uid for uid in self.pods if uid.startswith("stranger"))))
        self.state.store.pod_event("DELETED", self.pods.pop(uid))

    @precondition(lambda self: self.unbound())
    @rule(data=st.data())
    def a_worker_is_bound(self, data: st.DataObject) -> None:
        self.bind(self.pods[data.draw(st.sampled_from(self.unbound()))])

    @precondition(lambda self: self.state.store.jobs)
    @rule(data=st.data())
    def a_job_is_deleted(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.state.store.jobs)))
        job = self.state.store.jobs[key]
        self.remove_child(job.metadata.name)
        self.state.store.job_deleted(key, uid=job.metadata.uid)

    @rule(seconds=st.sampled_from([0, 1, 5, 30]), many_start=st.booleans())
    def the_operator_looks(self, seconds: int, *, many_start: bool = False) -> None:
        self.now += timedelta(seconds=seconds)
        for _ in range(MANY_STARTS if many_start else 0):
            self.state.decisions.note_start(self.now)
        cycle = survey(self.state, now=self.now, caches=self.caches)
        self.state.decisions.keep_verdicts(cycle.keys)
        for verdict in decide(self.state, cycle=cycle):
            self.state.decisions.set_verdict(verdict.key, verdict=verdict)
        self.state.decisions.set_overtaken(self.doubts.overtaken(cycle.doubts, now=self.now.timestamp()))
        for uid in self.state.decisions.overtaken.keys() & cycle.keys.keys():
            self.state.decisions.withdraw_verdict(uid)
        for key in list(self.state.store.jobs):
            self.settle(key)

    @rule()
    def the_job_controller_works(self) -> None:
        for name, child in self.children.items():
            if child["spec"].get("suspend"):
                self.clear_pods(name)
                child["status"]["conditions"] = [condition("Suspended")]
                child["status"]["active"] = 0
            else:
                child["status"] |= {"conditions": [condition("Suspended", status="False")], "startTime": at(0)}
                self.make_pods(name, child)
            self.see_child(name)

    # --- what follows ------------------------------------------------------------------------------------------

    def settle(self, key: str) -> None:
        """As the controller does it: the plan is told first, then what is to be done is done, then the rest is told.

        A plan that the batch Job carries is told at the next look.
        """
        seen = self.state.observe(key, now=self.now)
        assert seen is not None
        if seen.verdict is None and seen.obstacle is None and seen.child is None:
            return
        outcome = reconcile(seen)
        if is_status_first(seen, outcome=outcome):
            self.tell(key, outcome.status)
        for action in outcome.actions:
            self.act(seen.job, action)
        if not carries_plan(outcome):
            self.tell(key, outcome.status)

    def tell(self, key: str, status: Any) -> None:
        job = self.state.store.jobs[key]
        self.told[key] = status
        metadata = msgspec.structs.replace(job.metadata, resource_version=self.version())
        self.state.store.job_changed(msgspec.structs.replace(job, metadata=metadata, status=status))

    def act(self, job: GPUJob, action: Action) -> None:
        name = job.metadata.name
        match action:
            case CreateJob():
                assert name not in self.children, "never a second Job"
                metadata = {**action.manifest["metadata"], "uid": f"uid-child-{name}-{self.version()}"}
                self.children[name] = {"metadata": metadata, "spec": dict(action.manifest["spec"]), "status": {}}
                self.see_child(name)
            case PatchJob():
                child = self.children[name]
                if "template" in action.spec:
                    assert child["spec"].get("suspend"), "only a suspended Job takes another plan"
                    assert not self.pods_of(name), "and only once its pods are gone"
                child["spec"] |= {field: value for field, value in action.spec.items() if field != "template"}
                if (metadata := action.spec.get("template", {}).get("metadata")) is not None:
                    made = child["spec"]["template"]["metadata"]
                    patched = made["annotations"] | metadata["annotations"]
                    made["annotations"] = {name: text for name, text in patched.items() if text is not None}
                self.see_child(name)
            case DeleteJob():
                self.remove_child(name)
            case _:
                raise AssertionError(action)

    def make_pods(self, name: str, child: dict[str, Any]) -> None:
        there = {worker_of(pod) for pod in self.pods_of(name)}
        annotations = child["spec"]["template"]["metadata"]["annotations"]
        for worker in range(child["spec"]["completions"]):
            if worker not in there:
                meta = {
                    "name": f"{name}-{worker}",
                    "uid": f"pod-{name}-{worker}-{self.version()}",
                    "labels": {names.LABEL_JOB: name},
                    "annotations": {names.COMPLETION_INDEX: str(worker), names.PLAN: annotations[names.PLAN]},
                }
                self.put_pod(make_pod(worker, phase="Pending", node="", owner=child["metadata"]["uid"], meta=meta))

    def bind(self, pod: Pod) -> None:
        """On its planned node, where there is room; else kube-scheduler refuses it."""
        job = self.state.store.jobs.get(f"team/{pod.metadata.labels[names.LABEL_JOB]}")
        plan = msgspec.json.decode(pod.metadata.annotations[names.PLAN])
        placement = job.status.placement if job is not None else None
        if placement is None or placement.generation != plan["generation"]:
            return
        node, gpus = nodes_by_worker(placement)[worker_of(pod)], int(placement.worker.request)
        if node not in self.cordoned and self.free(node) >= gpus:
            self.put_pod(self.holding(pod, node=node, gpus=gpus))
        else:
            refused = [condition("PodScheduled", status="False", reason="Unschedulable", seconds=self.seconds())]
            status = msgspec.convert({"phase": "Pending", "conditions": refused}, type(pod.status))
            self.put_pod(msgspec.structs.replace(pod, status=status))

    def holding(self, pod: Pod, *, node: str, gpus: int) -> Pod:
        """The pod, running on that node with the first devices there that nobody has."""
        taken = {
            device.uuid for each in self.pods.values() if each.spec.node_name == node
            for device in self.state.store.view.ledger.claim(each.metadata.uid).devices  # type: ignore[union-attr]
        }  # fmt: skip
        indexes = [index for index in range(NODES[node]) if f"GPU-{node}-{index}" not in taken][:gpus]
        model = make_pod(node=node, devices=NODES[node])
        allocation = msgspec.json.decode(model.metadata.annotations[names.ALLOCATION])
        devices = allocation["containers"][0]["devices"]
        allocation["containers"][0]["devices"] = [devices[index] for index in indexes]
        annotations = {**pod.metadata.annotations, names.ALLOCATION: msgspec.json.encode(allocation).decode()}
        return msgspec.structs.replace(model, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))

    # --- the world's books -------------------------------------------------------------------------------------

    def version(self) -> str:
        self.versions += 1
        return str(self.versions)

    def seconds(self) -> float:
        return (self.now - NOW).total_seconds()

    def free(self, node: str) -> int:
        claims = self.state.store.view.ledger.claims_on(node)
        return NODES[node] - sum(len(claim.devices) for claim in claims)

    def put_pod(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.state.store.pod_event("MODIFIED", pod)

    def pods_of(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.metadata.labels.get(names.LABEL_JOB) == name]

    def unbound(self) -> list[str]:
        return sorted(uid for uid, pod in self.pods.items() if not pod.spec.node_name)

    def awaited(self) -> set[str]:
        """The nodes to which a worker of a plan is still to come."""
        found = set()
        for uid in self.unbound():
            pod = self.pods[uid]
            placement = self.state.store.jobs[f"team/{pod.metadata.labels[names.LABEL_JOB]}"].status.placement
            if placement is not None:
                found.add(nodes_by_worker(placement)[worker_of(pod)])
        return found

    def clear_pods(self, name: str) -> None:
        for pod in self.pods_of(name):
            self.state.store.pod_event("DELETED", self.pods.pop(pod.metadata.uid))

    def see_child(self, name: str) -> None:
        child = self.children[name]
        child["metadata"]["resourceVersion"] = self.version()
        self.state.store.child_changed(msgspec.convert(child, Job, strict=False))

    def remove_child(self, name: str) -> None:
        if (child := self.children.pop(name, None)) is not None:
            self.clear_pods(name)
            self.state.store.child_event("DELETED", msgspec.convert(child, Job, strict=False))

    # --- what always holds -------------------------------------------------------------------------------------

    @invariant()
    def what_is_told_does_not_contradict_itself(self) -> None:
        for status in self.told.values():
            if status.phase == "Queued":
                assert status.reason in CLOSED_SET
                assert status.message
                assert status.placement is None
            if status.phase == "Starting":
                assert status.reason
                assert status.placement is not None

    @invariant()
    def what_is_kept_of_jobs_is_as_if_it_were_made_anew(self) -> None:
        kept = survey(self.state, now=self.now, caches=self.caches)
        assert survey(self.state, now=self.now) == kept

    @invariant()
    def a_worker_is_bound_on_its_planned_node_alone(self) -> None:
        for name in self.children:
            job = self.state.store.jobs[f"team/{name}"]
            placement = job.status.placement
            for pod in self.pods_of(name):
                plan = msgspec.json.decode(pod.metadata.annotations[names.PLAN])
                if pod.spec.node_name and placement is not None and plan["generation"] == placement.generation:
                    assert pod.spec.node_name == nodes_by_worker(placement)[worker_of(pod)]

    def teardown(self) -> None:
        """When nothing more happens, each gang is whole or has nothing, and who waits could not start."""
        for _ in range(14):
            self.the_operator_looks(30)
            self.the_job_controller_works()
            for uid in self.unbound():
                self.bind(self.pods[uid])
        self.the_operator_looks(0)
        for job in self.state.store.jobs.values():
            bound = [pod for pod in self.pods_of(job.metadata.name) if pod.spec.node_name]
            workers = self.children.get(job.metadata.name, {}).get("spec", {}).get("completions", 0)
            assert len(bound) in {0, workers}, "half bound"
            assert (job.status.phase == "Running") == bool(bound)
            assert not bound or len(bound) >= (job.spec.min_workers or job.spec.workers)
        for verdict in self.state.decisions.verdicts.values():
            assert isinstance(verdict, Waits)
            assert verdict.message


TestPlans = PlanMachine.TestCase
TestPlans.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
