"""Finds strangers on devices and reports them: status, taint, events and metrics.

Strangers are processes on devices that they were not given, by driver data and promises.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric

from dovetail.api.gpunode import Device, GPUNodeStatus, Stranger
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import Condition
from dovetail.config.keys.devices import StrangerPolicy
from dovetail.kube.event_recorder import EventRecorder
from dovetail_agent.devices.model import DeviceInfo, Inventory, Process, Sample
from dovetail_agent.devices.process_memory import command_of
from dovetail_agent.feature.events import warn_node, warn_pod
from dovetail_agent.feature.protocol import Feature, Seen, Wake
from dovetail_agent.processes.identity import PROC
from dovetail_agent.report.node_status import condition

MOST: Final = 16
# MPS runs its clients' work in a server of its own, which a driver lists in addition to the clients.
_SERVANTS: Final = frozenset({"nvidia-cuda-mps"})


def strangers_on(
    device: DeviceInfo, *, processes: Iterable[Process], tenants: Sequence[NodeTenant], commands: dict[int, str]
) -> Iterator[Stranger]:
    """Yield the processes on a device that was not given to them. `commands` has names by PID.

    A device that a reservation holds has no strangers: it is kept for its users, who may be outside the cluster. A
    pod that asked a vendor's plugin is not judged before kubelet has reported its devices.
    """
    holders = {tenant.uid for tenant in tenants if any(each.uuid == device.uuid for each in tenant.devices)}
    if any(tenant.reservation for tenant in tenants if tenant.uid in holders):
        return
    unknown = {tenant.uid for tenant in tenants if tenant.vendor_devices and not tenant.devices}
    names = {tenant.uid: f"{tenant.namespace}/{tenant.name}" for tenant in tenants}
    for process in processes:
        command = commands.get(process.pid, "")
        if process.pod_uid in holders | unknown or command in _SERVANTS:
            continue
        pod = names.get(process.pod_uid, "")
        yield Stranger(pid=process.pid, command=command, uid=process.pod_uid, pod=pod)


def pairs(inventory: Inventory, *, sample: Sample) -> Iterator[tuple[DeviceInfo, tuple[Process, ...]]]:
    """Yield each device whose processes are known, with its processes."""
    for device, state in zip(inventory.devices, sample.devices, strict=True):
        if state.processes is not None:
            yield device, state.processes


def sentence(stranger: Stranger, *, called: str, tainted: bool) -> str:
    """Describe a stranger for people; `called` names the device."""
    named = f"process {stranger.pid}" + (f" ({stranger.command})" if stranger.command else "")
    if stranger.pod:
        who = f"{named} of pod {stranger.pod} uses {called}, which the pod was not given"
    elif stranger.uid:
        who = f"{named} of a pod that has ended or is not known (UID {stranger.uid}) uses {called}"
    else:
        who = f"{named} of no pod uses {called}"
    return f"{who}; it takes no new work meanwhile" if tainted else who


CONDITION: Final = "ProcessesSeen"
# A pod that has just ended can leave a process for a moment, and a new pod is not known everywhere yet.
GRACE: Final = timedelta(seconds=10)
_LABELS: Final = ("node", "index", "uuid", "model")
Key = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSight:
    """When a possible stranger was first seen, and the question whose answer decides."""

    at: datetime
    question: int


class StrangersFeature(Feature):
    """Reports strangers: seen twice, `grace` apart, on a device that was not given to them."""

    name = "strangers"

    def __init__(
        self, events: EventRecorder, *, policy: StrangerPolicy, proc: Path = PROC, grace: timedelta = GRACE
    ) -> None:
        self._events = events
        self._policy = policy
        self._proc = proc
        self._grace = grace
        self._first: dict[Key, FirstSight] = {}
        self._devices: dict[str, list[Device]] = {}
        self._fresh = asyncio.Event()

    async def run(self, wake: Wake) -> None:
        """Request a second look after a possible stranger is first seen."""
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            await asyncio.sleep(self._grace.total_seconds())
            wake()

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Add strangers to the devices, and the condition whether the agent can find any."""
        if seen.inventory is None or seen.sample is None:
            return status
        measured = any(state.used_by_tenant_mib is not None for state in seen.sample.devices)
        found, asked = self._judged(seen)
        devices = [self._marked(device, strangers=found.get(device.uuid, ())) for device in status.devices]
        self._devices[seen.node.metadata.name] = devices
        conditions = status.conditions if not devices else [*status.conditions, _seen(seen, measured=measured)]
        return msgspec.structs.replace(status, devices=devices, conditions=conditions, tenants_asked=asked)

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        """Post events about new strangers: on the node, and on the pod that they belong to."""
        known, node = _keys(seen.previous), seen.node.metadata.name
        pods = {tenant.uid: tenant for tenant in seen.tenants}
        for device in status.devices:
            for stranger in device.strangers:
                if _key(device.uuid, stranger=stranger) in known:
                    continue
                called = f"GPU {device.index} ({device.uuid}) of {node}"
                text = sentence(stranger, called=called, tainted=bool(device.taint))
                warn_node(self._events, node=seen.node, reason="StrangerOnGPU", message=text)
                if stranger.uid in pods:
                    tenant = pods[stranger.uid]
                    warn_pod(self._events, tenant=tenant, node=node, reason="NotItsGPU", message=text)

    def forget(self, node: str) -> None:
        """Drop a node, and the possible strangers on it."""
        self._devices.pop(node, None)
        self._first = {key: first for key, first in self._first.items() if key[0] != node}

    def metrics(self) -> Iterable[Metric]:
        """Strangers on each device, and which devices take no work because of them."""
        strangers = GaugeMetricFamily(
            "dovetail_device_strangers", "Processes on the device that were not given it.", labels=_LABELS
        )
        tainted = GaugeMetricFamily(
            "dovetail_device_tainted", "1 where the device takes no new work for its strangers.", labels=_LABELS
        )
        for node, devices in self._devices.items():
            for device in devices:
                labels = [node, str(device.index), device.uuid, device.model]
                strangers.add_metric(labels, len(device.strangers))
                tainted.add_metric(labels, 1.0 if device.taint else 0.0)
        return strangers, tainted

    def _judged(self, seen: Seen) -> tuple[dict[str, list[Stranger]], int]:
        """Return the strangers by device, and the question for the operator.

        A process is judged only when the list of tenants is newer than the process: an operator that is slow or down
        creates no strangers. A stranger of the last report counts at once, because the agent may have restarted.
        """
        assert seen.inventory is not None, "looked at before"
        assert seen.sample is not None, "looked at before"
        node, known, found = seen.node.metadata.name, _keys(seen.previous), dict[str, list[Stranger]]()
        asked = max(seen.previous.tenants_asked if seen.previous else 0, seen.answers or 0)
        question = max([asked, *(first.question for first in self._first.values())]) + 1
        now_here: set[Key] = set()
        for device, processes in pairs(seen.inventory, sample=seen.sample):
            commands = {each.pid: command_of(each.pid, proc=self._proc) for each in processes}
            for stranger in strangers_on(device, processes=processes, tenants=seen.tenants, commands=commands):
                uuid, pid, uid = _key(device.uuid, stranger=stranger)
                key = (node, uuid, pid, uid)
                now_here.add(key)
                if key not in self._first:
                    self._first[key] = FirstSight(at=seen.now, question=question)
                    self._fresh.set()
                first = self._first[key]
                confirmed = seen.answers is None or seen.answers >= first.question
                if (uuid, pid, uid) in known or (confirmed and seen.now - first.at >= self._grace):
                    found.setdefault(device.uuid, []).append(stranger)
                elif not confirmed:
                    asked = max(asked, first.question)
        self._first = {key: first for key, first in self._first.items() if key[0] != node or key in now_here}
        return found, asked

    def _marked(self, device: Device, *, strangers: Sequence[Stranger]) -> Device:
        shown = sorted(strangers, key=lambda each: each.pid)[:MOST]
        taint = "Strangers" if strangers and self._policy == "Taint" else ""
        return msgspec.structs.replace(device, strangers=shown, taint=taint)


def _keys(status: GPUNodeStatus | None) -> set[tuple[str, int, str]]:
    devices = status.devices if status else []
    return {_key(device.uuid, stranger=stranger) for device in devices for stranger in device.strangers}


def _key(uuid: str, *, stranger: Stranger) -> tuple[str, int, str]:
    return uuid, stranger.pid, stranger.uid


def _seen(seen: Seen, *, measured: bool) -> Condition:
    if measured:
        reason, message = "Processes", "a process on a device belongs to the pod that its cgroup names"
    else:
        reason = "NoProcesses"
        message = (
            "a process cannot be assigned to a pod (no hostPID, or the driver reports none): each pod counts with all "
            "that it was promised, by allocation or by kubelet, and strangers show as foreign memory alone"
        )
    status: Literal["True", "False"] = "True" if measured else "False"
    return condition(CONDITION, status=status, reason=reason, message=message, previous=seen.previous, now=seen.now)
