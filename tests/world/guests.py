"""A world with objects of other kinds: their controllers, the webhook's patches, and the real extender as scheduler."""

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType, key_of
from dovetail.api.resources import Resource
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.jobs.guests.gangs import POD_GROUP_OBJECTS
from dovetail.jobs.guests.kind import Guest
from dovetail.jobs.guests.pod_admission import patch_of_queued_pod
from dovetail.jobs.guests.registry import KINDS as ADAPTERS
from dovetail.jobs.guests.registry import admission_patch, kind_of
from dovetail.jobs.guests.replicas import patch_of_replicated, replicated_of
from dovetail.kube.client import Client
from dovetail.pods.allocation import annotations_of
from dovetail_extender.cluster.event_handlers import EventHandlers
from dovetail_extender.decide.filter_score import Decisions, Rules, allocation_of
from dovetail_extender.decide.unschedulable import Waiting
from dovetail_extender.holds.planned_workers import PlannedJob
from dovetail_extender.protocol import ScheduledPod
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.watchers.guests.keeper import GuestKeeper
from dovetail_operator.watchers.guests.pod_groups import PodGroupWatch
from dovetail_operator.watchers.guests.train_jobs import TrainJobWatch
from tests.core.jobs.guests.test_kinds import patched
from tests.operator_.builders import make_keeper
from tests.world.api import ApiClient, ApiServer, Values, as_typed
from tests.world.cluster import Cluster, _is_unbound, _key, _phase
from tests.world.kinds import KINDS, KindOfWork, least_of, template
from tests.world.operator import Operator
from tests.world.world import World

USER: Final = "ada"
NAMESPACE: Final = "team"
NOW: Final = "2026-01-01T12:00:00Z"
_OVER: Final = frozenset({"Succeeded", "Failed"})
_GUESTS: Final = {each.resource.plural: each for each in ADAPTERS}


class Extender:
    """The extender's decisions over the same objects."""

    def __init__(self, server: ApiServer, *, clock: Callable[[], float]) -> None:
        self.ledger = Ledger()
        self.view = ClusterView(ledger=self.ledger)
        self.decisions = Decisions(view=self.view, rules=Rules(), clock=clock)
        waiting = Waiting(ledger=self.ledger, clock=clock)
        self._handlers = EventHandlers(decisions=self.decisions, waiting=waiting)
        for plural in ("nodes", "gpunodes", "gpuquotas", "pods", "gpujobs"):
            for values in server.all(plural):
                self.see(plural, "ADDED", values)

    def see(self, plural: str, type_: EventType, values: Values) -> None:
        """Take an event of the API server."""
        gone = type_ == "DELETED"
        match plural:
            case "nodes" if not gone:
                self.view.node_changed(as_typed(plural, values))
            case "gpunodes" if not gone:
                self.view.gpunode_changed(as_typed(plural, values))
            case "gpuquotas":
                quota: GPUQuota = as_typed(plural, values)
                self._handlers.quota_event(type_, quota)
            case "pods":
                pod: Pod = as_typed(plural, values)
                (self.view.pod_gone if gone else self.view.pod_changed)(pod)
                self._handlers.pod_event(type_, pod)
            case "gpujobs":
                self._handlers.job_event(type_, msgspec.convert(values, PlannedJob))

    def place(self, pod: ScheduledPod, *, nodes: list[str]) -> Claim | None:
        """What kube-scheduler asks of it for one pod, and the claim of its bind; None if no node takes the pod."""
        found = self.decisions.filter(pod, nodes=nodes)
        if not found.nodes or found.ask is None:
            return None
        scores = self.decisions.prioritize(pod, nodes=found.nodes)
        best = max(zip(scores, found.nodes, strict=True))[1]
        claim = self.decisions.claim(found.ask, pod=pod, node=best)
        return claim if isinstance(claim, Claim) else None

    def holds(self) -> dict[str, int]:
        """What is held for planned workers, in thousandths of a GPU, by `UID/worker`."""
        # What is kept free for a waiting job has keys with more parts.
        planned = (each for each in self.ledger.claims() if self.ledger.is_hold(each.key) and each.key.count("/") == 1)
        return {each.key: each.milli for each in planned}


