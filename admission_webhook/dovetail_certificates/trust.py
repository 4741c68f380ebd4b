"""The objects from which API servers learn the webhook's CAs: its configuration, and the CRDs that it converts."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import CRDS, Resource
from dovetail.decoding import convert
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


class _ManagedFields(Described, frozen=True, kw_only=True):
    manager: str = ""
    operation: str = ""
    fields_v1: dict[str, Any] = msgspec.field(name="fieldsV1", default_factory=dict)


class _DefinitionMeta(ObjectMeta, frozen=True, kw_only=True):
    managed_fields: list[_ManagedFields] = []


class _DefinitionSpec(Described, frozen=True, kw_only=True):
    conversion: dict[str, Any] = {}


class Definition(Described, frozen=True, kw_only=True):
    """A CRD: how its objects are converted, and which of that `dovetail-certificates` has applied."""

    metadata: _DefinitionMeta
    spec: _DefinitionSpec = _DefinitionSpec()

    @property
    def ca_bundle(self) -> bytes | None:
        """The CAs that API servers trust for its conversion webhook; None without a webhook."""
        if self.spec.conversion.get("strategy") != "Webhook":
            return None
        return convert(self.spec.conversion["webhook"]["clientConfig"], as_type=ClientConfig).ca_bundle

    @property
    def is_claimed(self) -> bool:
        """Whether its conversion stays when Helm gives it up."""
        ours = [
            each.fields_v1.get("f:spec", {})
            for each in self.metadata.managed_fields
            if (each.manager, each.operation) == (names.CERTIFICATES_MANAGER, "Apply")
        ]
        return any("f:conversion" in spec for spec in ours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trusting:
    """One object that names CAs.

    `bundles` are the PEM bundles by the name of the webhook, or by the name of the CRD. Of a CRD, `conversion` is what
    it says of its conversion, and `is_claimed` whether `dovetail-certificates` has applied that.
    """

    resource: Resource
    metadata: ObjectMeta
    bundles: dict[str, bytes]
    conversion: dict[str, Any] | None = None
    is_claimed: bool = True


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
        if (bundle := definition.ca_bundle) is not None:
            found.append(
                Trusting(
                    resource=CRDS,
                    metadata=definition.metadata,
                    bundles={name: bundle},
                    conversion=definition.spec.conversion,
                    is_claimed=definition.is_claimed,
                )
            )
    return found


def bundle_of(trusting: Sequence[Trusting]) -> bytes:
    """The CAs of all these objects, as one PEM bundle without duplicates."""
    return b"\n".join(dict.fromkeys(bundle for each in trusting for bundle in each.bundles.values() if bundle))


async def publish(client: Client, *, bundle: bytes, over: Trusting) -> bool:
    """Write the bundle over the object that was read, if that has another one. Raises `KubeError`."""
    stale = [name for name, found in over.bundles.items() if found != bundle]
    if over.conversion is not None and (stale or not over.is_claimed):
        await _claim(client, bundle=bundle, over=over, conversion=over.conversion)
    elif stale:
        patch = {
            "metadata": {"resourceVersion": over.metadata.resource_version},
            "webhooks": [{"name": name, "clientConfig": {"caBundle": bundle}} for name in stale],
        }
        await client.patch(MUTATING, name=over.metadata.name, patch=patch, as_type=_Written, kind="strategic")
    else:
        return False
    return True


async def _claim(client: Client, *, bundle: bytes, over: Trusting, conversion: dict[str, Any]) -> None:
    """Apply the whole conversion of a CRD, as it is, with the bundle.

    With the bundle alone, `helm rollback` to a chart without a conversion would fail: Helm would remove all but the
    bundle, and the API server refuses a webhook's CAs without a webhook.
    """
    webhook = conversion["webhook"]
    config = webhook["clientConfig"] | {"caBundle": base64.b64encode(bundle).decode()}
    body = {
        "metadata": {"name": over.metadata.name, "resourceVersion": over.metadata.resource_version},
        "spec": {"conversion": conversion | {"webhook": webhook | {"clientConfig": config}}},
    }
    await client.apply(
        CRDS,
        name=over.metadata.name,
        body=body,
        as_type=_Written,
        field_manager=names.CERTIFICATES_MANAGER,
        force=True,
    )


class _Written(Described, frozen=True, kw_only=True):
    metadata: ObjectMeta
