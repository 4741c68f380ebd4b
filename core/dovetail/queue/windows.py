"""Reservations for a time: GPUs that a quota keeps for those whom it binds, from a moment on. Pure.

They are held as the reservation of the first job that does not fit is: another job may have the devices until then only
where its time limit ends it before. What runs there already, without a limit, is not sent away.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.engine.claims import Ask, Claim
from dovetail.engine.ledger import Ledger
from dovetail.engine.plan import Shortage, place
from dovetail.engine.sentences import gpus
from dovetail.engine.shapes import Shapes
from dovetail.queue.candidates import Candidate, Leaving
from dovetail.queue.reservation import Reservation, kept_now
from dovetail.requests import WHOLE_MILLI, GPURequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`gpus` whole GPUs are kept for the jobs of a quota, from `at_seconds` from now on; `until` is for people.

    `nodes` are those of its pool, None for any. `resources` are the ways in which GPUs are asked, in order.
    """

    name: str
    quota: str
    at_seconds: float
    gpus: int
    until: str
    nodes: Sequence[str] | None = None
    resources: Sequence[str] = ("",)

    @property
    def key(self) -> str:
        """What its claims are known by."""
        return f"window/{self.quota}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """What is kept for a time, and the quotas that each job is bound by, by the job's key: those are its own."""

    reservations: Mapping[str, Sequence[Reservation]] = field(default_factory=dict)
    quotas_of: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def against(self, job: Candidate) -> list[Reservation]:
        """What is kept for others than the job."""
        own = self.quotas_of.get(job.key, frozenset())
        return [each for quota, kept in self.reservations.items() if quota not in own for each in kept]


def placed(windows: Iterable[Window], *, ledger: Ledger, leaving: Sequence[Leaving]) -> dict[str, list[Reservation]]:
    """Where each window's GPUs are going to be, by quota: on devices that are free by then as far as can be known.

    No device is kept twice. The ledger is as before when this returns.
    """
    found: dict[str, list[Reservation]] = {}
    taken: list[Claim] = []
    for window in sorted(windows, key=lambda each: (each.at_seconds, each.key)):
        future = ledger.copy()
        for each in leaving:
            if each.at_seconds <= window.at_seconds and not each.assumed:
                future.release(each.key)
        for claim in taken:
            future.commit(claim)
        claims = _claims(window, ledger=future)
        taken += claims
        if claims:
            found.setdefault(window.quota, []).append(_reservation(window, claims))
    return found


def kept_of(reservations: Iterable[Reservation], *, ledger: Ledger, leaving: Sequence[Leaving]) -> list[Claim]:
    """What of these reservations is free now and has to stay so."""
    return [claim for each in reservations for claim in kept_now(each, ledger=ledger, leaving=leaving)]


def _claims(window: Window, *, ledger: Ledger) -> list[Claim]:
    """As many GPUs as there are, one by one; the ledger has them then."""
    claims: list[Claim] = []
    shapes = Shapes(ledger)
    for resource in window.resources:
        while len(claims) < window.gpus:
            key = f"{window.key}/{len(claims)}"
            found = place(ledger, _one(resource), workers=1, key=key, nodes=window.nodes, shapes=shapes)
            if isinstance(found, Shortage):
                break
            claims += found
            ledger.commit(found[0])
    return claims


def _one(resource: str) -> Ask:
    return Ask(gpu=GPURequest(count=1, share_milli=WHOLE_MILLI), policy="Pack", resource=resource)


def _reservation(window: Window, claims: Sequence[Claim]) -> Reservation:
    job = Candidate(key=window.key, ask=_one(window.resources[0]), workers=window.gpus, name=window.key)
    words = f"{gpus(window.gpus)} are kept by GPUQuota {window.quota} until {window.until} (reservation {window.name})"
    return Reservation(job=job, at_seconds=max(0.0, window.at_seconds), claims=tuple(claims), words=words)
