"""Keeps the three Secrets of an attached extender: its CA, its certificate, and its client's.

No object of the API server names this CA, so `dovetail-certificates` makes it itself, as `mutual` decides. The CA's
Secret is written before what it has signed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from dovetail.kube.client import Client
from dovetail_certificates.checks import LOOK_SECONDS
from dovetail_certificates.keeper import Keeper, authority_secret
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.mutual import plan_authorities
from dovetail_certificates.pairs import utc_now
from dovetail_certificates.secret_store import OPAQUE
from dovetail_certificates.signing import Authorities, Side


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


class ExtenderKeeper(Keeper):
    """Keeps the certificates of both sides, and their CA."""

    def __init__(
        self,
        client: Client,
        *,
        attached: Attached,
        metrics: Metrics,
        now: Callable[[], datetime] = utc_now,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        super().__init__(
            client,
            namespace=attached.namespace,
            authority=authority_secret(attached.secret),
            sides={
                attached.secret: Side.server(attached.names),
                attached.client_secret: Side.client(attached.client_names),
            },
            metrics=metrics,
            now=now,
            look_seconds=look_seconds,
        )

    async def _authorities(self, *, now: datetime) -> Authorities:
        secret = await self._secrets.read(self._authority, type_=OPAQUE)
        step, reason = plan_authorities(Authorities.from_secret(secret.data or {} if secret else {}), now=now)
        if reason:
            await self._secrets.write(self._authority, data=step.data(), over=secret, reason=reason, type_=OPAQUE)
        return step
