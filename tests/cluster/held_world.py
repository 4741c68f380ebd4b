"""The world of the machine of guests on a real control plane: the same steps, with each kind's own controller."""

import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from dovetail import names
from dovetail.api.resources import GPUJOBS, GPUQUOTAS, PODS, Resource
from dovetail.jobs.guests.gangs import POD_GROUP_OBJECTS
from dovetail.jobs.guests.registry import KINDS as ADAPTERS
from dovetail.jobs.guests.replicas import REPLICATED
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound, StatusError
from dovetail_cli.cluster.audit import run_audit
from dovetail_cli.cluster.connection import Cluster as Connected
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import FOR_EVER
from tests.world.cluster import _phase
from tests.world.guests import NAMESPACE
from tests.world.kinds import GROUPS, KINDS, MILLI, KindOfWork, least_of
from tests.world.test_held_machine import HeldMachine

Values = dict[str, Any]
T = TypeVar("T")
RUNTIME: Final = "drawn"
RESOURCES: Final[dict[str, Resource]] = {
    each.plural: each
    for each in (
        GPUJOBS, GPUQUOTAS, PODS, POD_GROUP_OBJECTS.resource, *(kind.resource for kind in (*ADAPTERS, *REPLICATED))
    )
}  # fmt: skip
_SETTLES_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.25
_OVER: Final = frozenset({"Succeeded", "Failed"})


def _key(found: Values) -> str:
    metadata = found["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


class Refused(Exception):
    """The API server, or a kind's webhook, has refused a step: the object stays as it was."""


class RealServer:
    """The objects of one namespace. Blocks, as the API server in memory does."""

    def __init__(self, client: Client, *, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.client = client
        self.run = run

    @property
    def objects(self) -> dict[str, dict[str, Values]]:
        """All objects by plural and key."""
        return {plural: {_key(each): each for each in self.all(plural)} for plural in ("pods", "gpujobs")}

    def all(self, plural: str) -> list[Values]:
        """All objects of a kind, by key."""
        resource = RESOURCES[plural]
        where = NAMESPACE if resource.namespaced else None
        found, _ = self.run(self.client.list(resource, as_type=Values, namespace=where))
        for each in found:
            each.setdefault("status", {})
            each["metadata"].setdefault("labels", {})
            each["metadata"].setdefault("annotations", {})
        return sorted(found, key=_key)

    def find(self, plural: str, key: str) -> Values | None:
        """One object; None if it is not there."""
        return next((each for each in self.all(plural) if _key(each) == key), None)

    def create(self, plural: str, body: Values) -> None:
        """Create an object. Raises `Refused`."""
        resource = RESOURCES[plural]
        where = NAMESPACE if resource.namespaced else None
        self._ask(self.client.create(resource, body=body, as_type=Values, namespace=where))

    def change(self, plural: str, key: str, change: Callable[[Values], object]) -> None:
        """Change an object as it is now. Raises `Refused`."""
        resource, (_, _, name) = RESOURCES[plural], key.rpartition("/")
        where = NAMESPACE if resource.namespaced else None
        while True:
            try:
                found = self.run(self.client.get(resource, name=name, as_type=Values, namespace=where))
                change(found)
                self._ask(self.client.update(resource, name=name, body=found, as_type=Values, namespace=where))
            except Conflict:
                continue
            except NotFound:
                pass
            return

    def delete(self, plural: str, key: str, *, orphan: bool = False, grace_seconds: int | None = None) -> None:
        """Delete an object; with `orphan`, what it has made stays."""
        resource, (_, _, name) = RESOURCES[plural], key.rpartition("/")
        where = NAMESPACE if resource.namespaced else None
        how = "Orphan" if orphan else "Background"
        call = self.client.delete(
            resource, name=name, namespace=where, propagation=how, grace_period_seconds=grace_seconds
        )
        with suppress(NotFound):
            self.run(call)

    def _ask(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            return self.run(call)
        except (Conflict, NotFound):
            raise
        except StatusError as error:
            raise Refused(str(error)) from error


class RealCluster:
    """What users and kubelets do."""

    def __init__(self, server: RealServer, *, sandbox: Cluster) -> None:
        self.server = server
        self._sandbox = sandbox
        self._made = 0

    def create(self, kind: KindOfWork, *, name: str, gpu: str, count: int) -> None:
        """An object that names the queue."""
        annotations = {names.REQUEST: gpu} if kind.kind == "TrainJob" else {}
        spec = kind.spec(gpu, count=count)
        _complete(kind, spec=spec, name=name)
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "labels": {names.LABEL_QUEUE: "default"}, "annotations": annotations},
            "spec": spec,
        }
        self.server.create(kind.plural, body)

    def create_group(self, *, name: str, gpu: str, count: int, index: int = 0) -> None:
        """Plain pods that start together, or one more of them."""
        for at in range(index, index + 1) if index else range(count):
            labels = {names.LABEL_QUEUE: "default", names.POD_GROUP: name}
            said = {names.POD_GROUP_SIZE: str(count), names.REQUEST: gpu}
            if self.server.find("pods", f"{NAMESPACE}/{name}-{at}") is None:
                self._create_pod(f"{name}-{at}", labels=labels, annotations=said)

    def create_gang(self, *, name: str, gpu: str, count: int, index: int = 0) -> None:
        """A PodGroup and its pods, all but one of which start together, or one more of them."""
        if not index:
            policy = {"gang": {"minCount": least_of(count)}}
            self.server.create("podgroups", {"metadata": {"name": name}, "spec": {"schedulingPolicy": policy}})
        for at in range(index, index + 1) if index else range(count):
            if self.server.find("pods", f"{NAMESPACE}/{name}-{at}") is None:
                named = {"schedulingGroup": {"podGroupName": name}}
                labels = {names.LABEL_QUEUE: "default"}
                self._create_pod(f"{name}-{at}", labels=labels, annotations={names.REQUEST: gpu}, **named)

    def forge(self, *, run: str, gpu: str) -> None:
        """A user's pod with the run of a guest."""
        self._made += 1
        gate = {"schedulingGates": [{"name": names.QUEUE_GATE}]}
        self._create_pod(f"forged-{self._made}", labels={names.RUN: run}, annotations={names.REQUEST: gpu}, **gate)

    def _create_pod(self, name: str, *, labels: Values, annotations: Values, **spec: Any) -> None:
        metadata = {"name": name, "labels": labels, "annotations": annotations}
        pods = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}
        containers = [{"name": "main", "image": "busybox"}]
        self.server.create("pods", {"metadata": metadata, "spec": {**pods, "containers": containers}})

    def end_worker(self, key: str, *, exit_code: int) -> None:
        """A pod's container ends."""
        ended = {"exitCode": exit_code, "reason": "Error" if exit_code else "Completed"}
        status = {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [
                {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0,
                 "state": {"terminated": ended}}
            ],
        }  # fmt: skip
        client, name = self.server.client, key.rpartition("/")[2]
        patch = client.patch(
            PODS, name=name, patch={"status": status}, as_type=Values, namespace=NAMESPACE, subresource="status"
        )
        self.server.run(patch)

    def orphan(self, plural: str, key: str) -> None:
        """As `kubectl delete --cascade=orphan` does."""
        self.server.delete(plural, key, orphan=True)

    def restart_extender(self) -> None:
        """Another extender."""
        self._sandbox.restart("extender")

    def _delete(self, plural: str, found: Values) -> None:
        self.server.delete(plural, _key(found), grace_seconds=0)

    def _is_gone(self, owner: Values, *, of: Values) -> bool:
        plurals = {"GPUJob": "gpujobs", "Pod": "pods"} | {each.kind: each.plural for each in KINDS.values()}
        found = self.server.find(plurals[owner["kind"]], f"{of['metadata']['namespace']}/{owner['name']}")
        return found is None or found["metadata"]["uid"] != owner["uid"]


