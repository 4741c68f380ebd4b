"""What surrounds the operator, as plainly as possible: Job controller, garbage collector, scheduler, kubelet.

`step` lets each of them look once at the API server's objects and do what is due.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.cluster.view import ClusterView
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.ranking import DEFAULT_RANKINGS
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.jobs.plan import nodes_by_worker, worker_of_plan
from dovetail.pods.allocation import annotations_of
from dovetail.pods.tenancy import Tenancy, job_of
from dovetail_extender.decide.filter_score import Asks, allocation_of
from tests.world.api import ApiServer, Values, as_typed
from tests.world.kueue import Kueue

_KINDS: Final = {"GPUJob": "gpujobs", "Job": "jobs"}
# How long a record of a pod that is about to end counts in a PodDisruptionBudget.
_RECORD_TIME: Final = timedelta(minutes=2)
ENDING_SECONDS: Final = 2.0


class Cluster:
    """`ends` says which workers are to end: by the key of their Job and their index, with that exit code."""

    def __init__(self, server: ApiServer, *, now: Callable[[], datetime]) -> None:
        self.server = server
        self._now = now
        # How long a pod takes to end.
        self.ending_seconds = ENDING_SECONDS
        self._asks = Asks(rankings=DEFAULT_RANKINGS, vendors=DEFAULT_VENDORS)
        # The starts of each job: the UIDs of its Jobs whenever one of them began to run.
        self.starts: list[tuple[str, str]] = []
        self.kueue = Kueue(server)
        server.watches.append(self._note_start)
        server.watches.append(self._count_healthy)

    def step(self) -> None:
        self._collect_garbage()
        self.kueue.step()
        for job in self.server.all("jobs"):
            self._follow(job)
        self._schedule()
        for pod in self.server.all("pods"):
            self._run(pod)

    def end_worker(self, key: str, *, exit_code: int, disrupted: bool = False) -> None:
        """Let the container of a pod end, because somebody evicts it where it is `disrupted`."""
        phase = "Failed" if exit_code else "Succeeded"

        def end(pod: Values) -> None:
            state = {"terminated": {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}}
            conditions = [{"type": "DisruptionTarget", "status": "True"}] if disrupted else []
            pod["status"] |= {
                "phase": phase, "containerStatuses": [{"name": "main", "state": state}], "conditions": conditions
            }  # fmt: skip

        self.server.change("pods", key, end)

    def is_running(self, key: str) -> bool:
        """Whether a GPUJob has a Job that may have pods."""
        job = self.server.find("jobs", key)
        return job is not None and not job["spec"].get("suspend") and not _is_over(job)

    # --- garbage collector -------------------------------------------------------------------------------------

    def _collect_garbage(self) -> None:
        for plural in ("jobs", "services", "pods"):
            for each in self.server.all(plural):
                if any(self._is_gone(owner, of=each) for owner in each["metadata"].get("ownerReferences", ())):
                    self._delete(plural, each)

    def _is_gone(self, owner: Values, *, of: Values) -> bool:
        found = self.server.find(_KINDS[owner["kind"]], f"{of['metadata']['namespace']}/{owner['name']}")
        return found is None or found["metadata"]["uid"] != owner["uid"]

    def _delete(self, plural: str, each: Values) -> None:
        meta = each["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        if plural != "pods" or not each["spec"].get("nodeName") or _phase(each) in {"Succeeded", "Failed"}:
            self.server.delete(plural, key)
        elif "deletionTimestamp" not in meta:
            self.server.change(plural, key, lambda pod: pod["metadata"].update(deletionTimestamp=self._time()))

    # --- Job controller ----------------------------------------------------------------------------------------

    def _follow(self, job: Values) -> None:
        key, pods = _key(job), self._pods_of(job)
        if _is_over(job) or self.server.find("jobs", key) is None:
            return
        if job["spec"].get("suspend"):
            for pod in pods:
                self._delete("pods", pod)
            self._write(key, active=0, ready=0, startTime=None)
            return
        succeeded = {_index(pod) for pod in pods if _phase(pod) == "Succeeded"}
        failed = [pod for pod in pods if _phase(pod) == "Failed" and not _is_ignored(pod, job=job)]
        wanted = range(job["spec"].get("completions") or job["spec"]["parallelism"])
        if len(failed) > job["spec"].get("backoffLimit", 6):
            self._end(key, pods, type="Failed", reason="BackoffLimitExceeded")
        elif self._is_overdue(job):
            self._end(key, pods, type="Failed", reason="DeadlineExceeded")
        elif len(succeeded) == len(wanted):
            self._write(key, succeeded=len(succeeded))
            self._end(key, [], type="Complete", reason="CompletionsReached")
        else:
            alive = {_index(pod) for pod in pods if _phase(pod) not in {"Succeeded", "Failed"}}
            for index in [each for each in wanted if each not in alive | succeeded]:
                self._create_pod(job, index=index, attempt=len(pods))
            start = job.get("status", {}).get("startTime") or self._time()
            counts = {"active": len(alive), "succeeded": len(succeeded), "failed": len(failed)}
            self._write(key, startTime=start, **counts)

    def _is_overdue(self, job: Values) -> bool:
        limit, start = job["spec"].get("activeDeadlineSeconds"), job.get("status", {}).get("startTime")
        if limit is None or start is None:
            return False
        return bool(datetime.fromisoformat(start) + timedelta(seconds=limit) <= self._now())

    def _create_pod(self, job: Values, *, index: int, attempt: int) -> None:
        template, meta = job["spec"]["template"], job["metadata"]
        annotations = {**template["metadata"].get("annotations", {}), names.COMPLETION_INDEX: str(index)}
        owner = {
            "apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True
        }  # fmt: skip
        metadata = {
            "name": f"{meta['name']}-{index}-{meta['uid'].rpartition('#')[2]}-{self.server._version}",
            "namespace": meta["namespace"],
            "labels": template["metadata"].get("labels", {}),
            "annotations": annotations,
            "ownerReferences": [owner],
        }
        self.server.create("pods", {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}})

    def _end(self, key: str, pods: list[Values], **condition: str) -> None:
        for pod in pods:
            if _phase(pod) not in {"Succeeded", "Failed"}:
                self._delete("pods", pod)
        time = self._time()
        made = {"status": "True", "message": "", "lastTransitionTime": time, **condition}
        done = {"completionTime": time} if condition["type"] == "Complete" else {}
        self._write(key, conditions=[made], active=0, **done)

    def _write(self, key: str, **status: Any) -> None:
        self.server.change("jobs", key, lambda job: job.update(status={**job.get("status", {}), **status}))

    def _pods_of(self, job: Values) -> list[Values]:
        uid = job["metadata"]["uid"]
        return [
            pod
            for pod in self.server.all("pods")
            if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences", ()))
        ]

    def _note_start(self, plural: str, type_: str, values: Values) -> None:
        if plural == "jobs" and type_ != "DELETED" and not values["spec"].get("suspend") and not _is_over(values):
            run = _key(values), f"{values['metadata']['uid']} {values['metadata']['generation']}"
            if run not in self.starts:
                self.starts.append(run)

    # --- disruption controller ---------------------------------------------------------------------------------

    def _count_healthy(self, plural: str, _type: str, values: Values) -> None:
        """Follow the pods of budgets that say how many are to remain; the status of any other is the test's."""
        if plural not in {"pods", "poddisruptionbudgets"}:
            return
        for budget in self.server.all("poddisruptionbudgets"):
            if budget["metadata"]["namespace"] == values["metadata"]["namespace"] and "minAvailable" in budget["spec"]:
                self._write_allowed(budget)

    def _write_allowed(self, budget: Values) -> None:
        known = budget["status"].get("disruptedPods", {})
        healthy = {each["metadata"]["name"] for each in healthy_pods(self.server, budget=budget)}
        recorded = {name: at for name, at in known.items() if name in healthy and not self._is_forgotten(at)}
        allowed = max(0, len(healthy) - len(recorded) - budget["spec"]["minAvailable"])
        status = {
            "disruptedPods": recorded,
            "disruptionsAllowed": allowed,
            "observedGeneration": budget["metadata"]["generation"],
        }
        self.server.change("poddisruptionbudgets", _key(budget), lambda each: each.update(status=status))

    def _is_forgotten(self, recorded_at: str) -> bool:
        return self._now() - datetime.fromisoformat(recorded_at) > _RECORD_TIME

    # --- scheduler ---------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        waiting = [pod for pod in self.server.all("pods") if _is_unbound(pod)]
        if not waiting:
            return
        view = view_of(self.server)
        for values in waiting:
            pod = as_typed("pods", values)
            for node in self._nodes_for(pod):
                if self._bind(pod, node=node, view=view):
                    break

    def _nodes_for(self, pod: Pod) -> list[str]:
        """The node of the plan that the status and the pod agree on; without a plan those that are not cordoned.

        A pod that is seen before its plan is in the status has no plan, and its affinity names its nodes.
        """
        plan = worker_of_plan(pod)
        nodes = [each["metadata"]["name"] for each in self.server.all("nodes") if not each["spec"].get("unschedulable")]
        if plan is None:
            return nodes
        found = self.server.find("gpujobs", f"{pod.metadata.namespace}/{job_of(pod)}")
        job: GPUJob | None = None if found is None else as_typed("gpujobs", found)
        if job is None or job.metadata.uid != plan.plan.job:
            return []
        if job.status.plans < plan.plan.generation:
            return [node for node in plan.plan.nodes if node in nodes]
        if job.status.placement is None or job.status.placement.generation != plan.plan.generation:
            return []
        return [nodes_by_worker(job.status.placement)[plan.worker]]

    def _bind(self, pod: Pod, *, node: str, view: ClusterView) -> bool:
        """Bind it if the node takes it. Returns whether it does."""
        ask, annotations = self._asks.request(pod), {}
        if ask is not None:
            fit = check(view.ledger, ask=ask, node=node, key=pod.metadata.uid)
            if not isinstance(fit, Fit):
                return False
            view.ledger.commit(fit.claim)
            annotations = annotations_of(allocation_of(fit.claim, pod=pod, tenancy=Tenancy(job=job_of(pod))))

        def bind(values: Values) -> None:
            values["spec"]["nodeName"] = node
            values["metadata"].setdefault("annotations", {}).update(annotations)

        self.server.change("pods", f"{pod.metadata.namespace}/{pod.metadata.name}", bind)
        return True

    # --- kubelet -----------------------------------------------------------------------------------------------

    def _run(self, pod: Values) -> None:
        key, going = _key(pod), pod["metadata"].get("deletionTimestamp")
        if going is not None:
            if (self._now() - datetime.fromisoformat(going)).total_seconds() >= self.ending_seconds:
                self.server.delete("pods", key)
        elif pod["spec"].get("nodeName") and _phase(pod) == "Pending":
            running = [{"name": "main", "state": {"running": {"startedAt": self._time()}}}]
            self.server.change(
                "pods", key,
                lambda each: each["status"].update(
                    phase="Running", startTime=self._time(), containerStatuses=running
                ),
            )  # fmt: skip

    def _time(self) -> str:
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")


