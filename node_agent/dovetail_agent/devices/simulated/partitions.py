"""Simulated MIG instances: they replace their device and are numbered after the last one. Pure.

A module of its own: what a driver does with MIG instances, as `nvidia.partitioning` is for real ones.
"""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from dovetail import names
from dovetail.api.gpunode import GPUNodeStatus, Links
from dovetail.gpu import mig
from dovetail.gpu.geometry import Slot
from dovetail.gpu.partition import partition
from dovetail_agent.devices.model import DeviceInfo

_EIGHTHS: Final = 8
_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, names.GROUP)


def instances_in(entry: Any) -> tuple[str, ...]:
    """The profiles in an entry of the annotation; empty if it is none."""
    return partition(entry) if isinstance(entry, str) else ()


def partitioned(devices: Sequence[DeviceInfo], *, by_card: Sequence[Sequence[str]]) -> tuple[DeviceInfo, ...]:
    """The devices, the first of them replaced by instances of the profiles that `by_card` has."""
    split = [
        (card, at, profile)
        for card, profiles in zip(devices, by_card, strict=False)
        for at, profile in enumerate(profiles)
    ]
    instances = (
        _instance(card, at=at, index=len(devices) + number, profile=profile)
        for number, (card, at, profile) in enumerate(split)
    )
    return (*(_among(device, whole=devices[len(by_card) :]) for device in devices[len(by_card) :]), *instances)


def reported_partitions(previous: GPUNodeStatus | None) -> dict[str, tuple[str, ...]]:
    """The profiles of the devices that were partitioned again, by the device's UUID: a report outlives this process."""
    if previous is None:
        return {}
    return {
        card.uuid: tuple(device.mig_profile for device in previous.devices if device.parent == card.uuid)
        for card in previous.reshapable
        if card.answered and not card.problem
    }


def slots_of(card: DeviceInfo) -> tuple[Slot, ...]:
    """The instances that a simulated GPU can have: those of an A100 or H100, in eighths of its memory."""
    unit = card.memory_mib // 1024 // _EIGHTHS
    shapes = (
        (1, 1, range(7)),
        (1, 2, range(0, 8, 2)),
        (2, 2, range(0, 6, 2)),
        (3, 4, range(0, 8, 4)),
        (4, 4, range(1)),
        (7, 8, range(1)),
    )
    return tuple(
        Slot(profile=f"{compute}g.{eighths * unit}gb", size=eighths, starts=tuple(starts), count=len(starts))
        for compute, eighths, starts in shapes
        if unit
    )


def _instance(card: DeviceInfo, *, at: int, index: int, profile: str) -> DeviceInfo:
    return replace(
        card,
        index=index,
        uuid=f"MIG-{uuid.uuid5(_NAMESPACE, f'{card.uuid}/{at}/{profile}')}",
        model=f"{card.model} MIG {profile}",
        memory_mib=min(card.memory_mib, mig.memory_mib(profile)),
        reserved_mib=0,
        mig_profile=profile,
        parent=card.uuid,
        links=Links(),
    )


def _among(device: DeviceInfo, *, whole: Sequence[DeviceInfo]) -> DeviceInfo:
    """The device with its links to the devices that are whole."""
    known = {each.index for each in whole}
    links = device.links
    return replace(
        device,
        links=Links(
            nvlink=[peer for peer in links.nvlink if peer in known],
            switch=[peer for peer in links.switch if peer in known],
        ),
    )
