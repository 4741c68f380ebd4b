"""Parts of programs that follow objects and write others, each with a scene: what `test_parts.py` asks of all of them.

A new part is an entry of `PARTS`; it needs no assertions of its own.
"""

import asyncio
import base64
import json
import random
from datetime import timedelta
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import EventType, ObjectMeta
from dovetail.api.resources import GPUJOBS, GPUNODES, NODES, PODS
from dovetail.config.settings import Settings
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.kube.client import Client
from dovetail.kube.event_recorder import EventRecorder
from dovetail.kube.reflector import Reflector
from dovetail.process.live_settings import LiveSettings
from dovetail_agent.agent import Agent
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.feature.events import Events
from dovetail_agent.guards.bad_devices import BadDevicesFeature
from dovetail_agent.guards.memory import GuardRules
from dovetail_agent.guards.memory_feature import MemoryGuardFeature
from dovetail_agent.guards.strangers_feature import StrangersFeature
from dovetail_agent.main import rules_of
from dovetail_certificates.extender import Attached, ExtenderKeeper
from dovetail_certificates.metrics import Metrics
from dovetail_extender.cluster.service_endpoint import Endpoint, ServiceEndpoint
from dovetail_local_node.machine import Machine
from dovetail_local_node.registration import Registration
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_operator.watchers.vendor_quotas import VendorQuotas
from dovetail_operator.writes.device_indexes import DeviceIndexes
from dovetail_operator.writes.unreadable_jobs import UnreadableJobs
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


# --- certificates ----------------------------------------------------------------------------------------------------


def _extender_certificates(client: Client, stage: Stage) -> Program:
    attached = Attached(namespace=HOME, secret="extender", names=("extender.svc",), client_names=("scheduler",))
    return ExtenderKeeper(client, attached=attached, metrics=Metrics(), now=stage.now, look_seconds=86400.0)


def _certificate_scene(_site: Site) -> list[Step]:
    return [
        wait(3 * 86400.0),
        drop("secrets", f"{HOME}/extender"),
        change("secrets", f"{HOME}/extender-client", lambda each: each["data"].pop("tls.key", None)),
        drop("secrets", f"{HOME}/extender-ca"),
    ]


def _check_signatures(stage: Stage) -> None:
    """Both certificates are signed by the CA that there is, and have its key."""
    data = {
        name: {
            key: base64.b64decode(text) for key, text in stage.server.find("secrets", f"{HOME}/{name}")["data"].items()
        }
        for name in ("extender-ca", "extender", "extender-client")
    }
    authority = load_pem_x509_certificate(data["extender-ca"]["ca.crt"])
    for name in ("extender", "extender-client"):
        leaf = load_pem_x509_certificate(data[name]["tls.crt"])
        leaf.verify_directly_issued_by(authority)
        key = load_pem_private_key(data[name]["tls.key"], password=None)
        assert leaf.public_key() == key.public_key()


# --- the endpoint of a Service ---------------------------------------------------------------------------------------


class _Published:
    def __init__(self, client: Client) -> None:
        endpoint = Endpoint(service="extender", namespace=HOME, address="10.0.0.7", port=8888)
        self.part = ServiceEndpoint(client, endpoint=endpoint, guard=lambda: None)
        self.informers = ()

    async def run(self) -> None:
        await self.part.run(obstacle=lambda: "")


def _endpoint_scene(_site: Site) -> list[Step]:
    service = {"metadata": {"name": "extender", "namespace": HOME}, "spec": {}}
    return [
        put("services", service),
        change("endpointslices", f"{HOME}/extender", lambda each: each["endpoints"].clear()),
        drop("services", f"{HOME}/extender"),
        put("services", service),
    ]


# --- the node of one machine -----------------------------------------------------------------------------------------


def _registration(client: Client, stage: Stage) -> Program:
    machine = Machine(cpus=8, memory_mib=1024, boot_id="b", hostname="h", kernel="6", architecture="amd64")
    return Registration(client=client, name="here", machine=machine, port=1, now=stage.now, limits="none")


