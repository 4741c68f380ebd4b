"""The CA of an attached extender and of its client, kube-scheduler: when it gets a successor. Pure.

kube-scheduler reads its certificate at each connection, but its CAs only when it starts. The CA's successor is
therefore trusted by both sides for a year before it signs: a kube-scheduler that restarts within that year keeps its
connection.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from dovetail_certificates.pairs import authorities_in, life_of, make_authority
from dovetail_certificates.signing import CA_LIFETIME, Authorities, problem_of_authority

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
