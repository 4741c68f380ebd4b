"""The webhook's configuration in tests that take it away. Afterwards it is the sandbox's own, as before.

A field that another manager owns too would stay when the sandbox applies the chart without it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from dovetail.kube.client import Client
from dovetail_certificates.trust import MUTATING

HOOKS: Final = MUTATING
_NAME: Final = "dovetail"
_MANAGER: Final = "dovetail-sandbox"
_KEPT: Final = ("name", "labels", "annotations")


@asynccontextmanager
async def without_ours(client: Client) -> AsyncIterator[None]:
    """Dovetail's webhook is not registered meanwhile."""
    before = await client.get(HOOKS, name=_NAME, as_type=dict[str, Any])
    await client.delete(HOOKS, name=_NAME)
    try:
        yield
    finally:
        metadata = {key: value for key, value in before["metadata"].items() if key in _KEPT}
        body = {"metadata": metadata, "webhooks": before["webhooks"]}
        await client.apply(HOOKS, name=_NAME, body=body, as_type=dict[str, Any], field_manager=_MANAGER, force=True)
