"""What the cluster does now: devices, what each pod holds of them, and jobs, as samples count them. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from dovetail import names
from dovetail.answers.inventory import DeviceUse, NodeUse
from dovetail.answers.nodes import TenantRow
from dovetail.answers.owners import project_of, user_of
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import moment
from dovetail.gpu.models import normalise
from dovetail.gpu.request import WHOLE_MILLI
from dovetail_gateway.samples.columns import DEVICE, Floats

_NAN: Final = float("nan")
_WAITING: Final = frozenset({"Queued", "Starting"})
# What columns of a database hold: numbers of 32 bits, and names of models. No driver says more.
_MOST: Final = 2**31 - 1
_LONGEST_MODEL: Final = 128


# A namespace, and a project in it; "" for none.
Group = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a device is, and what it counts as."""

    node: str
    index: int
    model: str
    gpus: float
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a pod holds of a device. `pod` is its UID, `job` that of its job; empty for a pod of none.

    `promised` is in GPUs. `until` is when it ended; None while it is held. Figures that are not known are None.
    """

    namespace: str
    pod: str
    job: str
    project: str
    user: str
    model: str
    promised: float
    utilization: float | None
    memory_used_mib: float | None
    memory_promised_mib: float
    power_watts: float | None
    temperature: float | None
    since: datetime | None
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The cluster at one time.

    devices     values [devices, columns of DEVICE], by the order of `uuids`
    places      where each of these is, by UUID
    holdings    what pods hold of them
    waiting     the number of jobs that wait, by namespace and project
    running     the number of jobs that run, by namespace and project
    jobs        all jobs, by UID
    """

    uuids: Sequence[str]
    devices: Floats
    places: Mapping[str, Place]
    holdings: Sequence[Holding]
    waiting: Mapping[Group, int]
    running: Mapping[Group, int]
    jobs: Mapping[str, GPUJob]


def read(nodes: Iterable[tuple[NodeUse, Collection[Pod]]], *, jobs: Collection[GPUJob]) -> Reading:
    """Read the nodes, each with the pods on it, and the jobs."""
    uuids, rows = list[str](), list[tuple[float, ...]]()
    places, holdings = dict[str, Place](), list[Holding]()
    by_number = {(each.metadata.namespace, each.status.number): each for each in jobs if each.status.number}
    for node, pods in nodes:
        by_name = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
        for use in node.uses:
            place = _place(use)
            uuids.append(use.device.uuid)
            places[use.device.uuid] = place
            rows.append(_device(use, place=place))
            total = sum(holder.share_milli for holder in use.holders)
            for holder in use.holders:
                pod = by_name.get((holder.namespace, holder.pod))
                job = None if holder.job is None else by_number.get((holder.namespace, holder.job))
                holdings.append(_holding(holder, use=use, place=place, total=total, pod=pod, job=job))
    waiting, running = _count(jobs)
    return Reading(
        uuids=uuids,
        devices=np.array(rows, np.float32).reshape(len(rows), len(DEVICE)),
        places=places,
        holdings=holdings,
        waiting=waiting,
        running=running,
        jobs={each.metadata.uid: each for each in jobs},
    )


def held(holdings: Iterable[Holding]) -> Floats:
    """What these holdings are together: one value for each column of HELD."""
    promised = measured = used = memory_promised = 0.0
    memory_used = power = hottest = None
    for each in holdings:
        promised += each.promised
        memory_promised += each.memory_promised_mib
        if each.utilization is not None:
            measured += each.promised
            used += each.promised * each.utilization
        if each.memory_used_mib is not None:
            memory_used = each.memory_used_mib + (memory_used or 0.0)
        if each.power_watts is not None:
            power = each.power_watts + (power or 0.0)
        if each.temperature is not None:
            hottest = each.temperature if hottest is None else max(each.temperature, hottest)
    found = (promised, measured, used, memory_used, memory_promised, power, hottest)
    return np.array([_NAN if each is None else each for each in found], np.float32)


def by_group(holdings: Iterable[Holding]) -> dict[Group, list[Holding]]:
    """The holdings of each namespace and project."""
    found: dict[Group, list[Holding]] = defaultdict(list)
    for each in holdings:
        found[each.namespace, each.project].append(each)
    return dict(found)


def by_job(holdings: Iterable[Holding]) -> dict[str, list[Holding]]:
    """The holdings of each job, by its UID."""
    found: dict[str, list[Holding]] = defaultdict(list)
    for each in holdings:
        if each.job:
            found[each.job].append(each)
    return dict(found)


def _place(use: DeviceUse) -> Place:
    """Where a device is, within what a database keeps: nodes report any number and any text."""
    return Place(
        node=use.node,
        index=min(use.device.index, _MOST),
        model=normalise(use.device.model).family.replace("\x00", "")[:_LONGEST_MODEL],
        gpus=use.gpus,
        memory_mib=min(use.device.memory_mib, _MOST),
    )


def _device(use: DeviceUse, *, place: Place) -> tuple[float, ...]:
    """One value for each column of DEVICE. Figures that are too old to count are not known."""
    promised = sum(holder.share_milli for holder in use.holders) / WHOLE_MILLI * place.gpus
    if use.stale:
        return _NAN, _NAN, _NAN, promised, _NAN
    memory = None if use.used_mib is None or not place.memory_mib else use.used_mib / place.memory_mib
    figures = (_utilization(use), memory, use.temperature_celsius, promised, use.power_watts)
    return tuple(_NAN if each is None else float(each) for each in figures)


def _utilization(use: DeviceUse) -> float | None:
    # The driver does not report that of an instance.
    return None if use.is_instance else use.utilization


def _holding(
    holder: TenantRow, *, use: DeviceUse, place: Place, total: int, pod: Pod | None, job: GPUJob | None
) -> Holding:
    part = holder.share_milli / total if total else 0.0
    known = not use.stale
    memory: float | None = holder.used_mib
    if memory is None and use.used_mib is not None:
        memory = use.used_mib * part
    started = None if pod is None else pod.status.start_time or pod.metadata.creation_timestamp
    labels = {} if pod is None else pod.metadata.labels
    return Holding(
        namespace=holder.namespace,
        pod=f"{holder.namespace}/{holder.pod}" if pod is None else pod.metadata.uid,
        job="" if job is None else job.metadata.uid,
        project=labels.get(names.LABEL_PROJECT, "") if job is None else project_of(job),
        # The annotation of a pod without a job is its author's to write: it would count for anyone.
        user="" if job is None else user_of(job) or "",
        model=place.model,
        promised=holder.share_milli / WHOLE_MILLI * place.gpus,
        utilization=_utilization(use) if known else None,
        memory_used_mib=memory if known else None,
        memory_promised_mib=holder.memory_mib,
        power_watts=use.power_watts * part if known and use.power_watts is not None else None,
        temperature=use.temperature_celsius if known else None,
        since=moment(started) if started else None,
    )


def _count(jobs: Iterable[GPUJob]) -> tuple[dict[Group, int], dict[Group, int]]:
    waiting: dict[Group, int] = defaultdict(int)
    running: dict[Group, int] = defaultdict(int)
    for job in jobs:
        # The tasks of an array count, and not the array.
        if job.status.tasks is not None:
            continue
        if job.status.phase == "Running":
            running[group_of(job)] += 1
        elif (job.status.phase or "Queued") in _WAITING:
            waiting[group_of(job)] += 1
    return dict(waiting), dict(running)


def group_of(job: GPUJob) -> Group:
    """The job's namespace and project."""
    return job.metadata.namespace, project_of(job)
