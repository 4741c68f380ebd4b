"""The configuration of the sandbox's release, read and written as an administrator does."""

from typing import Any

from dovetail.api.resources import CONFIGMAPS
from dovetail.kube.client import Client
from dovetail.names import CONFIG, CONFIG_FILE, RELEASE_NAMESPACE


async def config_of(client: Client) -> str:
    """The text of `gpu_config.yaml`."""
    found = await client.get(CONFIGMAPS, name=CONFIG, as_type=dict[str, Any], namespace=RELEASE_NAMESPACE)
    text: str = found["data"][CONFIG_FILE]
    return text


async def set_config(client: Client, text: str) -> None:
    """Replace it; values that count at once do so soon."""
    patch = {"data": {CONFIG_FILE: text}}
    await client.patch(CONFIGMAPS, name=CONFIG, patch=patch, as_type=dict[str, Any], namespace=RELEASE_NAMESPACE)