def _registration_scene(_site: Site) -> list[Step]:
    return [
        drop("leases", "kube-node-lease/here"),
        drop("nodes", "here"),
        change("nodes", "here", lambda each: each["status"].update(conditions=[])),
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


# --- the agent -------------------------------------------------------------------------------------------------------


class _Agent:
    """An agent of all simulated nodes, with what watches their devices."""

    def __init__(self, client: Client, stage: Stage) -> None:
        events = EventRecorder(client, component="agent", now=stage.now, rng=random.Random(7))
        features = (
            Events(events),
            StrangersFeature(events, policy="Report"),
            BadDevicesFeature(events),
            MemoryGuardFeature(events, rules=GuardRules(policy="Evict", grace=timedelta(seconds=5))),
        )
        self.part = Agent(
            client, provider=SimulatedProvider(), rules=rules_of(Settings()), clock=stage.now, features=features
        )
        self.informers = ()

    async def run(self) -> None:
        await self.part.run()


def _agent_scene(site: Site) -> list[Step]:
    """Devices fail, recover, are added, partitioned and described wrongly; tenants come and go, as does the node."""
    full = site.node("n1")

    def declared(devices: str, faults: str = "{}") -> Step:
        said = {names.SIMULATED_DEVICES: devices, names.SIMULATED_FAULTS: faults}
        status = {"allocatable": {"cpu": "64", "memory": "256Gi"}, "nodeInfo": {"bootID": "b"}}

        def step(stage: Stage) -> None:
            if stage.server.find("nodes", full) is None:
                meta = {"name": full, "labels": {names.LABEL_MANAGED: "true"}, "annotations": said}
                put("nodes", {"metadata": meta, "spec": {}, "status": status})(stage)
            else:
                change("nodes", full, lambda each: each["metadata"]["annotations"].update(said))(stage)

        return step

    def tenants(*held: int) -> Step:
        found = [
            {
                "uid": f"pod-{at}", "name": f"pod-{at}", "namespace": site.namespace, "running": True,
                "devices": [
                    {"uuid": device_uuid(full, index=at), "index": at, "shareMilli": 1000, "memoryMiB": 32768}
                ],
            }
            for at in held
        ]  # fmt: skip
        return put("gpunodetenants", {"metadata": {"name": full}, "spec": {"tenants": found, "answers": 0}})

    two, three = (json.dumps({"model": "V100", "count": count, "memoryMiB": 32768}) for count in (2, 3))
    return [
        declared(two),
        tenants(),
        tenants(0, 1),
        declared(two, faults='{"1": "Xid79FellOffTheBus"}'),
        declared(two),
        declared(three),
        tenants(2),
        declared('{"model": "V100"'),
        declared('{"model": "A100-SXM4-80GB", "count": 1, "memoryMiB": 81920, "mig": ["3g.40gb,4g.40gb"]}'),
        drop("gpunodes", full),
        change("gpunodes", full, lambda each: each.update(spec={"cordoned": ["x"]})),
        drop("nodes", full),
        declared(two),
        drop("gpunodetenants", full),
        tenants(1),
        declared(three, faults='{"0": "Xid79FellOffTheBus"}'),
    ]


# --- the configuration of a running program --------------------------------------------------------------------------


class _Configured:
    """What counts is kept as an object, which is compared."""

    def __init__(self, client: Client, stage: Stage) -> None:
        self.part = LiveSettings(client, namespace=HOME, settings=Settings())
        self.informers = ()
        self._server = stage.server

    async def run(self) -> None:
        await self.part.run(apply=self._apply)

    def _apply(self, settings: Settings) -> None:
        values = settings.model_dump(mode="json")
        if self._server.find("counts", "settings") is None:
            self._server.create("counts", {"metadata": {"name": "settings"}})
        self._server.change("counts", "settings", lambda each: each.update(values=values))


def _configuration_scene(_site: Site) -> list[Step]:
    def config(text: str) -> Step:
        meta = {"name": names.CONFIG, "namespace": HOME}
        return put("configmaps", {"metadata": meta, "data": {names.CONFIG_FILE: text}})

    return [
        config("default_time_limit: 7200\n"),
        config("default_time_limit: many\n"),
        config("default_time_limit: 7200\nmeasurement_max_age: 661\n"),
        drop("configmaps", f"{HOME}/{names.CONFIG}"),
        config("drain: {action: Restart}\n"),
        config("namespace_time_limits: {team: 600}\ndefault_time_limit: 3600\n"),
    ]


_NUMBERS = "a number is never given again"
# What a device does differs by its UUID, and with time.
_MEASURED: Final = frozenset({
    "uuid", "usedMiB", "utilization", "temperatureCelsius", "powerWatts", "clocksMHz", "cpuUtilization",
    "memoryUtilization", "free", "totals", "tenants", "faults", "conditions", "eccErrors", "throttledBy", "links",
    "foreignMiB",
})  # fmt: skip
PARTS: Final[dict[str, Part]] = {
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
    "certificates of an extender": Part(
        make=_extender_certificates,
        scene=_certificate_scene,
        writes=["secrets"],
        owns=["secrets"],
        settle_seconds=4 * 86400.0,
        not_empty={"ExtenderKeeper._sides": "what is to be kept"},
        check=_check_signatures,
        is_of_sites=False,
    ),
    "the endpoint of a Service": Part(
        make=lambda client, _stage: _Published(client),
        scene=_endpoint_scene,
        writes=["endpointslices"],
        owns=["endpointslices"],
        renews=("PATCH endpointslices",),
        is_of_sites=False,
    ),
    "an agent": Part(
        make=_Agent,
        scene=_agent_scene,
        writes=["gpunodes", "nodes"],
        owns=["gpunodes"],
        varies=_MEASURED,
        settle_seconds=45.0,
        not_empty={"Agent.published_total": "a metric that only grows"},
        renews=("PATCH gpunodes", "POST events", "PATCH events"),
        compares_tables=False,
        is_of_time=True,
    ),
    "the configuration of a running program": Part(
        make=_Configured,
        scene=_configuration_scene,
        writes=["counts"],
        not_from_objects={"Settings.__pydantic_fields_set__": "what the text names"},
        not_empty={"Settings.__pydantic_fields_set__": "what the text names"},
        is_silent=True,
        is_of_sites=False,
    ),
    "the node of a machine": Part(
        make=_registration,
        scene=_registration_scene,
        writes=["nodes", "leases"],
        owns=["nodes", "leases"],
        settle_seconds=400.0,
        renews=("PATCH", "POST nodes"),
        is_of_sites=False,
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
