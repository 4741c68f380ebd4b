"""Keeps the three Secrets of an attached extender as `mutual` decides: its CA, its certificate, and its client's.

The CA's Secret is written before what it has signed. Each check reads all three and decides from them alone.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from dovetail.kube.client import Client
from dovetail_certificates.checks import LOOK_SECONDS, Check
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.mutual import Authorities, Side, pair_facts, plan_authorities, plan_pair
from dovetail_certificates.pairs import utc_now
from dovetail_certificates.secret_store import OPAQUE, SecretStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """The extender that mounts `secret` and is verified by `names`, and the names of its client's certificate."""

    namespace: str
    secret: str
    names: Sequence[str]
    client_names: Sequence[str]

    @property
    def client_secret(self) -> str:
        """The Secret with what kube-scheduler needs."""
        return f"{self.secret}-client"

    @property
    def authority_secret(self) -> str:
        """The Secret with the CA and its key, which nothing mounts."""
        return f"{self.secret}-ca"


class ExtenderKeeper(Check):
    """Keeps the certificates of both sides."""

    def __init__(
        self,
        client: Client,
        *,
        attached: Attached,
        metrics: Metrics,
        now: Callable[[], datetime] = utc_now,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        super().__init__(secret=attached.secret, look_seconds=look_seconds)
        self._attached = attached
        self._secrets = SecretStore(client, namespace=attached.namespace, metrics=metrics)
        self._metrics = metrics
        self._now = now

    async def reconcile(self) -> None:
        """Read the Secrets and write what differs. Raises `KubeError` and `ForeignSecretError`."""
        now, attached = self._now(), self._attached
        authorities = await self._keep_authorities(now=now)
        sides = {
            attached.secret: Side.server(attached.names),
            attached.client_secret: Side.client(attached.client_names),
        }
        for name, side in sides.items():
            await self._keep_pair(name, side=side, authorities=authorities, now=now)

    async def _keep_authorities(self, *, now: datetime) -> Authorities:
        name = self._attached.authority_secret
        secret = await self._secrets.read(name, type_=OPAQUE)
        step, reason = plan_authorities(Authorities.from_secret(secret.data or {} if secret else {}), now=now)
        if reason:
            await self._secrets.write(name, data=step.data(), over=secret, reason=reason, type_=OPAQUE)
        return step

    async def _keep_pair(self, name: str, *, side: Side, authorities: Authorities, now: datetime) -> None:
        secret = await self._secrets.read(name)
        data, reason = plan_pair(secret.data or {} if secret else {}, authorities=authorities, side=side, now=now)
        if reason:
            await self._secrets.write(name, data=data, over=secret, reason=reason)
        facts = pair_facts(data, authorities=authorities, now=now)
        if facts is not None:
            self._metrics.show(name, facts=facts)