class GuestCluster(Cluster):
    """The controllers of all kinds."""

    def __init__(self, server: ApiServer, *, now: Any, clock: Callable[[], float]) -> None:
        super().__init__(server, now=now)
        self._clock = clock
        self.extender = Extender(server, clock=clock)
        server.watches.append(self._tell_extender)

    def step(self) -> None:
        self._collect_garbage()
        for kind in KINDS.values():
            for each in self.server.all(kind.plural):
                self._keep(kind, each)
        self.extender.decisions.plans.review()
        self._schedule()
        for pod in self.server.all("pods"):
            self._run(pod)

    def _tell_extender(self, plural: str, type_: EventType, values: Values) -> None:
        self.extender.see(plural, type_, values)

    def restart_extender(self) -> None:
        """Another extender, which lists everything."""
        self.extender = Extender(self.server, clock=self._clock)

    # --- what users do -----------------------------------------------------------------------------------------

    def create(self, kind: KindOfWork, *, name: str, gpu: str, count: int) -> None:
        """An object that names the queue, as the webhook leaves it."""
        labels = {names.LABEL_QUEUE: "default"}
        annotations = {names.REQUEST: gpu} if kind.kind == "TrainJob" else {}
        spec = kind.spec(gpu, count=count)
        if kind.kind not in {"TrainJob", "Job", "JobSet", "RayCluster", "RayJob", "MPIJob"}:
            for part in kind.parts(spec):
                part.template["metadata"]["labels"]["app"] = name
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": annotations},
            "spec": spec,
            "status": {},
        }
        self.server.create(kind.plural, self._admitted(kind, body))

    def create_group(self, *, name: str, gpu: str, count: int, index: int = 0) -> None:
        """Plain pods that start together, or one more of them."""
        for at in range(index, index + 1) if index else range(count):
            body = template(gpu)
            body["metadata"]["labels"] = {names.LABEL_QUEUE: "default", names.POD_GROUP: name}
            body["metadata"]["annotations"][names.POD_GROUP_SIZE] = str(count)
            body["metadata"] |= {"name": f"{name}-{at}", "namespace": NAMESPACE}
            if self.server.find("pods", f"{NAMESPACE}/{name}-{at}") is None:
                self._create(body)

    def create_gang(self, *, name: str, gpu: str, count: int, index: int = 0) -> None:
        """Pods that name an object which says how many of them start together, or one more of them."""
        if not index:
            policy = {"gang": {"minCount": least_of(count)}}
            meta = {"name": name, "namespace": NAMESPACE}
            self.server.create("podgroups", {"metadata": meta, "spec": {"schedulingPolicy": policy}, "status": {}})
        for at in range(index, index + 1) if index else range(count):
            body = template(gpu)
            body["metadata"]["labels"] = {names.LABEL_QUEUE: "default"}
            body["metadata"] |= {"name": f"{name}-{at}", "namespace": NAMESPACE}
            body["spec"]["schedulingGroup"] = {"podGroupName": name}
            if self.server.find("pods", f"{NAMESPACE}/{name}-{at}") is None:
                self._create(body)

    def forge(self, *, run: str, gpu: str) -> None:
        """A user's pod with the run of a guest."""
        body = template(gpu)
        name = f"forged-{self.server._version}"
        body["metadata"] |= {"name": name, "namespace": NAMESPACE, "labels": {names.RUN: run}}
        body["spec"]["schedulingGates"] = [{"name": names.QUEUE_GATE}]
        self._create(body)

    def orphan(self, plural: str, key: str) -> None:
        """Delete an object, and leave what it has made behind: nothing has it as its owner any more."""
        uid = self.server.objects[plural][key]["metadata"]["uid"]

        def leave(values: Values) -> None:
            owners = values["metadata"].get("ownerReferences", [])
            values["metadata"]["ownerReferences"] = [each for each in owners if each["uid"] != uid]

        for other in ("pods", "gpujobs", "jobsets"):
            for each in self.server.all(other):
                self.server.change(other, _key(each), leave)
        self.server.delete(plural, key)

    def _admitted(self, kind: KindOfWork, body: Values) -> Values:
        group = kind.api_version.partition("/")[0]
        found = msgspec.convert(body, Guest)
        replicated = replicated_of(group=group, kind=kind.kind)
        if replicated is not None:
            return patched(body, patch=patch_of_replicated(found, kind=replicated))
        adapter = kind_of(group=group, kind=kind.kind)
        assert adapter is not None
        run = f"run-{self.server._version}"
        return patched(body, patch=admission_patch(found, kind=adapter, run=run, user=USER))

    def _create(self, body: Values) -> None:
        """A pod, as the webhook leaves it."""
        patch = patch_of_queued_pod(msgspec.convert(body, Guest), review=f"r{self.server._version}", user=USER)
        made = patched(body, patch=patch)
        self.server.create("pods", {**made, "status": {"phase": "Pending"}})

    # --- controllers -------------------------------------------------------------------------------------------

    def _is_gone(self, owner: Values, *, of: Values) -> bool:
        plurals = {"GPUJob": "gpujobs", "Pod": "pods"} | {each.kind: each.plural for each in KINDS.values()}
        found = self.server.find(plurals[owner["kind"]], f"{of['metadata']['namespace']}/{owner['name']}")
        return found is None or found["metadata"]["uid"] != owner["uid"]

    def _collect_garbage(self) -> None:
        for plural in ("jobsets", "gpujobs", "pods"):
            for each in self.server.all(plural):
                owners = each["metadata"].get("ownerReferences", ())
                if owners and all(self._is_gone(owner, of=each) for owner in owners):
                    self._delete(plural, each)

    def _keep(self, kind: KindOfWork, found: Values) -> None:
        """What the kind's controller does with one object."""
        if kind.kind == "TrainJob":
            self._keep_job_set(found)
            return
        pods = self._pods_of(found)
        suspended = kind.is_suspended(found["spec"])
        self._say(kind, found, suspended=suspended, pods=pods)
        for part in kind.parts(found["spec"]):
            own = [pod for pod in pods if pod["metadata"]["labels"].get("role") == part.role]
            self._keep_part(found, part.template, role=part.role, pods=own, count=0 if suspended else part.count)

    def _keep_part(self, owner: Values, made_of: Values, *, role: str, pods: list[Values], count: int) -> None:
        alive = [pod for pod in pods if _phase(pod) not in _OVER and "deletionTimestamp" not in pod["metadata"]]
        # Those that wait go first, and then the newest, as the Job controller and ReplicaSets do.
        alive.sort(key=lambda pod: (bool(pod["spec"].get("nodeName")), -int(pod["metadata"]["uid"].rpartition("#")[2])))
        for pod in alive[: max(0, len(alive) - count)]:
            self._delete("pods", pod)
        for _ in range(count - len(alive)):
            meta, inner = owner["metadata"], made_of["metadata"]
            reference = {key: owner[key] for key in ("apiVersion", "kind")}
            metadata = {
                "name": f"{meta['name']}-{role}-{self.server._version}",
                "namespace": meta["namespace"],
                "labels": {**inner.get("labels", {}), "role": role},
                "annotations": dict(inner.get("annotations", {})),
                "ownerReferences": [{**reference, "name": meta["name"], "uid": meta["uid"], "controller": True}],
            }
            self._create({"metadata": metadata, "spec": made_of["spec"]})

    def _keep_job_set(self, found: Values) -> None:
        """Kubeflow Trainer makes a JobSet of a TrainJob, and follows its number of nodes and its suspension."""
        meta, spec = found["metadata"], found["spec"]
        job_sets = KINDS["JobSet"]
        if self.server.find("jobsets", _key(found)) is None:
            (patch,) = [each for each in spec["runtimePatches"] if each["manager"] == "dovetail.dev/queue"]
            inner = patch["trainingRuntimeSpec"]["template"]["metadata"]
            owner = {key: found[key] for key in ("apiVersion", "kind")}
            pods = template(None)
            pods["spec"]["containers"][0] |= {
                "name": "node",
                "resources": template(spec["gpu"])["spec"]["containers"][0]["resources"],
            }
            job = {"spec": {"parallelism": spec["trainer"]["numNodes"], "completions": 50, "template": pods}}
            body = {
                "apiVersion": job_sets.api_version,
                "kind": "JobSet",
                "metadata": {
                    "name": meta["name"], "namespace": meta["namespace"], "labels": dict(inner["labels"]),
                    "annotations": dict(inner.get("annotations", {})),
                    "ownerReferences": [{**owner, "name": meta["name"], "uid": meta["uid"], "controller": True}],
                },
                "spec": {"suspend": True, "replicatedJobs": [{"name": "w", "replicas": 1, "template": job}]},
                "status": {},
            }  # fmt: skip
            self.server.create("jobsets", self._admitted(job_sets, body))

        def follow(job_set: Values) -> None:
            job_sets.scale(job_set["spec"], to=spec["trainer"]["numNodes"])
            job_set["spec"]["suspend"] = KINDS["TrainJob"].is_suspended(spec)

        self.server.change("jobsets", _key(found), follow)
        self._say(KINDS["TrainJob"], found, suspended=KINDS["TrainJob"].is_suspended(spec), pods=[])

    def _say(self, kind: KindOfWork, found: Values, *, suspended: bool, pods: list[Values]) -> None:
        """The status that says whether the object is suspended."""
        if not kind.path:
            return
        type_ = "RayClusterSuspended" if kind.kind == "RayCluster" else "Suspended"
        status: Values = {"conditions": [{"type": type_, "status": str(suspended), "reason": "T", "message": ""}]}
        if kind.kind == "RayJob":
            status = {"jobDeploymentStatus": "Suspended" if suspended else "Running"}
        if kind.kind == "Job":
            alive = [pod for pod in pods if _phase(pod) not in _OVER]
            ended = found["status"].get("succeeded", 0)
            seen = set(found["status"].get("seen", []))
            new = {_key(pod) for pod in pods if _phase(pod) == "Succeeded"} - seen
            status |= {"active": len(alive), "succeeded": ended + len(new), "seen": sorted(seen | new)}
            status |= {"startTime": None if suspended else found["status"].get("startTime") or self._time()}
        self.server.change(kind.plural, _key(found), lambda each: each.update(status=status))

    # --- scheduler ---------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        nodes = [each["metadata"]["name"] for each in self.server.all("nodes")]
        for values in self.server.all("pods"):
            if not _is_unbound(values) or values["spec"].get("schedulingGates"):
                continue
            pod = msgspec.convert(values, ScheduledPod)
            ask, annotations, node = self.extender.decisions.ask(pod), {}, nodes[0]
            if ask is not None:
                if (claim := self.extender.place(pod, nodes=nodes)) is None:
                    continue
                tenancy = self.extender.decisions.tenancies.tenancy(pod)
                annotations, node = annotations_of(allocation_of(claim, pod=pod, tenancy=tenancy)), claim.node
                self.extender.ledger.commit(claim)
            self._bind_to(_key(values), node=node, annotations=annotations)

    def _bind_to(self, key: str, *, node: str, annotations: Mapping[str, str]) -> None:
        def bind(values: Values) -> None:
            values["spec"]["nodeName"] = node
            values["metadata"].setdefault("annotations", {}).update(annotations)

        self.server.change("pods", key, bind)


