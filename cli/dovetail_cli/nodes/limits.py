"""Shows and changes the live part of the configuration, and devices' own limits."""

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

import yaml
from pydantic import BaseModel

from dovetail import names
from dovetail.api.builtin import ConfigMap
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import CONFIGMAPS, GPUNODES
from dovetail.config.errors import ConfigError
from dovetail.config.loading import check_values, document
from dovetail.config.reference import as_written
from dovetail.config.settings import Settings, live_keys
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.kube.errors import Forbidden, NotFound
from dovetail.kube.retry import retry_on_conflict
from dovetail.query.nodes.device_names import Named, named
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError, UsageError

COLUMNS: Final = ("KEY", "WHERE", "VALUE", "DEFAULT")
# What a device may have of its own, by key: the field of GPUNode's tenantLimits.
_OF_DEVICES: Final = {"training_per_device": "training", "inference_per_device": "inference"}
_EXAMPLE: Final = "such as dovetail limits set training_per_device=2"


def parse(words: Sequence[str]) -> dict[str, Any]:
    """The values by key of `KEY=VALUE` words. Raises `UsageError`."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not text:
            raise UsageError(f'"{word}": write KEY=VALUE, {_EXAMPLE}')
        try:
            found[key] = load_yaml(text)
        except YAMLTextError as error:
            raise UsageError(f'"{word}": its value cannot be read, {_EXAMPLE}') from error
    check_keys(found)
    return found


def check_keys(keys: Iterable[str]) -> list[str]:
    """The keys. Raises `UsageError` for one that does not count without a restart."""
    live = live_keys()
    for key in keys:
        top = key.partition(".")[0]
        if top in live:
            continue
        if top in Settings.model_fields:
            raise UsageError(
                f'"{key}" needs a restart: set config.{key} in the chart\'s values; at once count {", ".join(live)}'
            )
        raise UsageError(f'"{key}": unknown key, allowed are {", ".join(live)}')
    return list(keys)


def show(keys: Sequence[str], *, form: str, kubeconfig: str | None, context: str | None) -> str:
    """The text to print. Raises `UsageError`."""
    wanted = check_keys(keys) or live_keys()

    async def look(cluster: Cluster) -> list[dict[str, Any]]:
        found, gpunodes = await asyncio.gather(_read(cluster), _gpunodes(cluster))
        return [
            row
            for row in (*_of_cluster(_values_in(found)), *_of_devices(gpunodes))
            if any(row["KEY"] == key or row["KEY"].startswith(f"{key}.") for key in wanted)
        ]

    rows = work(look, kubeconfig=kubeconfig, context=context, brief=True)
    if form in {"json", "yaml"}:
        rows = [{name.lower(): value for name, value in row.items()} for row in rows]
    else:
        rows = [{name: _shown(value) for name, value in row.items()} for row in rows]
    return output.render(rows, columns=COLUMNS, form=form)


def change(
    wanted: Mapping[str, Any], *, devices: Sequence[str], kubeconfig: str | None, context: str | None
) -> list[str]:
    """Change the cluster's values, or those of `devices`, and return a sentence for each change.

    A value of None takes the key away. Raises `UsageError`, and `MissingError` without a ConfigMap.
    """
    for key in wanted if devices else ():
        if key not in _OF_DEVICES:
            raise UsageError(f"--device: {key} is no limit of a device; these are {', '.join(_OF_DEVICES)}")

    async def go(cluster: Cluster) -> list[str]:
        if devices:
            return await _change_devices(cluster, words=devices, wanted=wanted)
        return await retry_on_conflict(lambda _: _change_cluster(cluster, wanted=wanted))

    return work(go, kubeconfig=kubeconfig, context=context)


def edited(values: Mapping[str, Any], *, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration's values with the changes: `preemption.grace` is below `preemption`.

    Raises `UsageError` for a key below one that is no map.
    """
    result = deepcopy(dict(values))
    for key, value in wanted.items():
        *path, last = key.split(".", maxsplit=1)
        at = result
        for part in path:
            at = at.setdefault(part, {})
            if not isinstance(at, dict):
                raise UsageError(f'"{key}": {part} has no keys of its own')
        if value is None:
            at.pop(last, None)
        else:
            at[last] = value
        if path and not at:
            del result[path[0]]
    return result


def check(values: Mapping[str, Any]) -> Settings:
    """The settings with these values. Raises `UsageError` for one that is not allowed."""
    try:
        return check_values(values, origin=names.CONFIG_FILE)
    except ConfigError as error:
        raise UsageError(f"{error.problem}, {_EXAMPLE}") from error


