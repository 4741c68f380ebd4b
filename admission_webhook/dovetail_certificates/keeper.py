"""Keeps one Secret and its webhook configuration as `rotation` decides. All I/O is here.

Level-triggered: each check reads both objects, decides from them alone, and writes with the resourceVersion that it
read. Two processes that run at the same time get conflicts, and then decide from the same Secret.

ForeignSecretError   the Secret exists and has another owner; it is never overwritten
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dovetail import logs
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError, NotFound
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import utc_now
from dovetail_certificates.rotation import Plan, Stored, plan, served_facts

SECRETS: Final = Resource(plural="secrets", kind="Secret")
MUTATING: Final = Resource(
    group="admissionregistration.k8s.io",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
)
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "dovetail-certificates"
_TYPE: Final = "kubernetes.io/tls"
_LOOK_SECONDS: Final = 10.0
log = logs.get_logger("dovetail.certificates")


class ForeignSecretError(Exception):
    """The Secret exists and `dovetail-certificates` did not create it."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"Secret {name} was not made by {MANAGER}: delete it, or name cert-manager's issuer in the values"
        )


class Secret(Described, frozen=True, kw_only=True):
    """A Secret; msgspec decodes the base64 of its data."""

    metadata: ObjectMeta
    type: str = ""
    data: dict[str, bytes] | None = None


class _ClientConfig(Described, frozen=True, kw_only=True):
    ca_bundle: bytes = b""


class _Webhook(Described, frozen=True, kw_only=True):
    name: str
    client_config: _ClientConfig = _ClientConfig()


class Configuration(Described, frozen=True, kw_only=True):
    """A webhook configuration: each webhook's name, and the CAs that API servers trust for it."""

    metadata: ObjectMeta
    webhooks: list[_Webhook] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server whose certificate is kept.

    It mounts `secret` and is reached by `names`. `configuration` is the MutatingWebhookConfiguration with its CAs.
    """

    namespace: str
    secret: str
    names: Sequence[str]
    configuration: str


class Keeper:
    """Checks every `look_seconds`; `problem` says why the last check failed, empty if it succeeded."""

    def __init__(
        self,
        client: Client,
        *,
        target: Target,
        metrics: Metrics,
        now: Callable[[], datetime] = utc_now,
        look_seconds: float = _LOOK_SECONDS,
    ) -> None:
        self.problem = "it has not looked yet"
        self._client = client
        self._target = target
        self._metrics = metrics
        self._now = now
        self._look_seconds = look_seconds
        # The successor's CA, and the time from which every webhook of the configuration had it.
        self._published: tuple[bytes, datetime] | None = None

    async def run(self) -> None:
        """Check until cancelled; an error costs one check, and the next one retries."""
        while True:
            try:
                await self.reconcile()
                self.problem = ""
            except (KubeError, ForeignSecretError) as error:
                self.problem = str(error)
                log.warning("the certificate is not kept", secret=self._target.secret, error=str(error))
            await asyncio.sleep(self._look_seconds)

    async def reconcile(self) -> None:
        """Read both objects and write what differs. Raises `KubeError` and `ForeignSecretError`."""
        secret, configuration = await self._secret(), await self._configuration()
        stored = Stored.from_secret(secret.data or {} if secret else {})
        step = plan(
            stored,
            bundle=_bundle_of(configuration),
            names=self._target.names,
            now=self._now(),
            published_at=self._published_at(stored, configuration=configuration),
        )
        # In this order: a CA is published only once its certificate is stored.
        if step.stored != stored:
            await self._store(step, version=secret.metadata.resource_version if secret else "")
        if configuration is not None:
            await self._publish(step.bundle, configuration=configuration)
        self._log_step(step)

    def _published_at(self, stored: Stored, *, configuration: Configuration | None) -> datetime | None:
        """The time from which the successor's CA has been published; None while it is not.

        Without a configuration it counts as published: no API server needs to learn it.
        """
        if stored.next is None:
            self._published = None
            return None
        authority = stored.next.authority
        webhooks = (configuration.webhooks if configuration else None) or []
        if not all(authority in each.client_config.ca_bundle for each in webhooks):
            self._published = None
        elif self._published is None or self._published[0] != authority:
            self._published = (authority, self._now())
        return self._published[1] if self._published else None

    async def _secret(self) -> Secret | None:
        try:
            found = await self._client.get(
                SECRETS, name=self._target.secret, as_type=Secret, namespace=self._target.namespace
            )
        except NotFound:
            return None
        if found.metadata.labels.get(MANAGED_BY) != MANAGER or found.type != _TYPE:
            raise ForeignSecretError(self._target.secret)
        return found

    async def _configuration(self) -> Configuration | None:
        try:
            return await self._client.get(MUTATING, name=self._target.configuration, as_type=Configuration)
        except NotFound:
            return None

    async def _store(self, step: Plan, *, version: str) -> None:
        """Write the Secret with server-side apply, because RBAC can limit that to one name.

        RBAC cannot limit `create` by name: such a request has no name when it is authorized.
        """
        metadata = {"name": self._target.secret, "namespace": self._target.namespace, "labels": {MANAGED_BY: MANAGER}}
        body = {
            "metadata": metadata | ({"resourceVersion": version} if version else {}),
            "type": _TYPE,
            "data": step.stored.data(),
        }
        await self._client.apply(
            SECRETS,
            name=self._target.secret,
            body=body,
            as_type=Secret,
            field_manager=MANAGER,
            force=True,
            namespace=self._target.namespace,
        )
        log.info("certificate written", secret=self._target.secret, reason=step.reason, names=list(self._target.names))
        self._metrics.writes.labels(self._target.secret).inc()

    async def _publish(self, bundle: bytes, *, configuration: Configuration) -> None:
        stale = [each.name for each in configuration.webhooks or () if each.client_config.ca_bundle != bundle]
        if not stale:
            return
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": configuration.metadata.resource_version},
            "webhooks": [{"name": name, "clientConfig": {"caBundle": bundle}} for name in stale],
        }
        await self._client.patch(
            MUTATING, name=configuration.metadata.name, patch=patch, as_type=Configuration, kind="strategic"
        )
        log.info("CAs published", configuration=configuration.metadata.name, webhooks=stale)

    def _log_step(self, step: Plan) -> None:
        facts = served_facts(step.stored)
        if facts is not None:
            self._metrics.renewal.labels(self._target.secret).set(facts.renew_at.timestamp())
            self._metrics.expiry.labels(self._target.secret).set(facts.valid_until.timestamp())


def _bundle_of(configuration: Configuration | None) -> bytes:
    """The CAs of all webhooks in the configuration, without duplicates."""
    found = [each.client_config.ca_bundle for each in (configuration.webhooks if configuration else None) or ()]
    return b"\n".join(dict.fromkeys(found))