def healthy_pods(server: ApiServer, *, budget: Values) -> list[Values]:
    """The pods that a budget covers, run, and are not ending."""
    labels = budget["spec"]["selector"].get("matchLabels", {}).items()
    return [
        pod
        for pod in server.all("pods")
        if pod["metadata"]["namespace"] == budget["metadata"]["namespace"]
        and labels <= pod["metadata"].get("labels", {}).items()
        and _phase(pod) == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    ]


def view_of(server: ApiServer) -> ClusterView:
    """What the objects say now, by a view that has seen nothing else."""
    view = ClusterView(ledger=Ledger())
    for node in server.typed("nodes"):
        view.node_changed(node)
    for gpunode in server.typed("gpunodes"):
        view.gpunode_changed(gpunode)
    for pod in server.typed("pods"):
        view.pod_changed(pod)
    return view


def _key(values: Values) -> str:
    meta = values["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def _phase(pod: Values) -> str:
    phase: str = pod["status"]["phase"]
    return phase


def _index(pod: Values) -> int:
    return int(pod["metadata"]["annotations"][names.COMPLETION_INDEX])


def _is_ignored(pod: Values, *, job: Values) -> bool:
    """Whether the Job replaces a disrupted pod without counting a failure."""
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", [{}])
    return rules[0].get("action") == "Ignore" and bool(pod["status"].get("conditions"))


def _is_over(job: Values) -> bool:
    return bool(job.get("status", {}).get("conditions"))


def _is_unbound(pod: Values) -> bool:
    is_going = "deletionTimestamp" in pod["metadata"]
    is_ours = pod["spec"].get("schedulerName") != names.PLACEHOLDER_SCHEDULER
    return _phase(pod) == "Pending" and not pod["spec"].get("nodeName") and not is_going and is_ours
