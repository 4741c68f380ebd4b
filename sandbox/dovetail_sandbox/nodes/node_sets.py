"""Simulated nodes from a declaration or from a trace's list of nodes, validated. Data only.

A declaration (YAML) is a list. This entry adds four nodes `v100-0` … `v100-3` with eight devices each:
    - {name: v100, count: 4, model: V100, devices: 8, memory_mib: 32768, cpu: 96, memory: 768Gi}

With `resource: nvidia.com/gpu` a vendor's device plugin serves the nodes, otherwise Dovetail manages them. Vendors
other than NVIDIA always serve their own.

`mig: [7x1g.5gb, "1x3g.20gb,2x2g.10gb"]` partitions the first devices of each node, an entry each.

A trace's list (CSV) has the columns sn, cpu_milli, memory_mib, gpu and model.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from dovetail.formats import quantities
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.gpu import models
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.gpu.partition import partition
from dovetail_sandbox.errors import InvalidInputError

UNKNOWN_MODEL_MIB: Final = 16384  # memory of a device of an unknown model: that of the smallest common one
DEFAULT_CPU_MILLI: Final = 64_000
DEFAULT_MEMORY_MIB: Final = 262_144
_FIELDS: Final = ("name", "count", "model", "devices", "memory_mib", "cpu", "memory", "vendor", "resource", "mig")
_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_RESOURCES_BY_VENDOR: Final = {DEFAULT_VENDORS.vendor_of(each): each for each in reversed(DEFAULT_VENDORS.resources)}
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedNode:
    """One node with `devices` devices of one model; 0 is a node without GPUs and with no model.

    `resource` is what a vendor's plugin advertises there; empty on a node that Dovetail manages. `mig` has the
    instances of each device that is partitioned, the first devices first.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    model: str = ""
    devices: int = 0
    device_memory_mib: int = 0
    vendor: str = "nvidia"
    resource: str = ""
    mig: tuple[str, ...] = ()


def read(path: Path | None, *, limit: int | None = None) -> list[SimulatedNode]:
    """Read the nodes of a file, or the built-in ones; at most `limit`.

    A `.csv` file is a trace's list, any other a declaration. Raises `InvalidInputError` with the file's entry, the
    field and the value.
    """
    if limit is not None and limit < 1:
        raise InvalidInputError("limit-nodes", value=limit, allowed="a whole number from 1 up")
    if path is None:
        text = resources.files("dovetail_sandbox").joinpath("data/nodes.yaml").read_text(encoding="utf-8")
        nodes = declared(text)
    else:
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError("nodes", value=str(path), allowed=f"a readable file ({error})") from error
        nodes = traced(text) if path.suffix == ".csv" else declared(text)
    return nodes[:limit]


def declared(text: str) -> list[SimulatedNode]:
    """Parse the nodes of a YAML declaration. Raises `InvalidInputError`."""
    try:
        sets = load_yaml(text)
    except YAMLTextError as error:
        raise InvalidInputError("nodes", value=text[:40], allowed=f"YAML ({error})") from error
    if not isinstance(sets, list) or not sets or not all(isinstance(each, dict) for each in sets):
        raise InvalidInputError("nodes", value=type(sets).__name__, allowed="a list of node sets")
    nodes = [node for position, each in enumerate(sets) for node in _expand(each, where=f"nodes[{position}]")]
    return _unique(nodes)


def traced(text: str) -> list[SimulatedNode]:
    """Parse the nodes of a trace's CSV. Raises `InvalidInputError`.

    Devices of an unknown model have `UNKNOWN_MODEL_MIB` of memory each.
    """
    lines = csv.DictReader(text.splitlines())
    if missing := [column for column in _COLUMNS if column not in (lines.fieldnames or ())]:
        raise InvalidInputError("columns", value=lines.fieldnames, allowed=f"a header with {', '.join(missing)} too")
    nodes = [_of_line(line, where=f"line {number}") for number, line in enumerate(lines, start=2)]
    if not nodes:
        raise InvalidInputError("nodes", value="", allowed="at least one line after the header")
    return _unique(nodes)


