"""Keeps one Secret, its webhook configuration and its CRDs as `rotation` decides. All I/O is here and in `trust`.

Level-triggered: each check reads all of them, decides from them alone, and writes with the resourceVersion that it
read. Two processes that run at the same time get conflicts, and then decide from the same Secret.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from dovetail import logs
from dovetail.kube.client import Client
from dovetail_certificates import trust
from dovetail_certificates.checks import LOOK_SECONDS, Check
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import utc_now
from dovetail_certificates.rotation import Plan, Stored, plan, served_facts
from dovetail_certificates.secret_store import SecretStore
from dovetail_certificates.trust import Trusting

log = logs.get_logger("dovetail.certificates")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The server whose certificate is kept.

    It mounts `secret` and is reached by `names`. `configuration` is the MutatingWebhookConfiguration with its CAs, and
    `converted` names the CRDs whose objects it converts.
    """

    namespace: str
    secret: str
    names: Sequence[str]
    configuration: str
    converted: Sequence[str] = ()


class Keeper(Check):
    """Keeps the webhook's Secret, and the CAs where API servers find them."""

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
        # The successor's CA, and the time from which every object that names CAs had it.
        self._published: tuple[bytes, datetime] | None = None

    async def reconcile(self) -> None:
        """Read all objects and write what differs. Raises `KubeError` and `ForeignSecretError`."""
        target = self._target
        secret = await self._secrets.read(target.secret)
        trusting = await trust.read(self._client, configuration=target.configuration, converted=target.converted)
        stored = Stored.from_secret(secret.data or {} if secret else {})
        step = plan(
            stored,
            bundle=_bundle_of(trusting),
            names=target.names,
            now=self._now(),
            published_at=self._published_at(stored, trusting=trusting),
        )
        # In this order: a CA is published only once its certificate is stored.
        if step.stored != stored:
            await self._secrets.write(target.secret, data=step.stored.data(), over=secret, reason=step.reason)
        for each in trusting:
            await trust.publish(self._client, bundle=step.bundle, over=each)
        self._log_step(step)

    def _published_at(self, stored: Stored, *, trusting: Sequence[Trusting]) -> datetime | None:
        """The time from which the successor's CA has been published; None while it is not.

        Without an object that names CAs it counts as published: no API server needs to learn it.
        """
        if stored.next is None:
            self._published = None
            return None
        authority = stored.next.authority
        if not all(authority in bundle for each in trusting for bundle in each.bundles.values()):
            self._published = None
        elif self._published is None or self._published[0] != authority:
            self._published = (authority, self._now())
        return self._published[1] if self._published else None

    def _log_step(self, step: Plan) -> None:
        facts = served_facts(step.stored)
        if facts is not None:
            self._metrics.show(self._target.secret, facts=facts)


def _bundle_of(trusting: Sequence[Trusting]) -> bytes:
    """The CAs of all objects that name some, without duplicates."""
    return b"\n".join(dict.fromkeys(bundle for each in trusting for bundle in each.bundles.values()))
