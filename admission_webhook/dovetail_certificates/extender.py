"""Keeps the three Secrets of an attached extender: its CA, its certificate, and its client's.

No object of the API server names this CA, so `dovetail-certificates` makes it itself. The CA's Secret is written
before what it has signed.

kube-scheduler reads its certificate at each connection, but its CAs only when it starts. The CA's successor is
therefore trusted by both sides for a year before it signs: a kube-scheduler that restarts within that year keeps its
connection.

A module of its own: the keeper of an attached extender, which few installations have; `main` starts the keepers that
its options name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dovetail.kube.client import Client
from dovetail_certificates.checks import LOOK_SECONDS
from dovetail_certificates.keeper import Keeper, authority_secret
from dovetail_certificates.metrics import Metrics
from dovetail_certificates.pairs import authorities_in, life_of, make_authority, utc_now
from dovetail_certificates.secret_store import OPAQUE
from dovetail_certificates.signing import CA_LIFETIME, Authorities, Side, problem_of_authority

# Between the publication of a CA and its first signature: kube-scheduler learns it by a restart.
CA_OVERLAP: Final = timedelta(days=365)


def plan_authorities(stored: Authorities, *, now: datetime) -> tuple[Authorities, str]:
    """The next content of the CA's Secret, and why it differs; empty if it does not."""
    if stored.current is None:
        return Authorities(current=make_authority(now=now, lifetime=CA_LIFETIME)), "there was no CA"
    if problem := problem_of_authority(stored.current, now=now):
        # What its key has signed stays trusted: one of the files may be readable.
        previous = b"".join(authorities_in(stored.current.certificate, now=now))
        made = Authorities(current=make_authority(now=now, lifetime=CA_LIFETIME), previous=previous)
        return made, f"of the CA: {problem}"
    if stored.next is not None:
        if problem := problem_of_authority(stored.next, now=now):
            return replace(stored, next=None), f"of the CA's successor: {problem}"
        if now >= life_of(stored.next).made_at + CA_OVERLAP:
            return Authorities(current=stored.next, previous=stored.current.certificate), "the CA's successor is known"
    elif now >= life_of(stored.current).renew_at:
        made_next = make_authority(now=now, lifetime=CA_LIFETIME)
        return replace(stored, next=made_next), "two thirds of the CA's life are over"
    kept = b"".join(authorities_in(stored.previous, now=now))
    if kept != stored.previous:
        return replace(stored, previous=kept), "a CA before this one has ended"
    return stored, ""


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