async def _change_cluster(cluster: Cluster, *, wanted: Mapping[str, Any]) -> list[str]:
    found = await _read(cluster)
    if found is None:
        raise MissingError(
            f"there is no ConfigMap {names.CONFIG} that you may read: only an installed release can be configured"
        )
    values = document(found.data.get(names.CONFIG_FILE, ""), origin=f"ConfigMap {names.CONFIG}")
    after = edited(values, wanted=wanted)
    before, now = check_values(values, origin=f"ConfigMap {names.CONFIG}"), check(after)
    text = yaml.safe_dump(after, sort_keys=False, allow_unicode=True) if after else ""
    patch = {
        "metadata": {"resourceVersion": found.metadata.resource_version},
        "data": {names.CONFIG_FILE: text},
    }
    await cluster.client.patch(
        CONFIGMAPS, name=names.CONFIG, patch=patch, as_type=ConfigMap, namespace=found.metadata.namespace
    )
    if sys.stderr.isatty():
        print(
            "dovetail: the next helm upgrade puts back what the chart's values say: change config.KEY there too",
            file=sys.stderr,
        )
    return [f"{key}: {_shown(_at(before, key=key))} -> {_shown(_at(now, key=key))}" for key in wanted]


async def _change_devices(cluster: Cluster, *, words: Sequence[str], wanted: Mapping[str, Any]) -> list[str]:
    # The same bounds as for the cluster.
    check({key: value for key, value in wanted.items() if value is not None})
    gpunodes = (await cluster.client.list(GPUNODES, as_type=GPUNode)).items
    chosen = named(words, gpunodes=gpunodes)
    limits = {_OF_DEVICES[key]: value for key, value in wanted.items()}
    by_node: dict[str, list[Named]] = {}
    for device in chosen:
        by_node.setdefault(device.node, []).append(device)
    for node, devices in by_node.items():
        patch = {"spec": {"tenantLimits": {device.uuid: limits for device in devices}}}
        await cluster.client.patch(GPUNODES, name=node, patch=patch, as_type=GPUNode)
    return [
        f"{device.node}:{device.index} {key}: {'as in the cluster' if value is None else value}"
        for device in chosen
        for key, value in wanted.items()
    ]


async def _read(cluster: Cluster) -> ConfigMap | None:
    try:
        return await cluster.client.get(
            CONFIGMAPS, name=names.CONFIG, as_type=ConfigMap, namespace=await release_namespace(cluster)
        )
    except NotFound:
        return None


async def _gpunodes(cluster: Cluster) -> Sequence[GPUNode]:
    """The nodes with devices; none for a user who may not list them."""
    try:
        return (await cluster.client.list(GPUNODES, as_type=GPUNode)).items
    except Forbidden:
        print("dovetail: you may not list GPUNodes: devices' own limits are not shown", file=sys.stderr)
        return ()


def _values_in(found: ConfigMap | None) -> Settings:
    if found is None:
        return Settings()
    origin = f"ConfigMap {names.CONFIG}"
    return check_values(document(found.data.get(names.CONFIG_FILE, ""), origin=origin), origin=origin)


def _of_cluster(settings: Settings) -> Iterable[dict[str, Any]]:
    defaults = _flat(Settings())
    for key, value in _flat(settings).items():
        yield {"KEY": key, "WHERE": "cluster", "VALUE": value, "DEFAULT": defaults.get(key)}


def _flat(settings: Settings) -> dict[str, Any]:
    """The live values by key, `preemption.grace` for one of a group."""
    found: dict[str, Any] = {}
    for key in live_keys():
        value = getattr(settings, key)
        inner = value.model_dump() if isinstance(value, BaseModel) else value
        if isinstance(inner, Mapping):
            found |= {f"{key}.{name}": as_written(each) for name, each in inner.items()}
        else:
            found[key] = inner
    return found


def _of_devices(gpunodes: Sequence[GPUNode]) -> Iterable[dict[str, Any]]:
    for node in gpunodes:
        index = {device.uuid: device.index for device in node.status.devices}
        for uuid, limits in node.spec.tenant_limits.items():
            where = f"{node.metadata.name}:{index.get(uuid, uuid)}"
            for key, field in _OF_DEVICES.items():
                if (value := getattr(limits, field)) is not None:
                    yield {"KEY": key, "WHERE": where, "VALUE": value, "DEFAULT": None}


def _at(settings: Settings, *, key: str) -> Any:
    flat = _flat(settings)
    return flat[key] if key in flat else {name: value for name, value in flat.items() if name.startswith(f"{key}.")}


def _shown(value: Any) -> str:
    """A value as `dovetail limits set` takes it, and lists without YAML's brackets."""
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case Mapping():
            return ", ".join(f"{name}={_shown(each)}" for name, each in value.items()) or "none"
        case list() | tuple():
            return ", ".join(map(_shown, value)) or "none"
        case _:
            return str(value)
