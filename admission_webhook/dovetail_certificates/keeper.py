"""Keeps the Secrets with the certificates that one CA signs, as `signing` decides.

Level-triggered: each check reads all of them, decides from them alone, and writes with the resourceVersion that it
read. Two processes that run at the same time get conflicts, and then decide from the same Secrets.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dovetail.kube.client import Client
from dovetail_certificates.checks import LOOK_SECONDS, Check
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import life_of, utc_now
from dovetail_certificates.secret_store import OPAQUE, SecretStore, UnusableAuthorityError
from dovetail_certificates.signing import Authorities, Side, pair_facts, plan_pair, problem_of_authority


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The webhook that mounts `secret` and is reached by `names`."""

    namespace: str
    secret: str
    names: Sequence[str]


def authority_secret(secret: str) -> str:
    """The name of the Secret with the CA of the certificate in `secret`, and its key. Nothing mounts it."""
    return f"{secret}-ca"


class Keeper(Check):
    """Keeps the certificates of `sides`, by the names of their Secrets. Reads their CA and never writes it."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        authority: str,
        sides: Mapping[str, Side],
        metrics: Metrics,
        now: Callable[[], datetime] = utc_now,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        super().__init__(secret=", ".join(sides), look_seconds=look_seconds)
        self._authority = authority
        self._sides = sides
        self._secrets = SecretStore(client, namespace=namespace, metrics=metrics)
        self._metrics = metrics
        self._now = now

    @classmethod
    def of_webhook(
        cls,
        client: Client,
        *,
        target: Target,
        metrics: Metrics,
        now: Callable[[], datetime] = utc_now,
        look_seconds: float = LOOK_SECONDS,
    ) -> "Keeper":
        """The keeper of the webhook's certificate."""
        return cls(
            client,
            namespace=target.namespace,
            authority=authority_secret(target.secret),
            sides={target.secret: Side.server(target.names)},
            metrics=metrics,
            now=now,
            look_seconds=look_seconds,
        )

    async def reconcile(self) -> None:
        """Read the Secrets and write what differs. Raises `KubeError`, `SecretError` and `PairError`."""
        now = self._now()
        authorities = await self._authorities(now=now)
        for name, side in self._sides.items():
            await self._keep_pair(name, side=side, authorities=authorities, now=now)

    async def _authorities(self, *, now: datetime) -> Authorities:
        secret = await self._secrets.read(self._authority, type_=OPAQUE)
        current = Authorities.from_secret(secret.data or {} if secret else {}).current
        if current is None:
            raise UnusableAuthorityError(self._authority, problem="there is no CA")
        if problem := problem_of_authority(current, now=now):
            raise UnusableAuthorityError(self._authority, problem=problem)
        self._metrics.show(self._authority, facts=life_of(current))
        return Authorities(current=current)

    async def _keep_pair(self, name: str, *, side: Side, authorities: Authorities, now: datetime) -> None:
        secret = await self._secrets.read(name)
        data, reason = plan_pair(secret.data or {} if secret else {}, authorities=authorities, side=side, now=now)
        if reason:
            await self._secrets.write(name, data=data, over=secret, reason=reason)
        facts = pair_facts(data, authorities=authorities, now=now)
        if facts is not None:
            self._metrics.show(name, facts=facts)
