"""Simulated MIG instances: they replace their device and are numbered after the last one. Pure."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from dovetail import names
from dovetail.api.gpunode import Links
from dovetail.gpu import mig
from dovetail.gpu.partition import partition
from dovetail_agent.devices.model import DeviceInfo

_NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, names.GROUP)


def instances_in(entry: Any) -> tuple[str, ...]:
    """The profiles in an entry of the annotation; empty if it is none."""
    return partition(entry) if isinstance(entry, str) else ()


def partitioned(devices: Sequence[DeviceInfo], *, by_card: Sequence[str]) -> tuple[DeviceInfo, ...]:
    """The devices, the first of them replaced by their instances as `by_card` has them."""
    split = [(card, profile) for card, entry in zip(devices, by_card, strict=False) for profile in partition(entry)]
    instances = (_instance(card, index=len(devices) + at, profile=profile) for at, (card, profile) in enumerate(split))
    return (*(_among(device, whole=devices[len(by_card) :]) for device in devices[len(by_card) :]), *instances)


def _instance(card: DeviceInfo, *, index: int, profile: str) -> DeviceInfo:
    return replace(
        card,
        index=index,
        uuid=f"MIG-{uuid.uuid5(_NAMESPACE, f'{card.uuid}/{index}')}",
        model=f"{card.model} MIG {profile}",
        memory_mib=min(card.memory_mib, mig.memory_mib(profile)),
        reserved_mib=0,
        mig_profile=profile,
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
