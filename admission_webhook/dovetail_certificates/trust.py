"""The objects from which API servers learn the webhook's CAs: its configuration, and the CRDs that it converts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dovetail import logs
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import CRDS, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound

MUTATING: Final = Resource(
    group="admissionregistration.k8s.io",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
)
log = logs.get_logger("dovetail.certificates")


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


class _ConversionWebhook(Described, frozen=True, kw_only=True):
    client_config: ClientConfig | None = None


class _Conversion(Described, frozen=True, kw_only=True):
    webhook: _ConversionWebhook | None = None


class _DefinitionSpec(Described, frozen=True, kw_only=True):
    conversion: _Conversion | None = None


class Definition(Described, frozen=True, kw_only=True):
    """A CRD: the CAs that API servers trust for its conversion webhook, if it has one."""

    metadata: ObjectMeta
    spec: _DefinitionSpec = _DefinitionSpec()

    @property
    def client_config(self) -> ClientConfig | None:
        """How API servers call its conversion webhook; None without one."""
        webhook = self.spec.conversion.webhook if self.spec.conversion else None
        return webhook.client_config if webhook else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusting:
    """One object that names CAs.

    `bundles` are the PEM bundles by the name of the webhook, or by the name of the CRD.
    """

    resource: Resource
    metadata: ObjectMeta
    bundles: dict[str, bytes]


async def read(client: Client, *, configuration: str, converted: Sequence[str]) -> list[Trusting]:
    """The configuration and the CRDs, those that exist and call a webhook. Raises `KubeError`."""
    found: list[Trusting] = []
    try:
        hooks = await client.get(MUTATING, name=configuration, as_type=Configuration)
    except NotFound:
        pass
    else:
        bundles = {each.name: each.client_config.ca_bundle for each in hooks.webhooks or ()}
        found.append(Trusting(resource=MUTATING, metadata=hooks.metadata, bundles=bundles))
    for name in converted:
        try:
            definition = await client.get(CRDS, name=name, as_type=Definition)
        except NotFound:
            continue
        if (config := definition.client_config) is not None:
            found.append(Trusting(resource=CRDS, metadata=definition.metadata, bundles={name: config.ca_bundle}))
    return found


async def publish(client: Client, *, bundle: bytes, over: Trusting) -> None:
    """Write the bundle over the object that was read, where it has another one. Raises `KubeError`."""
    stale = [name for name, found in over.bundles.items() if found != bundle]
    if not stale:
        return
    patch: dict[str, Any] = {"metadata": {"resourceVersion": over.metadata.resource_version}}
    client_config = {"clientConfig": {"caBundle": bundle}}
    if over.resource == MUTATING:
        patch["webhooks"] = [{"name": name, **client_config} for name in stale]
    else:
        patch["spec"] = {"conversion": {"webhook": client_config}}
    # A list of webhooks is merged by name in a strategic patch; CRDs take a merge patch alone.
    kind: Final = "strategic" if over.resource == MUTATING else "merge"
    await client.patch(over.resource, name=over.metadata.name, patch=patch, as_type=_Written, kind=kind)
    log.info("CAs published", kind=over.resource.kind, name=over.metadata.name, webhooks=stale)


class _Written(Described, frozen=True, kw_only=True):
    metadata: ObjectMeta
