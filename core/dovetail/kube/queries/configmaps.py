"""Writes what has one writer into a ConfigMap."""

from collections.abc import Mapping

from dovetail.api.builtin import ConfigMap
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound


async def put_data(client: Client, *, name: str, namespace: str, data: Mapping[str, str]) -> None:
    """Write these keys of a ConfigMap without a precondition, and create it if there is none. Raises `KubeError`."""
    try:
        await client.patch(CONFIGMAPS, name=name, patch={"data": data}, as_type=ConfigMap, namespace=namespace)
    except NotFound:
        made = ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace), data=dict(data))
        await client.create(CONFIGMAPS, body=made, as_type=ConfigMap, namespace=namespace)
