"""Signing: the CA of a Secret, and which certificate each Secret below it has. Pure.

A CA remains for years, with its key in a Secret of its own that nothing mounts. What it signs is replaced under it, so
that clients which trust the CA need to learn nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography.x509.oid import ObjectIdentifier

from dovetail_certificates.pairs import (
    CLIENT,
    LIFETIME,
    SERVER,
    Authority,
    Facts,
    Pair,
    PairError,
    authorities_in,
    facts_of,
    life_of,
    problem_of,
    sign,
)

CA_LIFETIME: Final = timedelta(days=3650)
# People copy it to the machines of the control plane, so it is replaced once in eight months.
CLIENT_LIFETIME: Final = timedelta(days=365)
_CURRENT: Final = ("ca.crt", "ca.key")
_NEXT: Final = ("next-ca.crt", "next-ca.key")
_PREVIOUS: Final = "previous-ca.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of the connection: the names in its certificate, what it is for, and how long it lives."""

    names: Sequence[str]
    use: ObjectIdentifier
    lifetime: timedelta

    @classmethod
    def server(cls, names: Sequence[str]) -> "Side":
        """A server: the webhook, or an attached extender."""
        return cls(names=names, use=SERVER, lifetime=LIFETIME)

    @classmethod
    def client(cls, names: Sequence[str]) -> "Side":
        """kube-scheduler."""
        return cls(names=names, use=CLIENT, lifetime=CLIENT_LIFETIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorities:
    """The content of the CA's Secret: the CA that signs, its successor, and the certificates of CAs before it."""

    current: Authority | None = None
    next: Authority | None = None
    previous: bytes = b""

    @classmethod
    def from_secret(cls, data: Mapping[str, bytes]) -> "Authorities":
        """Read the Secret's data."""
        return cls(
            current=_authority(data, *_CURRENT), next=_authority(data, *_NEXT), previous=data.get(_PREVIOUS, b"")
        )

    def data(self) -> dict[str, bytes]:
        """The content as the Secret's data."""
        found: dict[str, bytes] = {}
        for authority, keys in ((self.current, _CURRENT), (self.next, _NEXT)):
            if authority is not None:
                found |= dict(zip(keys, (authority.certificate, authority.key), strict=True))
        return found | ({_PREVIOUS: self.previous} if self.previous else {})

    def trusted(self) -> bytes:
        """What both sides trust, as a PEM bundle."""
        return b"".join(each.certificate for each in (self.current, self.next) if each is not None) + self.previous

    def signers(self, *, now: datetime) -> list[bytes]:
        """The CAs that may have signed a certificate in use: one that an administrator has put here counts too."""
        own = [each.certificate for each in (self.current, self.next) if each is not None]
        return [*own, *authorities_in(self.previous, now=now)]


def plan_pair(
    found: Mapping[str, bytes], *, authorities: Authorities, side: Side, now: datetime
) -> tuple[dict[str, bytes], str]:
    """The next content of one side's Secret, and why it differs; empty if it does not. Raises `PairError`.

    A CA of `authorities` must have signed the certificate: another CA's is replaced.
    """
    if authorities.current is None:
        raise PairError("there is no CA")
    trusted = authorities.trusted()
    certificate, key = found.get("tls.crt", b""), found.get("tls.key", b"")
    kept = {"tls.crt": certificate, "tls.key": key, "ca.crt": trusted}
    signed_by = [Pair(certificate=certificate, key=key, authority=each) for each in authorities.signers(now=now)]
    problems = [problem_of(each, names=side.names, now=now) for each in signed_by]
    if "" not in problems:
        reason = problems[0] if certificate else "there was none"
    elif now >= facts_of(signed_by[problems.index("")]).renew_at:
        reason = "two thirds of its life are over"
    else:
        return kept, "" if found.get("ca.crt") == trusted else "the trusted CAs have changed"
    made = sign(side.names, authority=authorities.current, now=now, lifetime=side.lifetime, use=side.use)
    return {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": trusted}, reason


def pair_facts(found: Mapping[str, bytes], *, authorities: Authorities, now: datetime) -> Facts | None:
    """Names and times of a side's certificate; None without a readable one."""
    for authority in authorities.signers(now=now):
        try:
            return facts_of(Pair(certificate=found["tls.crt"], key=found["tls.key"], authority=authority))
        except (PairError, KeyError):
            continue
    return None


def problem_of_authority(authority: Authority, *, now: datetime) -> str:
    """Why a CA cannot sign now; empty if it can."""
    try:
        life = life_of(authority)
    except PairError as error:
        return f"it cannot be read: {error}"
    if now < life.valid_from:
        return f"it is not valid before {life.valid_from:%Y-%m-%d %H:%M}Z: a clock has been wrong"
    if now >= life.valid_until:
        return f"it ended at {life.valid_until:%Y-%m-%d %H:%M}Z"
    return ""


def _authority(data: Mapping[str, bytes], *keys: str) -> Authority | None:
    certificate, key = (data.get(name, b"") for name in keys)
    return Authority(certificate=certificate, key=key) if certificate or key else None
