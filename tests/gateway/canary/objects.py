"""A cluster of two tenants whose objects have the same names, on the same nodes and devices.

Each free text of an object carries a mark that begins with its tenant's word, such as `quokka-train-message`. Names of
objects are equal, so only marks, namespaces and users tell the tenants apart.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from dovetail import names
from dovetail.config.settings import Settings
from tests.gateway.builders import uid_of

Values = dict[str, Any]
RACK: Final = "example.com/rack"
SETTINGS: Final = Settings(topology_levels=[f"rack={RACK}"])
CREATED: Final = "2026-11-01T00:00:00Z"
# The size under which the first device of each node is sold, in GB.
# Where kubelet has the devices of a vendor's plugin.
PLUGIN: Final = ("capacity", "allocatable")
NOMINAL_GB: Final = {"one": 32, "two": 32, "slices": 40, "vendor": 16, "orphan": 16, "closed": 16}


@dataclass(frozen=True)
class Tenant:
    """A tenant. `offset` keeps its numbers, sizes and times apart from those of the other."""

    word: str
    offset: int

    @property
    def namespace(self) -> str:
        return f"{self.word}-ns"

    @property
    def user(self) -> str:
        return f"{self.word}-user"

    def mark(self, *of: str) -> str:
        return "-".join((self.word, *of))


ONE, TWO = Tenant("quokka", 0), Tenant("narwhal", 1)
TENANTS: Final = (ONE, TWO)
# A user with jobs of both tenants.
COMMON: Final = "common-user"
EMPTY: Final = "empty-ns"
NAMESPACES: Final = (ONE.namespace, TWO.namespace, EMPTY)

TOKENS: Final = {
    "quokka-token": "quokka-user",
    "narwhal-token": "narwhal-user",
    "reader-token": "reader-user",
    "both-token": "both-user",
    "empty-token": "empty-user",
    "admin-token": "admin-user",
    "nobody-token": "nobody-user",
}


# --- nodes ---------------------------------------------------------------------------------------------------------


def nodes() -> list[tuple[str, Values]]:
    tenants_of_half = [{"uid": _pod_uid(each, "share-0"), "usedMiB": 3000 + each.offset} for each in TENANTS]
    stranger = {"pid": 7, "command": TWO.mark("command"), "pod": f"{TWO.namespace}/{TWO.mark('pod')}"}
    v100 = [
        {"usedMiB": 9000, "utilization": 0.5, "tenants": [{"uid": _pod_uid(ONE, "train-0"), "usedMiB": 8000}]},
        {"usedMiB": 6001, "utilization": 0.25, "tenants": tenants_of_half},
        {"usedMiB": 1000, "utilization": 0.125, "temperatureCelsius": 70, "powerWatts": 250},
        {"usedMiB": 4000, "foreignMiB": 4000, "strangers": [stranger]},
    ]
    two = [
        {"usedMiB": 100},
        {"usedMiB": 200, "utilization": 0.75},
        # A smaller card of the same model: node `two` has cards of two sizes.
        {"memoryMiB": 16384},
        {"memoryMiB": 16384, "health": "Unhealthy", "healthReason": "Xid79FellOffTheBus"},
    ]
    slices = [{"memoryMiB": 40960, "migProfile": profile, "parent": "GPU-parent"} for profile in ("3g.40gb",) * 2]
    slices.append({"memoryMiB": 9856, "migProfile": "1g.10gb", "parent": "GPU-parent"})
    given = [
        {"uid": _pod_uid(each, "plain"), "namespace": each.namespace, "name": "plain", "devices": [f"vendor-{at}"]}
        for at, each in enumerate(TENANTS)
    ]
    over = [
        {
            "uid": _pod_uid(each, "share-0"),
            "namespace": each.namespace,
            "name": "share-0",
            "device": "one-1",
            "index": 1,
            "promisedMiB": 8000,
            "usedMiB": 9000,
            "since": CREATED,
            "ends": False,
        }
        for each in TENANTS
    ]
    return [
        *_node("one", devices=_cards("one", "V100", 32768, v100), overuses=over, driverVersion="580.1"),
        *_node("two", devices=_cards("two", "V100", 32768, two), cordoned=["two-2"], rack="r2"),
        *_node("slices", devices=_cards("slices", "A100-SXM4-80GB", 0, slices), runtimeVersion="13.0"),
        *_node("vendor", devices=_cards("vendor", "T4", 16384, [{}] * 4), assignments=given),
        *_node("closed", devices=_cards("closed", "T4", 16384, [{}]), unschedulable=True),
        *_node("orphan", devices=_cards("orphan", "T4", 16384, [{}]))[1:],
    ]


def _cards(node: str, model: str, memory_mib: int, each: list[Values]) -> list[Values]:
    common = {"vendor": "nvidia", "model": model, "memoryMiB": memory_mib}
    return [{"index": at, "uuid": f"{node}-{at}"} | common | own for at, own in enumerate(each)]


def _node(
    name: str,
    *,
    devices: list[Values],
    cordoned: list[str] | None = None,
    rack: str = "r1",
    unschedulable: bool = False,
    **status: Any,
) -> list[tuple[str, Values]]:
    labels = {names.LABEL_POOL: f"pool-{name}", RACK: rack} | (
        {} if name == "vendor" else {names.LABEL_MANAGED: "true"}
    )
    node = {
        "metadata": {"name": name, "uid": uid_of("node", name), "labels": labels},
        "spec": {"unschedulable": unschedulable},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    if name == "vendor":
        node["status"] |= {each: {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "4"} for each in PLUGIN}
    reported = {"devices": devices, "observedAt": "2100-01-01T00:00:00Z", "enforcement": {"mps": name == "one"}}
    gpunode = {
        "metadata": {"name": name, "uid": uid_of("gpunode", name)},
        "spec": {
            "cordoned": cordoned or [],
            "tenantLimits": {f"{name}-0": {"training": 4}, f"{name}-1": {"inference": 0}},
        },
        "status": reported | status,
    }
    return [("nodes", node), ("gpunodes", gpunode)]


# --- jobs ----------------------------------------------------------------------------------------------------------


def jobs(tenant: Tenant) -> list[tuple[str, Values]]:
    at = tenant.offset
    day = f"2026-11-01T0{1 + at}"
    held = tenant.offset * 2
    train = [_device(0, "one", held), _device(1, "two", at)]
    alloc = {"phase": "Running", "devices": [_device(0, "vendor", 2 + at, mib=16384)], "nodes": ["vendor"]}
    queue = {
        "position": 1 + at,
        "estimatedStart": f"{day}:30:00Z",
        "estimatedStartEarliest": f"{day}:20:00Z",
        "estimatedStartLatest": f"{day}:40:00Z",
        "boundsHeld": 0.75 + at / 8,
        "basis": tenant.mark("waits", "basis"),
        "basisDetails": [{"code": "OnBasis", "parameters": {"basis": tenant.mark("waits", "basis")}}],
        "reserved": {
            "time": f"2026-11-01T0{5 + at}:00:00Z",
            "nodes": [{"name": "one", "workers": 1}, {"name": "two", "workers": 1}],
            "kept": [{"name": "one", "keeps": ["1", "0.5"]}],
        },
    }
    idle = {
        "type": "Idle",
        "status": "True",
        "reason": "Idle",
        "message": tenant.mark("share", "idle"),
        "lastTransitionTime": CREATED,
    }
    memory = {"strategy": "Dynamic", "basis": tenant.mark("done", "basis"), "peakMiB": 5000 + 100 * at}
    training = {"dovetail.dev/task-type": "training"}
    made = [
        _job(
            tenant,
            "train",
            1,
            gpu=1,
            workers=2,
            activeDeadlineSeconds=9000 + at,
            workload="Training",
            status={
                "phase": "Running",
                "devices": train,
                "nodes": ["one", "two"],
                "startTime": f"{day}:00:00Z",
                "gpus": 2,
            },
        ),
        _job(
            tenant,
            "share",
            2,
            gpu="0.5",
            created=f"2026-11-01T00:0{1 + at}:00Z",
            workload="Inference",
            activeDeadlineSeconds=3600,
            labels={"dovetail.dev/task-type": "inference"},
            status={
                "phase": "Running",
                "nodes": ["one"],
                "startTime": f"{day}:10:00Z",
                "request": "0.5",
                "gpus": 1,
                "devices": [_device(0, "one", 1, share=500, mib=8000 + at)],
                "conditions": [idle],
            },
        ),
        _job(
            tenant,
            "mig",
            3,
            gpu="3g.40gb",
            status={
                "phase": "Running",
                "nodes": ["slices"],
                "devices": [_device(0, "slices", at, mib=40192)],
                "gpus": 1,
            },
        ),
        _job(
            tenant,
            "waits",
            4,
            gpu=1,
            workers=2,
            priority=100 + at,
            status={"phase": "Queued", "reason": "Resources", "queue": queue, "gpus": 2},
        ),
        _job(
            tenant,
            "next",
            5,
            gpu=8,
            dependencies=[{"name": "waits"}],
            group=tenant.mark("group"),
            status={"phase": "Queued", "reason": "Dependency", "gpus": 8},
        ),
        _job(
            tenant,
            "done",
            6,
            gpu=1,
            created=f"{day}:59:00Z",
            status={
                "phase": "Succeeded",
                "nodes": ["one"],
                "devices": [_device(0, "one", 3)],
                "memory": memory,
                "startTime": CREATED,
                "completionTime": f"{day}:00:00Z",
                "measured": {"meanUtilization": 0.1, "deviceSeconds": 3600 + at},
            },
        ),
        # Of one user, and it saves the same in both namespaces.
        _job(
            tenant,
            "measured",
            15,
            gpu=1,
            user=COMMON,
            status={
                "phase": "Succeeded",
                "nodes": ["one"],
                "devices": [_device(0, "one", 3)],
                "memory": {"strategy": "Dynamic", "basis": "", "peakMiB": 5000},
                "startTime": CREATED,
                "completionTime": f"{day}:00:00Z",
                "measured": {"meanUtilization": 0.1, "deviceSeconds": 3600},
            },
        ),
        _job(
            tenant,
            "failed",
            7,
            gpu=1,
            labels=training,
            status={"phase": "Failed", "reason": "Failed", "nodes": ["gone"], "completionTime": f"{day}:01:00Z"},
        ),
        _job(
            tenant,
            "planned",
            8,
            gpu=1,
            labels=training,
            status={
                "phase": "Starting",
                "admittedTime": f"{day}:05:00Z",
                "nodes": ["one"],
                "placement": {"generation": 1, "nodes": [{"name": "one", "workers": 1}], "worker": {"request": "1"}},
            },
        ),
        _job(
            tenant,
            "alloc",
            9,
            gpu=1,
            reservation={"durationSeconds": 86400},
            status=alloc | {"lease": {"expirationTime": f"2026-11-02T0{at}:00:00Z"}, "startTime": f"{day}:00:00Z"},
        ),
        _job(
            tenant,
            "leaves",
            10,
            gpu=1,
            status={
                "phase": "Running",
                "nodes": ["closed"],
                "startTime": f"{day}:15:00Z",
                "devices": [_device(0, "closed", 0, share=500, mib=4000)],
                "preemption": {"at": f"2026-11-01T09:0{at}:00Z", "message": tenant.mark("leaves", "preemption")},
            },
        ),
        _job(
            tenant,
            "cpu",
            11,
            gpu=1,
            onNoGpu="Run",
            status={"phase": "Running", "device": "cpu", "startTime": f"{day}:02:00Z"},
        ),
        _job(tenant, "common", 12, gpu=1, user=COMMON, status={"phase": "Queued", "reason": "Resources"}),
        _job(tenant, "unseen", 13, gpu=1, status={}),
    ]
    # What a person edited past the schema of another version: nothing can decode it.
    broken = _job(tenant, "broken", 14, gpu=1, status={})
    broken["spec"]["workers"] = {"mark": tenant.mark("broken", "workers")}
    return [("gpujobs", each) for each in [*made, broken]]


def _device(worker: int, node: str, index: int, *, share: int = 1000, mib: int = 32768) -> Values:
    found = {"worker": worker, "node": node, "index": index, "uuid": f"{node}-{index}"}
    return found | {"shareMilli": share, "memoryMiB": mib}


def _job(
    tenant: Tenant,
    name: str,
    number: int,
    *,
    status: Values,
    user: str = "",
    created: str = CREATED,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Values:
    container = {
        "name": "main",
        "image": tenant.mark(name, "image"),
        "env": [{"name": "E", "value": tenant.mark(name)}],
    }
    said: Values = {"message": tenant.mark(name, "message"), "number": number + 100 * tenant.offset} if status else {}
    if status:
        said["details"] = [{"code": "AsSaid", "parameters": {"detail": tenant.mark(name, "detail")}}]
    if "reservation" not in spec:
        spec["template"] = {"spec": {"containers": [container]}}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "GPUJob",
        "metadata": {
            "name": name,
            "namespace": tenant.namespace,
            "uid": uid_of(tenant.namespace, name),
            "creationTimestamp": created,
            "annotations": {names.USER: user or tenant.user, "note": tenant.mark(name, "note")},
            "labels": {names.LABEL_PROJECT: project(tenant, name), **(labels or {})},
        },
        "spec": spec,
        "status": ({"request": "1"} | said | status) if status else {},
    }


def project(tenant: Tenant, name: str) -> str:
    """The project of a tenant's job; some jobs of both are of one project."""
    return "common-project" if name in {"common", "alloc"} else tenant.mark("project")


