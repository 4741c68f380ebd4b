"""Parts of programs that follow objects and write others, each with a scene: what `test_parts.py` asks of all of them.

A new part is an entry of `PARTS`; it needs no assertions of its own.
"""

import asyncio
import random
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.api.resources import GPUJOBS, GPUNODES, NODES, PODS
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.kube.client import Client
from dovetail.kube.reflector import Reflector
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_operator.watchers.vendor_quotas import VendorQuotas
from dovetail_operator.writes.device_indexes import DeviceIndexes
from dovetail_operator.writes.unreadable_jobs import UnreadableJobs
from tests.world.certificates import CERTIFICATES
from tests.world.programs import PROGRAMS
from tests.world.stage import Part, Program, Site, Stage, Step, change, drop, put, wait

HOME: Final = "dovetail-system"


class Together:
    """A part and the informers that feed it."""

    def __init__(self, part: Any, *informers: Reflector[Any]) -> None:
        self.part = part
        self.informers = informers

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self.informers:
                tasks.create_task(each.run())
            for each in self.informers:
                await each.synced.wait()
            tasks.create_task(self.part.run())


# --- companions of ResourceQuotas ------------------------------------------------------------------------------------


def _vendor_quotas(client: Client, stage: Stage) -> Program:
    return VendorQuotas(client, vendors=DEFAULT_VENDORS, post=stage.news.append, rng=random.Random(7))


def _tenants_quota(site: Site, hard: dict[str, str], name: str = "gpus", **spec: Any) -> Step:
    return put(
        "resourcequotas",
        {"metadata": {"name": name, "namespace": site.namespace}, "spec": {"hard": hard, **spec}},
    )


def _quota_scene(site: Site) -> list[Step]:
    ours = f"{site.namespace}/dovetail-gpus"
    return [
        _tenants_quota(site, {"requests.nvidia.com/gpu": "4"}),
        _tenants_quota(site, {"requests.nvidia.com/gpu": "2", "pods": "7"}),
        _tenants_quota(site, {"requests.nvidia.com/gpu": "1"}, name="other", scopes=["NotTerminating"]),
        drop("resourcequotas", ours),
        change("resourcequotas", f"{site.namespace}/other", lambda each: each["spec"].update(scopes=["Terminating"])),
        drop("resourcequotas", f"{site.namespace}/gpus"),
        _tenants_quota(site, {"requests.nvidia.com/gpu": "3"}),
        _tenants_quota(site, {"pods": "3"}, name="other"),
    ]


# --- tenants of nodes ------------------------------------------------------------------------------------------------


def _node_tenants(client: Client, stage: Stage) -> Program:
    def changed(type_: EventType, pod: Pod) -> None:
        part.pod_event(type_, pod)

    pods = Reflector(client, resource=PODS, as_type=Pod, on_event=changed)
    part = NodeTenants(client, pods=pods.store.values, vendors=DEFAULT_VENDORS, rng=random.Random(7))
    return Together(
        part,
        pods,
        Reflector(client, resource=NODES, as_type=Node, on_event=part.node_event),
        Reflector(client, resource=GPUNODES, as_type=GPUNode, on_event=part.gpunode_event),
        part.reflector,
    )


def node(site: Site, name: str, **labels: str) -> Step:
    found = labels or {names.LABEL_MANAGED: "true"}
    return put("nodes", {"metadata": {"name": site.node(name), "labels": found}, "spec": {}, "status": {}})


def pod(site: Site, name: str, *, node: str, gpus: int = 1, **status: Any) -> Step:
    limits = {"nvidia.com/gpu": str(gpus)}
    return put(
        "pods",
        {
            "metadata": {"name": name, "namespace": site.namespace},
            "spec": {"nodeName": site.node(node), "containers": [{"name": "main", "resources": {"limits": limits}}]},
            "status": {"phase": "Running", **status},
        },
    )


def report(site: Site, name: str, *, gpus: int = 2, **status: Any) -> Step:
    devices = [
        {"index": at, "uuid": f"{site.node(name)}-{at}", "vendor": "nvidia", "model": "V100", "memoryMiB": 32768}
        for at in range(gpus)
    ]
    return put(
        "gpunodes",
        {"metadata": {"name": site.node(name)}, "spec": {}, "status": {"devices": devices, **status}},
    )


