"""Keeps one Secret and its webhook configuration as `rotation` decides. All I/O is here.

Level-triggered: each check reads both objects, decides from them alone, and writes with the resourceVersion that it
read. Two processes that run at the same time get conflicts, and then decide from the same Secret.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from dovetail import logs
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail_certificates.checks import LOOK_SECONDS, Check
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import utc_now
from dovetail_certificates.rotation import Plan, Stored, plan, served_facts
from dovetail_certificates.secret_store import SecretStore

MUTATING: Final = Resource(
    group="admissionregistration.k8s.io",
    plural="mutatingwebhookconfigurations",
    kind="MutatingWebhookConfiguration",
    namespaced=False,
)
log = logs.get_logger("dovetail.certificates")


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


class Keeper(Check):
    """Keeps the webhook's Secret and the CAs in its configuration."""

    def __init__(
        self,
        client: Client,
        *,
        target: Target,
        metrics: Metrics,
        now: Callable[[], datetime] = utc_now,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        super().__init__(secret=target.secret, look_seconds=look_seconds)
        self._client = client
        self._secrets = SecretStore(client, namespace=target.namespace, metrics=metrics)
        self._target = target
        self._metrics = metrics
        self._now = now
        # The successor's CA, and the time from which every webhook of the configuration had it.
        self._published: tuple[bytes, datetime] | None = None

    async def reconcile(self) -> None:
        """Read both objects and write what differs. Raises `KubeError` and `ForeignSecretError`."""
        secret, configuration = await self._secrets.read(self._target.secret), await self._configuration()
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
            await self._secrets.write(self._target.secret, data=step.stored.data(), over=secret, reason=step.reason)
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

    async def _configuration(self) -> Configuration | None:
        try:
            return await self._client.get(MUTATING, name=self._target.configuration, as_type=Configuration)
        except NotFound:
            return None

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
            self._metrics.show(self._target.secret, facts=facts)


def _bundle_of(configuration: Configuration | None) -> bytes:
    """The CAs of all webhooks in the configuration, without duplicates."""
    found = [each.client_config.ca_bundle for each in (configuration.webhooks if configuration else None) or ()]
    return b"\n".join(dict.fromkeys(found))
