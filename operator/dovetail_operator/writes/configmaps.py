"""Reads and conditionally writes the ConfigMaps in which the operator keeps numbers."""

from collections.abc import Iterable
from typing import Final

from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound

# How a write fails if another client has written or deleted the ConfigMap since it was read.
CONFLICTS: Final = (Conflict, AlreadyExists, NotFound)


async def read_configmap(client: Client, *, name: str, namespace: str) -> ConfigMap:
    """The ConfigMap, or an empty one to create."""
    try:
        return await client.get(CONFIGMAPS, name=name, as_type=ConfigMap, namespace=namespace)
    except NotFound:
        return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace))


async def write_configmap(client: Client, *, configmap: ConfigMap, removed: Iterable[str] = ()) -> ConfigMap:
    """Write the data of a ConfigMap that was read, without the keys `removed`.

    Raises one of `CONFLICTS` if it has changed since.
    """
    meta = configmap.metadata
    if not meta.resource_version:
        return await client.create(CONFIGMAPS, body=configmap, as_type=ConfigMap, namespace=meta.namespace)
    # A patch preserves what we do not read, such as labels. The resourceVersion makes it conditional.
    data = {**configmap.data, **dict.fromkeys(removed)}
    patch = {"metadata": {"resourceVersion": meta.resource_version}, "data": data}
    return await client.patch(CONFIGMAPS, name=meta.name, patch=patch, as_type=ConfigMap, namespace=meta.namespace)