def _complete(kind: KindOfWork, *, spec: Values, name: str) -> None:
    """What the real kinds want beyond what the machine's have."""
    for part in kind.parts(spec):
        metadata, pods = part.template["metadata"], part.template["spec"]
        metadata["annotations"][names.RUN_SECONDS] = str(FOR_EVER)
        for container in pods["containers"]:
            # The webhook writes them.
            container.pop("resources", None)
        pods["terminationGracePeriodSeconds"] = 0
        if kind.kind in {"Job", "JobSet"}:
            pods["restartPolicy"] = "Never"
        if kind.kind in {"Deployment", "StatefulSet"}:
            metadata["labels"]["app"] = name
    match kind.kind:
        case "Deployment" | "StatefulSet":
            spec["selector"] = {"matchLabels": {"app": name}}
            more = {"strategy": {"type": "Recreate"}} if kind.kind == "Deployment" else {"serviceName": name}
            spec |= more if kind.kind == "Deployment" else {**more, "podManagementPolicy": "Parallel"}
        case "TrainJob":
            del spec["gpu"]
            spec["runtimeRef"] = {"name": RUNTIME}
        case "RayCluster" | "RayJob":
            cluster = spec if kind.kind == "RayCluster" else spec["rayClusterSpec"]
            cluster["rayVersion"] = "2.46.0"
            for part in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
                part["rayStartParams"] = {}
            if kind.kind == "RayJob":
                submitter = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}
                metadata = {"annotations": {names.RUN_SECONDS: str(FOR_EVER)}}
                spec |= {"entrypoint": "train", "submitterPodTemplate": {"metadata": metadata, "spec": submitter}}
        case "MPIJob":
            spec["slotsPerWorker"] = 1