# --- pods ----------------------------------------------------------------------------------------------------------


def _pod_uid(tenant: Tenant, name: str) -> str:
    return uid_of("pod", tenant.namespace, name)


def pods(tenant: Tenant) -> list[tuple[str, Values]]:
    at, other = tenant.offset, 1 - tenant.offset
    # Of both tenants' pods of worker 0 the newer one is another tenant's, whichever of the two asks about its worker 1.
    made = [
        _pod(tenant, "train-0", "train", 1, "one", 2 * at, created=f"2026-11-01T01:0{at}:00Z"),
        _pod(tenant, "train-1", "train", 1, "two", at, worker=1, created=f"2026-11-01T01:0{other}:00Z"),
        _pod(tenant, "train-old", "train", 1, "one", 3, created="2026-10-31T00:00:00Z", phase="Failed"),
        _pod(
            tenant, "share-0", "share", 2, "one", 1, share=500, mib=8000 + at, mode="Fractional", workload="Inference"
        ),
        _pod(tenant, "mig-0", "mig", 3, "slices", at, mib=40192, mig="3g.40gb"),
        _pod(tenant, "alloc-0", "alloc", 9, "vendor", 2 + at, mib=16384),
        _pod(tenant, "leaves-0", "leaves", 10, "closed", 0, share=500, mib=4000, mode="Fractional"),
    ]
    plain = _plain(tenant, "plain", node="vendor")
    plain["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    broken = _plain(tenant, "broken", node="one")
    broken["metadata"]["annotations"][names.ALLOCATION] = '{"version": 1, "job": "' + tenant.mark("broken")
    waiting = _plain(tenant, "waiting", node="")
    waiting["metadata"]["annotations"][names.REQUEST] = "1"
    return [("pods", each) for each in [*made, plain, broken, waiting]]


def _plain(tenant: Tenant, name: str, *, node: str) -> Values:
    return {
        "metadata": {
            "name": name,
            "namespace": tenant.namespace,
            "uid": _pod_uid(tenant, name),
            "creationTimestamp": CREATED,
            "annotations": {"note": tenant.mark(name, "note")},
            "labels": {"app": tenant.mark(name, "app")},
        },
        "spec": {"nodeName": node, "containers": [{"name": tenant.mark("main"), "resources": {"limits": {}}}]},
        "status": {"phase": "Running" if node else "Pending"},
    }


def _pod(
    tenant: Tenant,
    name: str,
    job: str,
    number: int,
    node: str,
    index: int,
    *,
    worker: int = 0,
    share: int = 1000,
    mib: int = 32768,
    mode: str = "Exclusive",
    workload: str = "",
    mig: str = "",
    created: str = CREATED,
    phase: str = "Running",
) -> Values:
    held = {"uuid": f"{node}-{index}", "index": index, "shareMilli": share, "memoryMiB": mib} | (
        {"mig": mig} if mig else {}
    )
    allocation = {
        "version": 1,
        "node": node,
        "mode": mode,
        "job": job,
        "priority": 10,
        "containers": [{"index": 0, "devices": [held]}],
    } | ({"workload": workload} if workload else {})
    pod = _plain(tenant, name, node=node)
    pod["metadata"]["creationTimestamp"] = created
    pod["metadata"]["annotations"] |= {
        names.REQUEST: "1",
        names.ALLOCATION: json.dumps(allocation),
        names.COMPLETION_INDEX: str(worker),
    }
    pod["metadata"]["labels"] |= {
        names.LABEL_JOB: job,
        names.LABEL_JOB_NUMBER: str(number + 100 * tenant.offset),
        names.LABEL_PROJECT: project(tenant, job),
    }
    pod["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": job,
            "uid": uid_of("batch", tenant.word, job),
            "controller": True,
        }
    ]
    pod["spec"] |= {"schedulerName": names.SCHEDULER_NAME}
    pod["spec"]["containers"] = [{"name": "main", "resources": {"limits": {names.GPU_MILLI: str(share)}}}]
    pod["status"]["phase"] = phase
    return pod