class GuestClient(ApiClient):
    """It can evict pods too."""

    async def create(self, resource: Resource, *, body: Any, subresource: str = "", **more: Any) -> Any:
        if subresource != "eviction":
            return await super().create(resource, body=body, **more)
        key, uid = f"{more['namespace']}/{more['name']}", body["deleteOptions"]["preconditions"]["uid"]

        def write() -> Values:
            self._server._check("pods", key, {"uid": uid})
            if not self._server.objects["pods"][key]["spec"].get("nodeName"):
                self._server.delete("pods", key)
                return {}
            return self._server.change("pods", key, lambda pod: pod["metadata"].setdefault("deletionTimestamp", NOW))

        return await self._write(write, "POST eviction", dict)


class GuestOperator(Operator):
    """The operator with the watches of guests, and all pods."""

    _client_type = GuestClient

    def _make_guests(self, client: Client) -> GuestKeeper:
        self.pods: dict[str, Pod] = {}
        self.said: list[Announcement] = []
        self.keeper = make_keeper(
            client, state=self.state, pods=self.pods, post=self.said.append, clock=self._loop.time
        )
        watches = self.keeper.watches._watches
        (self._train_jobs,) = [each for each in watches if isinstance(each, TrainJobWatch)]
        (self._groups,) = [each for each in watches if isinstance(each, PodGroupWatch)]
        return self.keeper

    def _more_parts(self) -> list[Coroutine[Any, Any, None]]:
        return [self.keeper.run()]

    def _seen_as(self, plural: str, values: Values) -> Iterator[tuple[str, Any]]:
        labels = values["metadata"].get("labels", {})
        if plural in _GUESTS and names.LABEL_QUEUE in labels:
            yield plural, msgspec.convert(values, Guest)
        elif plural == "jobsets" and names.RUN in labels:
            yield "jobsets of trainjobs", msgspec.convert(values, Guest)
        elif plural not in _GUESTS:
            yield from super()._seen_as(plural, values)
        if plural == "podgroups":
            yield plural, msgspec.convert(values, Guest)
        if plural == "pods" and {names.LABEL_QUEUE, names.RUN} <= labels.keys():
            yield "queued pods", msgspec.convert(values, Guest)

    def _deliver(self, plural: str, type_: EventType, found: Any) -> None:
        if plural == "trainjobs":
            self._train_jobs.train_job_event(type_, found)
        elif plural == "jobsets of trainjobs":
            self._train_jobs.job_set_event(type_, found)
        elif plural == "queued pods":
            self._groups.pod_event(type_, found)
            self._groups.pass_on()
        elif plural == "podgroups":
            self._groups.gangs.object_event(type_, found, kind=POD_GROUP_OBJECTS)
            self._groups.pass_on()
        elif plural in _GUESTS:
            self.keeper._on_guest(type_, found, _GUESTS[plural])
        else:
            if plural == "pods" and type_ == "DELETED":
                self.pods.pop(key_of(found.metadata), None)
            elif plural == "pods":
                self.pods[key_of(found.metadata)] = found
            super()._deliver(plural, type_, found)


class GuestWorld(World):
    """A cluster whose jobs are objects of other kinds, with its operator and its extender."""

    cluster: GuestCluster
    operator: GuestOperator

    def _make_cluster(self) -> Cluster:
        return GuestCluster(self.server, now=self.now, clock=self.loop.time)

    def _make_operator(self, seed: int | None) -> Operator:
        return GuestOperator(self.server, loop=self.loop, seed=seed, died=lambda: None)