def _expand(declaration: Mapping[str, Any], *, where: str) -> Iterator[SimulatedNode]:
    for key in declaration:
        if key not in _FIELDS:
            raise InvalidInputError(
                f"{where}.{key}", value=declaration[key], allowed=f"the fields {', '.join(_FIELDS)}"
            )
    devices = _whole(declaration.get("devices", 0), field=f"{where}.devices", least=0)
    model = _text(declaration.get("model", ""), field=f"{where}.model")
    if bool(model) != bool(devices):
        allowed = "model and devices together, or neither for a node without GPUs"
        raise InvalidInputError(f"{where}.model", value=model, allowed=allowed)
    prefix = _node_name(declaration.get("name"), field=f"{where}.name")
    shape = {
        "cpu_milli": _cpu_milli(declaration.get("cpu"), field=f"{where}.cpu"),
        "memory_mib": _memory_mib(declaration.get("memory"), field=f"{where}.memory"),
        "devices": devices,
        "device_memory_mib": _card_mib(declaration.get("memory_mib"), model=model, field=f"{where}.memory_mib"),
    }
    vendor = declaration.get("vendor") or models.vendor_of(model) or "nvidia"
    if vendor not in models.VENDORS:
        raise InvalidInputError(f"{where}.vendor", value=vendor, allowed=", ".join(models.VENDORS))
    resource = _resource(declaration.get("resource"), vendor=vendor, devices=devices, field=f"{where}.resource")
    mig = _partitions(declaration.get("mig", []), devices=devices, vendor=vendor, field=f"{where}.mig")
    for index in range(_whole(declaration.get("count", 1), field=f"{where}.count", least=1)):
        yield SimulatedNode(name=f"{prefix}-{index}", model=model, vendor=vendor, resource=resource, mig=mig, **shape)


def _of_line(line: Mapping[str, str], *, where: str) -> SimulatedNode:
    devices = _whole(line["gpu"], field=f"{where}, gpu", least=0)
    model = (line["model"] or "") if devices else ""
    if devices and not model:
        raise InvalidInputError(f"{where}, model", value="", allowed="a model, as gpu is not 0")
    vendor = models.vendor_of(model) or "nvidia"
    return SimulatedNode(
        name=_node_name(line["sn"], field=f"{where}, sn"),
        cpu_milli=_whole(line["cpu_milli"], field=f"{where}, cpu_milli", least=1),
        memory_mib=_whole(line["memory_mib"], field=f"{where}, memory_mib", least=1),
        model=model,
        devices=devices,
        device_memory_mib=_card_mib(None, model=model, field=f"{where}, model", unknown_mib=UNKNOWN_MODEL_MIB),
        vendor=vendor,
        resource=_resource(None, vendor=vendor, devices=devices, field=where),
    )


def _resource(value: object, *, vendor: str, devices: int, field: str) -> str:
    """Return what a vendor's plugin advertises; empty where Dovetail manages the nodes.

    Dovetail manages only NVIDIA's.
    """
    if value is None:
        return _RESOURCES_BY_VENDOR[vendor] if devices and vendor != "nvidia" else ""
    if not isinstance(value, str) or not _RESOURCE.fullmatch(value) or not devices:
        allowed = "the resource of a vendor's device plugin, such as nvidia.com/gpu, on nodes with devices"
        raise InvalidInputError(field, value=value, allowed=allowed)
    return value


def _partitions(value: object, *, devices: int, vendor: str, field: str) -> tuple[str, ...]:
    """Return the instances of each partitioned device."""
    entries = value if isinstance(value, list) else [None]
    for entry in entries:
        if not (isinstance(entry, str) and partition(entry)) or len(entries) > devices or vendor != "nvidia":
            allowed = "a list of at most one entry for each NVIDIA device, with the MIG instances that it is split into"
            raise InvalidInputError(field, value=value, allowed=f'{allowed}, such as [7x1g.5gb, "1x3g.20gb,2x2g.10gb"]')
    return tuple(entries)


def _card_mib(value: object, *, model: str, field: str, unknown_mib: int | None = None) -> int:
    if not model:
        return 0
    if value is not None:
        return _whole(value, field=field, least=1)
    known = models.memory_mib(model) or unknown_mib
    if known is None:
        allowed = f"the memory of one {model} in MiB, as the table of models does not have it"
        raise InvalidInputError(field, value=value, allowed=allowed)
    return known


def _whole(value: object, *, field: str, least: int) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInputError(field, value=value, allowed=f"a whole number from {least} up")
    return value


def _text(value: object, *, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(field, value=value, allowed="a text")
    return value


def _node_name(value: object, *, field: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InvalidInputError(field, value=value, allowed="a node name of a-z, 0-9, - and .")
    return value


def _cpu_milli(value: object, *, field: str) -> int:
    if value is None:
        return DEFAULT_CPU_MILLI
    return _positive(value, read=quantities.milli, field=field, allowed="cores such as 64 or 500m")


def _memory_mib(value: object, *, field: str) -> int:
    if value is None:
        return DEFAULT_MEMORY_MIB
    return _positive(value, read=quantities.mebibytes, field=field, allowed="memory such as 256Gi")


def _positive(value: object, *, read: Callable[..., int], field: str, allowed: str) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise InvalidInputError(field, value=value, allowed=allowed)
    try:
        amount = read(value, rounding="down")
    except quantities.QuantityError as error:
        raise InvalidInputError(field, value=value, allowed=allowed) from error
    if amount < 1:
        raise InvalidInputError(field, value=value, allowed=allowed)
    return amount


def _unique(nodes: list[SimulatedNode]) -> list[SimulatedNode]:
    seen: set[str] = set()
    for node in nodes:
        if node.name in seen:
            raise InvalidInputError("name", value=node.name, allowed="each node name only once")
        seen.add(node.name)
    return nodes