class RealWorld:
    """What the machine calls its world."""

    def __init__(self, client: Client, *, sandbox: Cluster, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self.server = RealServer(client, run=run)
        self.cluster = RealCluster(self.server, sandbox=sandbox)
        self.sandbox = sandbox

    def add_node(self, name: str, *, gpus: int) -> None:
        """The sandbox has the machine's nodes."""

    def pass_time(self, seconds: float) -> None:
        """Let time pass."""
        time.sleep(seconds)

    def settle(self) -> None:
        """The machine looks until it finds what must hold."""

    def set_quota(self, name: str, **spec: Any) -> None:
        """A quota of the namespace."""
        if self.server.find("gpuquotas", name) is None:
            self.server.create("gpuquotas", {"metadata": {"name": name}, "spec": spec})
        else:
            self.server.change("gpuquotas", name, lambda quota: quota.update(spec=spec))

    def kill_after(self, _writes: int) -> None:
        """The operator is killed now: what it writes next is not known."""
        self.restart()

    def restart(self) -> None:
        """The operator is killed, and another one begins."""
        self.sandbox.restart("operator")

    def close(self) -> None:
        """Delete everything, and wait until it has gone."""
        for plural in (*(kind.plural for kind in KINDS.values()), "pods", "gpujobs", "gpuquotas"):
            for each in self.server.all(plural):
                self.server.delete(plural, _key(each), grace_seconds=0 if plural == "pods" else None)
        until = time.monotonic() + _SETTLES_SECONDS
        while left := [each for plural in ("pods", "gpujobs") for each in self.server.all(plural)]:
            assert time.monotonic() < until, f"{[_key(each) for each in left]} are left"
            for each in left:
                if "controller" not in str(each["metadata"].get("ownerReferences")) and _phase(each) != "Running":
                    self.server.delete("pods", _key(each), grace_seconds=0)
            time.sleep(_POLL_SECONDS)


class RealMachine(HeldMachine):
    """The machine of guests on a sandbox. What is asked for is what the API server has accepted."""

    def __init__(self, world: RealWorld) -> None:
        self._real = world
        super().__init__()

    def make_world(self, *, seed: int | None = None) -> Any:
        """The sandbox; nothing is drawn in it."""
        return self._real

    def settle(self) -> None:
        """Wait until held equals asked, by the machine's own count and by `dovetail audit`."""
        until = time.monotonic() + _SETTLES_SECONDS
        while True:
            try:
                self._read_wishes()
                self.check_holds()
                self.check_records()
                self.check_counts()
                self.check_gangs()
                self.check_quota()
                self.check_audit()
            except AssertionError:
                if time.monotonic() > until:
                    raise
                time.sleep(_POLL_SECONDS)
            else:
                return

    def _read_wishes(self) -> None:
        for name, wish in self.wishes.alive.items():
            if wish.kind in GROUPS:
                continue
            found = self._real.server.find(KINDS[wish.kind].plural, f"{NAMESPACE}/{name}")
            if found is not None and wish.kind == "TrainJob":
                wish.count = found["spec"]["trainer"]["numNodes"]
            elif found is not None:
                *_, part = KINDS[wish.kind].parts(found["spec"])
                wish.count = part.count
                wish.gpu = part.template["metadata"]["annotations"][names.REQUEST]

    def check_holds(self) -> None:
        """Each planned worker has a pod; `check_audit` counts what is held."""
        seats = {self._seat(pod) for pod in self._living()}
        for uid, kept in self._planned().items():
            for worker in kept:
                assert f"{uid}/{worker}" in seats, f"worker {worker} of {uid} is planned, and has no pod"

    def check_quota(self) -> None:
        """The quota's use is what its pods hold."""
        quota = self._real.server.find("gpuquotas", "q")
        if quota is not None:
            holding = [pod for pod in self._living() if pod["spec"].get("nodeName")]
            milli = sum(MILLI[pod["metadata"]["annotations"].get(names.REQUEST, "")] for pod in holding if
                        names.REQUEST in pod["metadata"]["annotations"])  # fmt: skip
            assert quota["status"].get("gpus", 0.0) == milli / 1000, f"{quota['status']} and {milli} milli"

    def check_audit(self) -> None:
        """`dovetail audit` finds nothing, without time to put anything right."""
        connected = Connected(client=self._real.server.client, namespace=NAMESPACE)
        report = self._real.server.run(run_audit(connected, older_than_seconds=0.0))
        assert not report.items, "\n".join(f"{each.kind} {each.subject}: {each.message}" for each in report.items)


def take_all(steps: list[Any], *, world: RealWorld, said: Callable[[str], None]) -> None:
    """Take the steps; what the API server refuses changes nothing. At the end nothing is held."""
    machine = RealMachine(world)
    for step in steps:
        try:
            step.take(machine)
        except Refused as error:
            said(f"{step}: refused, {error}")
        else:
            said(str(step))
        machine.settle()
        machine.each_seat_has_the_size_of_its_record()
    machine.wishes.alive.clear()
    world.close()
    machine.settle()
