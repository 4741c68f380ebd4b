"""The environment of a pod's process. Pure.

Three layers, the later ones win: the environment in which `gbatch` was typed, the container's variables as kubelet
resolves them, and what follows from the devices that the pod holds.
"""

import re
from collections.abc import Mapping
from typing import Final

from dovetail import names
from dovetail.api.builtin import EnvVar
from dovetail_local_node.pod_object import LocalPod

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")
_KEYED: Final = re.compile(r"metadata\.(annotations|labels)\['([^']*)'\]")
# An empty value of these would be an invalid limit.
_ONLY_WITH_VALUE: Final = (names.ENV_MPS_PERCENTAGE, names.ENV_MPS_MEMORY)


def container_variables(pod: LocalPod, *, address: str, numbers: Mapping[str, int]) -> dict[str, str]:
    """The variables of the pod's container, with fields of the pod and `$(NAME)` references resolved.

    CUDA's list of devices is that of the promised ones, or none: a process sees all devices of the machine, and CUDA
    hides those that this variable does not name. It names them by `numbers`, the number of each UUID now, in CUDA's
    order by PCI address. A device without a number has only its UUID, and a list never mixes both.
    """
    shown = _shown_devices(pod, address=address, numbers=numbers)
    found: dict[str, str] = {}
    for each in pod.spec.containers[0].env:
        value = shown.get(each.name)
        found[each.name] = _value(each, pod=pod, address=address, known=found) if value is None else value
    return {name: value for name, value in found.items() if value or name not in _ONLY_WITH_VALUE} | shown


def promised_devices(pod: LocalPod, *, address: str) -> list[str]:
    """The UUIDs of the devices that the pod holds, in their order."""
    env = pod.spec.containers[0].env
    texts = [_value(each, pod=pod, address=address, known={}) for each in env if each.name == names.ENV_VISIBLE_DEVICES]
    promised = texts[-1] if texts else ""
    return promised.split(",") if promised not in {"", names.NO_DEVICES} else []


def _shown_devices(pod: LocalPod, *, address: str, numbers: Mapping[str, int]) -> dict[str, str]:
    uuids = promised_devices(pod, address=address)
    counted = [str(numbers[uuid]) for uuid in uuids if uuid in numbers]
    return {
        names.ENV_CUDA_DEVICES: ",".join(counted if len(counted) == len(uuids) else uuids),
        # By default CUDA numbers the fastest device 0.
        names.ENV_CUDA_ORDER: "PCI_BUS_ID",
    }


def expanded(text: str, *, known: Mapping[str, str]) -> str:
    """`text` with `$(NAME)` replaced, as kubelet does it: unknown names stay, and `$$` is one `$`."""

    def replaced(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return known.get(match[1], match[0])

    return _REFERENCE.sub(replaced, text)


def parse_environment(data: bytes) -> dict[bytes, bytes]:
    """An environment as /proc shows it: `NAME=value` with NUL after each."""
    entries = (entry.partition(b"=") for entry in data.split(b"\0") if entry)
    return {name: value for name, _, value in entries if name}


def _value(each: EnvVar, *, pod: LocalPod, address: str, known: Mapping[str, str]) -> str:
    if each.value_from is None or each.value_from.field_ref is None:
        return expanded(each.value, known=known)
    return field_of(pod, path=each.value_from.field_ref.field_path, address=address)


def field_of(pod: LocalPod, *, path: str, address: str) -> str:
    """The pod's field at `path`, such as `metadata.annotations['key']`; empty if it has none."""
    meta = pod.metadata
    if keyed := _KEYED.fullmatch(path):
        return (meta.annotations if keyed[1] == "annotations" else meta.labels).get(keyed[2], "")
    fields = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "status.hostIP": address,
        "status.podIP": address,
    }
    return fields.get(path, "")
