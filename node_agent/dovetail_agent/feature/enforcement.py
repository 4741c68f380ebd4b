"""Reports what a node can enforce: features set their own fields, `Discovery` the rest.

A field is true because a check on this node has passed. Where it is false, `reasons` has one sentence for it.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from dovetail.api.gpunode import GPUNodeStatus
from dovetail_agent.devices.model import DeviceInfo, DeviceSample
from dovetail_agent.feature.protocol import Feature, Seen

_SIMULATED: Final = "the node is simulated: nothing runs there"
_UNREADABLE: Final = "the devices cannot be read"
_OFF: Final[Mapping[str, str]] = {
    "mps": "MPS is switched off (mps.enabled)",
    "turns": "turns are switched off (agent.turns.enabled)",
    "timeSlicing": "there is no card of NVIDIA's whose processes the driver lets share it",
    "mig": "no card is split by MIG",
    "checkpoint": "moving tenants to the host is switched off (agent.checkpoint.enabled)",
}
_FIELDS: Final = {
    "mps": "mps",
    "turns": "turns",
    "timeSlicing": "time_slicing",
    "mig": "mig",
    "checkpoint": "checkpoint",
}


def with_enforcement(status: GPUNodeStatus, *, name: str, holds: bool, why: str = "") -> GPUNodeStatus:
    """Set one field of the enforcement by its API name (mps, timeSlicing …), and its reason."""
    before = status.enforcement
    reasons = {key: text for key, text in before.reasons.items() if key != name} | ({name: why} if why else {})
    enforcement = msgspec.structs.replace(before, reasons=reasons, **{_FIELDS[name]: holds})
    return msgspec.structs.replace(status, enforcement=enforcement)


class Discovery(Feature):
    """Reports the driver's own time slicing, and a reason for each field without one. Runs last."""

    name = "enforcement"

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Return the status with a value or a reason for every field."""
        if seen.inventory is not None and seen.sample is not None:
            pairs = list(zip(seen.inventory.devices, seen.sample.devices, strict=True))
            holds, why = _sliced(pairs, kept=_fractional(seen))
            status = with_enforcement(status, name="timeSlicing", holds=holds, why=why)
        for name, sentence in _OFF.items():
            if not getattr(status.enforcement, _FIELDS[name]) and name not in status.enforcement.reasons:
                status = with_enforcement(
                    status, name=name, holds=False, why=_otherwise(status, sentence=sentence, seen=seen)
                )
        return status


def _otherwise(status: GPUNodeStatus, *, sentence: str, seen: Seen) -> str:
    if status.provider == "simulated":
        return _SIMULATED
    return sentence if seen.sample is not None else _UNREADABLE


def _fractional(seen: Seen) -> frozenset[str]:
    """Devices that MPS keeps exclusive on purpose while they are shared."""
    return frozenset(each.uuid for tenant in seen.tenants if tenant.mode == "Fractional" for each in tenant.devices)


def _sliced(pairs: list[tuple[DeviceInfo, DeviceSample]], *, kept: frozenset[str]) -> tuple[bool, str]:
    """Whether the driver's time slicing shares a device, and the sentence on those it does not."""
    by_index = {info.index: state.shareable for info, state in pairs if info.uuid not in kept and not info.mig_profile}
    shared = [index for index, shareable in by_index.items() if shareable]
    closed = [index for index, shareable in by_index.items() if shareable is False]
    if closed:
        which = ", ".join(map(str, closed))
        return bool(shared), f"device {which}: the compute mode lets only one process, or none, compute there"
    return bool(shared), ""
