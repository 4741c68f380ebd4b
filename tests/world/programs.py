"""Parts of the other programs: the agent, the local node, and what all programs have."""

import asyncio
import json
import random
from datetime import timedelta
from typing import Final

from dovetail import names
from dovetail.api.builtin import ResourceSlice
from dovetail.api.karpenter import NodePool
from dovetail.api.meta import EventType
from dovetail.config.settings import Settings
from dovetail.kube.client import Client
from dovetail.kube.event_recorder import EventRecorder
from dovetail.kube.queries.node_pools import watch_node_pools
from dovetail.kube.resource_slices import SliceWatch
from dovetail.process.live_settings import LiveSettings
from dovetail_agent.agent import Agent
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.feature.events import Events
from dovetail_agent.guards.bad_devices import BadDevicesFeature
from dovetail_agent.guards.memory import GuardRules
from dovetail_agent.guards.memory_feature import MemoryGuardFeature
from dovetail_agent.guards.strangers_feature import StrangersFeature
from dovetail_agent.main import rules_of
from dovetail_local_node.machine import Machine
from dovetail_local_node.registration import Registration
from tests.world.stage import Part, Program, Site, Stage, Step, change, drop, put

HOME: Final = "dovetail-system"


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


# --- kinds of other projects -----------------------------------------------------------------------------------------


class _Told:
    """What is told of objects, kept as one, which is compared."""

    informers = ()

    def __init__(self, stage: Stage) -> None:
        self._server = stage.server
        self._server.objects.setdefault("counts", {}).pop("told", None)
        self._server.create("counts", {"metadata": {"name": "told"}, "names": {}})

    def tell(self, type_: EventType, found: NodePool | ResourceSlice) -> None:
        name, version = found.metadata.name, None if type_ == "DELETED" else "there"
        self._server.change("counts", "told", lambda each: each["names"].update({name: version}))


class _OtherKinds(_Told):
    def __init__(self, client: Client, stage: Stage) -> None:
        super().__init__(stage)
        self._watches = (
            watch_node_pools(client, on_event=self.tell),
            SliceWatch(client, drivers=names.GPU_DRIVERS, on_event=self.tell),
        )
        self.part = self._watches[0]
        self.informers = self._watches[1:]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for each in self._watches:
                tasks.create_task(each.run())


def _other_kinds_scene(_site: Site) -> list[Step]:
    def installed(plural: str) -> Step:
        return lambda stage: stage.server.kinds.add(plural)

    def pool(name: str, weight: int) -> Step:
        return put("nodepools", {"metadata": {"name": name}, "spec": {"weight": weight}})

    def slices(name: str, driver: str = "gpu.nvidia.com") -> Step:
        return put("resourceslices", {"metadata": {"name": name}, "spec": {"driver": driver, "nodeName": "n"}})

    return [
        installed("nodepools"),
        pool("a", 1),
        installed("resourceslices"),
        slices("s"),
        pool("b", 2),
        pool("a", 3),
        drop("nodepools", "b"),
        slices("t", driver="net.example.com"),
        drop("resourceslices", "s"),
        pool("b", 4),
        slices("u"),
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


# What a device does differs by its UUID, and with time.
_MEASURED: Final = frozenset({
    "uuid", "usedMiB", "utilization", "temperatureCelsius", "powerWatts", "clocksMHz", "cpuUtilization",
    "memoryUtilization", "free", "totals", "tenants", "faults", "conditions", "eccErrors", "throttledBy", "links",
    "foreignMiB",
})  # fmt: skip
PROGRAMS: Final[dict[str, Part]] = {
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
    "kinds of other projects": Part(
        make=_OtherKinds,
        scene=_other_kinds_scene,
        writes=["counts"],
        settle_seconds=130.0,
        is_silent=True,
        is_of_sites=False,
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
}
