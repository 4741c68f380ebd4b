"""What is to be written: which certificate is served, which comes next, and which CAs are trusted. Pure.

The order in which nothing fails: a successor is stored but not served, its CA is published beside the present one, API
servers get time to see that, only then it is served, and the CA before it stays until every server has reloaded. Each
step follows from what is stored, so a process that ends between two of them costs nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from dovetail_certificates.pairs import Pair, PairError, authorities_in, facts_of, make, problem_of

# API servers see a changed webhook configuration by a watch.
SEEN_AFTER: Final = timedelta(seconds=30)
# kubelet brings a changed Secret within two minutes, and the webhook looks every 10 s.
OVERLAP: Final = timedelta(hours=1)
# More are trusted at no time, whatever is found in a bundle.
_MOST_AUTHORITIES: Final = 4
_SERVED_KEYS: Final = ("tls.crt", "tls.key", "ca.crt")
_NEXT_KEYS: Final = ("next.crt", "next.key", "next-ca.crt")
_SINCE_KEY: Final = "served-since"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the Secret holds: the pair that is served and since when, and the one that is to follow."""

    served: Pair | None = None
    since: datetime | None = None
    next: Pair | None = None

    @classmethod
    def of(cls, data: Mapping[str, bytes]) -> "Stored":
        """From the Secret's data."""
        return cls(
            served=_pair(data, *_SERVED_KEYS), since=_time(data.get(_SINCE_KEY, b"")), next=_pair(data, *_NEXT_KEYS)
        )

    def data(self) -> dict[str, bytes]:
        """As the Secret's data."""
        found: dict[str, bytes] = {}
        for pair, keys in ((self.served, _SERVED_KEYS), (self.next, _NEXT_KEYS)):
            if pair is not None:
                found |= dict(zip(keys, (pair.certificate, pair.key, pair.authority), strict=True))
        if self.since is not None:
            found[_SINCE_KEY] = self.since.isoformat(timespec="seconds").encode()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to write: `stored` into the Secret and then `bundle` into the configurations; and why, for the log."""

    stored: Stored
    bundle: bytes
    reason: str = ""


def plan(stored: Stored, *, bundle: bytes, names: Sequence[str], now: datetime, published_at: datetime | None) -> Plan:
    """The next step. `bundle` is what is published; `published_at` since when it has held the successor's CA.

    The caller writes the Secret first: a CA is published only when its certificate is stored, and both survive us.
    """
    after, reason = _step(stored, names=names, now=now, published_at=published_at)
    return Plan(stored=after, bundle=_bundle(after, published=bundle, now=now), reason=reason)


def due_at(stored: Stored) -> datetime | None:
    """When the served certificate's successor is due; None where there is none that can be read."""
    try:
        return None if stored.served is None else facts_of(stored.served).renew_at
    except PairError:
        return None


def _step(stored: Stored, *, names: Sequence[str], now: datetime, published_at: datetime | None) -> tuple[Stored, str]:
    if stored.served is None:
        return Stored(served=make(names, now=now), since=now), "there was none"
    unusable_next = "" if stored.next is None else problem_of(stored.next, names=names, now=now)
    if problem := problem_of(stored.served, names=names, now=now):
        # It serves no client: waiting would keep nothing in service.
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
