"""Publication: the CA of the webhook's certificate, and which CAs API servers trust for the webhook. Pure.

API servers read the trusted CAs in the webhook configuration and in CRDs. The right to write these is a right to the
whole cluster, so only an account that exists while Helm runs has it: `helm upgrade` replaces a CA. The order keeps
every request working:

1. Publish the new CA together with those that are published, and wait until API servers have seen it.
2. Store it with its key. `dovetail-certificates` then signs with it.
3. At a later upgrade, an hour or more after that: publish it alone.

A module of its own: pure, where `hook` reads and writes.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from dovetail_certificates.pairs import Authority, Pair, PairError, authorities_in, facts_of, life_of, make_authority
from dovetail_certificates.signing import CA_LIFETIME, Authorities, problem_of_authority

# API servers watch webhook configurations and CRDs, so they see a change within seconds.
SEEN_AFTER: Final = timedelta(seconds=30)
# kubelet updates a mounted Secret within two minutes, and the webhook checks its files every 10 s.
OVERLAP: Final = timedelta(hours=1)
# The most CAs that are ever published, whatever the published bundle contains.
_MOST_AUTHORITIES: Final = 16


def plan_authority(stored: Mapping[str, bytes], *, now: datetime) -> tuple[Authority, str]:
    """The CA that is to sign, and why it is not the stored one; empty if it is."""
    current = Authorities.from_secret(stored).current
    if current is None:
        reason = "there was no CA"
    elif problem := problem_of_authority(current, now=now):
        reason = f"of the CA: {problem}"
    elif now >= life_of(current).renew_at:
        reason = "two thirds of the CA's life are over"
    else:
        return current, ""
    return make_authority(now=now, lifetime=CA_LIFETIME), reason


def plan_bundle(authority: Authority, *, published: bytes, served: Mapping[str, bytes], now: datetime) -> bytes:
    """The PEM bundle to publish: the CA first, then those that may have signed what a webhook still serves.

    `published` is what is published now, and `served` the data of the Secret that the webhook mounts.
    """
    wanted = [authority.certificate]
    if not _is_settled(served, authority=authority, now=now):
        wanted += [each for each in authorities_in(published, now=now) if each not in wanted]
    return b"".join(wanted[:_MOST_AUTHORITIES])


def _is_settled(served: Mapping[str, bytes], *, authority: Authority, now: datetime) -> bool:
    """Whether every webhook serves a certificate of this CA."""
    certificate, key = served.get("tls.crt", b""), served.get("tls.key", b"")
    try:
        signed = facts_of(Pair(certificate=certificate, key=key, authority=authority.certificate))
    except PairError:
        return False
    return now >= signed.made_at + OVERLAP
