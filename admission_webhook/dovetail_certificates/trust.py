"""The configuration from which API servers learn the webhook's CAs.

A module of its own: an object of the API server and the calls about it, as `secret_store` is for Secrets; `hook` has
the order of the steps.
"""

from dataclasses import dataclass
from typing import Final

from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound

MUTATING: Final = Resource(
    group="admissionregistration.k8s.io",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
)


class ClientConfig(Described, frozen=True, kw_only=True):
    """How API servers call a webhook: the CAs that they trust for it."""

    ca_bundle: bytes = b""


class _Webhook(Described, frozen=True, kw_only=True):
    name: str
    client_config: ClientConfig = ClientConfig()


class Configuration(Described, frozen=True, kw_only=True):
    """A webhook configuration: each webhook's name, and the CAs that API servers trust for it."""

    metadata: ObjectMeta
    webhooks: list[_Webhook] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusting:
    """A configuration as it was read: its version, and the PEM bundles by the name of the webhook."""

    metadata: ObjectMeta
    bundles: dict[str, bytes]

    @property
    def bundle(self) -> bytes:
        """The CAs of all its webhooks, as one PEM bundle without duplicates."""
        return b"\n".join(dict.fromkeys(filter(None, self.bundles.values())))


async def read(client: Client, *, configuration: str) -> Trusting | None:
    """The configuration; None if it does not exist yet. Raises `KubeError`."""
    try:
        hooks = await client.get(MUTATING, name=configuration, as_type=Configuration)
    except NotFound:
        return None
    bundles = {each.name: each.client_config.ca_bundle for each in hooks.webhooks or ()}
    return Trusting(metadata=hooks.metadata, bundles=bundles)


async def publish(client: Client, *, bundle: bytes, over: Trusting) -> bool:
    """Write the bundle over the configuration that was read, if that has another one. Raises `KubeError`."""
    stale = [name for name, found in over.bundles.items() if found != bundle]
    if not stale:
        return False
    patch = {
        "metadata": {"resourceVersion": over.metadata.resource_version},
        "webhooks": [{"name": name, "clientConfig": {"caBundle": bundle}} for name in stale],
    }
    await client.patch(MUTATING, name=over.metadata.name, patch=patch, as_type=_Written, kind="strategic")
    return True


class _Written(Described, frozen=True, kw_only=True):
    metadata: ObjectMeta