def _tenant_scene(site: Site) -> list[Step]:
    return [
        node(site, "n1"),
        pod(site, "p", node="n1"),
        pod(site, "q", node="n1", phase="Pending"),
        report(site, "n1", tenantsAsked=1),
        change("pods", f"{site.namespace}/q", lambda each: each["status"].update(phase="Running")),
        change("pods", f"{site.namespace}/p", lambda each: each["status"].update(phase="Succeeded")),
        node(site, "n2", disk="ssd"),
        pod(site, "r", node="n2", gpus=2),
        report(site, "n2", tenantsAsked=3),
        report(site, "n1", tenantsAsked=2),
        drop("gpunodetenants", site.node("n1")),
        drop("nodes", site.node("n1")),
        drop("pods", f"{site.namespace}/q"),
        node(site, "n1"),
        drop("gpunodes", site.node("n2")),
        pod(site, "q", node="n1", gpus=3),
    ]


# --- numbers of devices ----------------------------------------------------------------------------------------------


def _device_indexes(client: Client, stage: Stage) -> Program:
    gpunodes = Reflector(client, resource=GPUNODES, as_type=GPUNode)
    return Together(DeviceIndexes(client, gpunodes=gpunodes.store.values, namespace=HOME), gpunodes)


def _index_scene(site: Site) -> list[Step]:
    def forget(values: dict[str, Any]) -> None:
        values["data"].pop("1", None)

    def edit(stage: Stage) -> None:
        if stage.server.find("configmaps", f"{HOME}/dovetail-device-indexes") is not None:
            stage.server.change("configmaps", f"{HOME}/dovetail-device-indexes", forget)

    return [
        report(site, "n1"),
        wait(10.0),
        report(site, "n2", gpus=1),
        wait(10.0),
        drop("gpunodes", site.node("n1")),
        edit,
        wait(70.0),
        report(site, "n3"),
        wait(10.0),
        drop("configmaps", f"{HOME}/dovetail-device-indexes"),
    ]


# --- jobs that cannot be read ----------------------------------------------------------------------------------------


def _unreadable_jobs(client: Client, stage: Stage) -> Program:
    def found(meta: ObjectMeta, problem: str) -> None:
        part.report(meta, problem)

    jobs = Reflector(client, resource=GPUJOBS, as_type=GPUJob, on_unreadable=found)
    part = UnreadableJobs(
        client,
        jobs=jobs.store,
        child=lambda _key: None,
        found=lambda _meta, _problem: None,
        post=stage.news.append,
        rng=random.Random(7),
    )
    return Together(part, jobs)


def _unreadable_scene(site: Site) -> list[Step]:
    def job(name: str, **spec: Any) -> Step:
        body = {"gpu": "1", "template": {"spec": {"containers": []}}, **spec}

        def step(stage: Stage) -> None:
            key = f"{site.namespace}/{name}"
            if stage.server.find("gpujobs", key) is None:
                put("gpujobs", {"metadata": {"name": name, "namespace": site.namespace}, "spec": body})(stage)
            else:
                stage.server.change("gpujobs", key, lambda each: each.update(spec=body))

        return step

    return [
        job("x", workers="many"),
        job("y", workers={}),
        job("x", workers=[]),
        job("y", workers=1),
        drop("gpujobs", f"{site.namespace}/x"),
        job("x", workers={"a": 1}),
        job("x", priority="high"),
    ]


_NUMBERS = "a number is never given again"
PARTS: Final[dict[str, Part]] = (
    CERTIFICATES
    | PROGRAMS
    | {
        "companions of ResourceQuotas": Part(
            make=_vendor_quotas, scene=_quota_scene, writes=["resourcequotas"], owns=["resourcequotas"]
        ),
        "tenants of nodes": Part(
            make=_node_tenants,
            scene=_tenant_scene,
            writes=["gpunodetenants"],
            owns=["gpunodetenants"],
            not_from_objects={"NodeTenants._written_at": "when this process wrote"},
        ),
        "numbers of devices": Part(
            make=_device_indexes,
            scene=_index_scene,
            writes=["configmaps"],
            owns=["configmaps"],
            settle_seconds=140.0,
            not_from_objects={"DeviceIndexes._numbered": _NUMBERS},
            not_empty={"DeviceIndexes._numbered": _NUMBERS, "DeviceIndexes._given": _NUMBERS},
            is_of_sites=False,
            is_of_last_state=False,
        ),
        "jobs that cannot be read": Part(
            make=_unreadable_jobs,
            scene=_unreadable_scene,
            writes=["gpujobs"],
            not_from_objects={"UnreadableJobs._reported": "what this process wrote, up to a bound"},
            not_empty={"UnreadableJobs._reported": "what this process wrote, up to a bound"},
            renews=("PATCH gpujobs",),
        ),
    }
)
