"""Rotation: which certificate is served, which is next, and which CAs are trusted. Pure.

The steps, in the order that keeps every request working:

1. Store a successor without serving it.
2. Publish its CA together with the current one, and wait until API servers have seen both.
3. Serve the successor, and keep the previous CA until every server has reloaded.

Each step follows from what is stored, so a process that ends between two steps loses nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dovetail_certificates.pairs import Facts, Pair, PairError, authorities_in, facts_of, make, problem_of

# API servers watch webhook configurations, so they see a change within seconds.
SEEN_AFTER: Final = timedelta(seconds=30)
# kubelet updates a mounted Secret within two minutes, and the webhook checks its files every 10 s.
OVERLAP: Final = timedelta(hours=1)
# The most CAs that are ever published, whatever the published bundle contains.
_MOST_AUTHORITIES: Final = 4
_SERVED_KEYS: Final = ("tls.crt", "tls.key", "ca.crt")
_NEXT_KEYS: Final = ("next.crt", "next.key", "next-ca.crt")
_SINCE_KEY: Final = "served-since"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The Secret's content: the served pair, the time of its first use, and its successor."""

    served: Pair | None = None
    since: datetime | None = None
    next: Pair | None = None

    @classmethod
    def from_secret(cls, data: Mapping[str, bytes]) -> "Stored":
        """Read the Secret's data."""
        return cls(
            served=_pair(data, *_SERVED_KEYS), since=_time(data.get(_SINCE_KEY, b"")), next=_pair(data, *_NEXT_KEYS)
        )

    def data(self) -> dict[str, bytes]:
        """The content as the Secret's data."""
        found: dict[str, bytes] = {}
        for pair, keys in ((self.served, _SERVED_KEYS), (self.next, _NEXT_KEYS)):
            if pair is not None:
                found |= dict(zip(keys, (pair.certificate, pair.key, pair.authority), strict=True))
        if self.since is not None:
            found[_SINCE_KEY] = self.since.isoformat(timespec="seconds").encode()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next write: `stored` to the Secret, then `bundle` to the configuration.

    `reason` is for the log; empty if `stored` does not change.
    """

    stored: Stored
    bundle: bytes
    reason: str = ""


def plan(stored: Stored, *, bundle: bytes, names: Sequence[str], now: datetime, published_at: datetime | None) -> Plan:
    """The next step of the rotation.

    `bundle` is the PEM bundle that is published, and `published_at` the time from which it has held the successor's CA.
    The caller writes the Secret first, so that a CA is published only after its certificate is stored.
    """
    after, reason = _step(stored, names=names, now=now, published_at=published_at)
    return Plan(stored=after, bundle=_bundle(after, published=bundle, now=now), reason=reason)


def served_facts(stored: Stored) -> Facts | None:
    """Names and times of the served certificate; None without a readable one."""
    try:
        return None if stored.served is None else facts_of(stored.served)
    except PairError:
        return None


def _step(stored: Stored, *, names: Sequence[str], now: datetime, published_at: datetime | None) -> tuple[Stored, str]:
    if stored.served is None:
        return Stored(served=make(names, now=now), since=now), "there was none"
    unusable_next = "" if stored.next is None else problem_of(stored.next, names=names, now=now)
    if problem := problem_of(stored.served, names=names, now=now):
        # The served pair works for no client, so there is nothing to keep in service by waiting.
        successor = None if unusable_next else stored.next
        return Stored(served=successor or make(names, now=now), since=now), problem
    if unusable_next:
        return replace(stored, next=None), f"of the successor: {unusable_next}"
    if stored.next is not None:
        if published_at is None or now - published_at < SEEN_AFTER:
            return stored, ""
        return Stored(served=stored.next, since=now), "its successor is trusted"
    if now >= facts_of(stored.served).renew_at:
        return replace(stored, next=make(names, now=now)), "two thirds of its life are over"
    if stored.since is None or stored.since > now:
        return replace(stored, since=now), "the time since when it is served was missing or wrong"
    return stored, ""


def _bundle(stored: Stored, *, published: bytes, now: datetime) -> bytes:
    wanted = [each.authority for each in (stored.served, stored.next) if each is not None]
    # Servers that have not reloaded yet still serve the pair before this one.
    if stored.since is None or now < stored.since + OVERLAP:
        wanted += [each for each in authorities_in(published, now=now) if each not in wanted]
    return b"".join(wanted[:_MOST_AUTHORITIES])


def _pair(data: Mapping[str, bytes], *keys: str) -> Pair | None:
    if not any(data.get(key) for key in keys):
        return None
    certificate, key, authority = (data.get(name, b"") for name in keys)
    return Pair(certificate=certificate, key=key, authority=authority)


def _time(text: bytes) -> datetime | None:
    try:
        found = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return found if found.tzinfo is not None else None
