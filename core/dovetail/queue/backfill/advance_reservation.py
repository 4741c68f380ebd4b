"""Advance reservations: GPUs that a quota keeps for its own jobs during a period. Pure.

They block devices as the reservation of the first job that does not fit does: another job gets the devices before the
period only where its time limit ends it in time. A job that already runs there without a time limit is not preempted.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.api.reasons import queue as says
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import WHOLE_MILLI, GPURequest
from dovetail.queue.backfill.reservation import Reservation, beyond, kept_now, reserve
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, find_room


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`gpus` whole GPUs for the jobs of a quota, from `at_seconds` to `until_seconds` from now.

    - `name`: name of the advance reservation in the quota
    - `quota`: name of the quota
    - `at_seconds`: seconds from now until the period begins
    - `gpus`: number of whole GPUs
    - `until`: end of the period, as users read it in messages
    - `until_seconds`: seconds from now until the period ends
    - `nodes`: names of the pool's nodes; None for any node
    - `resources`: the resource names under which GPUs are requested, in order of preference
    """

    name: str
    quota: str
    at_seconds: float
    gpus: int
    until: str
    until_seconds: float = float("inf")
    nodes: Sequence[str] | None = None
    resources: Sequence[str] = ("",)

    @property
    def key(self) -> str:
        """The prefix of the keys of its claims."""
        return f"window/{self.quota}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The advance reservations of one scheduling cycle.

    - `wanted`: the advance reservations to place
    - `reservations`: where they are now, by quota
    - `quotas_of`: the quotas that bind each job, by the job's key; the advance reservations of these do not block the
      job
    """

    reservations: Mapping[str, Sequence[Reservation]] = field(default_factory=dict)
    quotas_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    wanted: Sequence[Window] = ()

    def against(self, job: Candidate, *, start_seconds: float = 0.0) -> list[Reservation]:
        """The advance reservations that block the job if it starts then.

        Those of its own quotas do not, nor those whose period does not overlap the time until its limit.
        """
        return self._in_the_way(job, reservations=self.reservations, start_seconds=start_seconds)

    def after(
        self, job: Candidate, *, ledger: Ledger, leaving: Sequence[Leaving], start_seconds: float
    ) -> list[Reservation]:
        """The same, with the advance reservations placed again on a changed ledger.

        They may move to devices that became free.
        """
        return self._in_the_way(
            job, reservations=placed(self.wanted, ledger=ledger, leaving=leaving), start_seconds=start_seconds
        )

    def ends(self) -> list[Leaving]:
        """The ends of the periods, so that simulated scheduling cycles happen at these times too."""
        kept = [each for found in self.reservations.values() for each in found if each.until_seconds != float("inf")]
        return [Leaving(at_seconds=each.until_seconds, key=each.job.key, job=each.job.key) for each in kept]

    def _in_the_way(
        self, job: Candidate, *, reservations: Mapping[str, Sequence[Reservation]], start_seconds: float
    ) -> list[Reservation]:
        own = self.quotas_of.get(job.key, frozenset())
        end = start_seconds + job.run_seconds if job.limited else float("inf")
        return [
            each
            for quota, kept in reservations.items()
            if quota not in own
            for each in kept
            if each.at_seconds < end and start_seconds < each.until_seconds
        ]


def placed(windows: Iterable[Window], *, ledger: Ledger, leaving: Sequence[Leaving]) -> dict[str, list[Reservation]]:
    """Place each advance reservation, by quota, on devices that are expected to be free by then.

    No device is kept twice for the same time. The ledger is unchanged when this returns.
    """
    found: dict[str, list[Reservation]] = {}
    before: list[Reservation] = []
    # Those bound to a pool come first: the others can use any node that is left.
    for window in sorted(windows, key=lambda each: (each.nodes is None, each.at_seconds, each.key)):
        future = ledger.copy()
        for each in leaving:
            if each.at_seconds <= window.at_seconds and not each.assumed:
                future.release(each.key)
        for other in before:
            # Periods that only touch do not overlap.
            if window.at_seconds < other.until_seconds and other.at_seconds < window.until_seconds:
                for claim in other.claims:
                    future.commit(claim)
        if claims := _claims(window, ledger=future):
            before.append(_reservation(window, claims=claims))
            found.setdefault(window.quota, []).append(before[-1])
    return found


def reserve_around(
    job: Candidate,
    *,
    against: Sequence[Reservation],
    ledger: Ledger,
    sites: Sites,
    leaving: Sequence[Leaving],
    now_seconds: float,
) -> Reservation | None:
    """The earliest start of a job that respects what is kept `against` it.

    If there is none and all these periods have begun, the earliest start after they end. None where no known end makes
    room. A period that is yet to begin does not keep devices idle for a start after it.
    """
    if not against:
        return reserve(job, ledger=ledger, sites=sites, leaving=leaving)
    kept = ledger.copy()
    for claim in (claim for each in against for claim in each.claims):
        kept.commit(claim)
    beside = reserve(job, ledger=kept, sites=sites, leaving=leaving)
    if beside is not None or any(each.at_seconds > now_seconds for each in against):
        return beside
    return _after(job, against=against, ledger=ledger, sites=sites, leaving=leaving)


def _after(
    job: Candidate, *, against: Sequence[Reservation], ledger: Ledger, sites: Sites, leaving: Sequence[Leaving]
) -> Reservation | None:
    """The earliest start after all the periods.

    Until then the kept devices serve only those that they are kept for.
    """
    at = max(each.until_seconds for each in against)
    now = find_room(job, ledger=ledger, fit_cache=FitCache(ledger), sites=sites)
    if isinstance(now, Room):
        claims = now.claims
    else:
        found = reserve(job, ledger=ledger, sites=sites, leaving=leaving)
        if found is None:
            return None
        at, claims = max(at, found.at_seconds), found.claims
    left = beyond(claims, given=[claim for each in against for claim in each.claims])
    return Reservation(job=job, at_seconds=at, claims=tuple(left))


def kept_of(reservations: Iterable[Reservation], *, ledger: Ledger, leaving: Sequence[Leaving]) -> list[Claim]:
    """The parts of these reservations that are free now and must stay free, each device once."""
    found: list[Claim] = []
    devices: set[str] = set()
    for each in reservations:
        for claim in kept_now(each, ledger=ledger, leaving=leaving):
            if devices.isdisjoint(of_it := {device.uuid for device in claim.devices}):
                found.append(claim)
                devices |= of_it
    return found


def _claims(window: Window, *, ledger: Ledger) -> list[Claim]:
    """Claim as many of the GPUs as there are, one by one, and commit them to the ledger."""
    claims: list[Claim] = []
    fit_cache = FitCache(ledger)
    for resource in window.resources:
        while len(claims) < window.gpus:
            key = f"{window.key}/{len(claims)}"
            found = place(ledger, ask=_one(resource), workers=1, key=key, nodes=window.nodes, fit_cache=fit_cache)
            if isinstance(found, Shortage):
                break
            claims += found
            ledger.commit(found[0])
    return claims


def _one(resource: str) -> Ask:
    return Ask(gpu=GPURequest(count=1, share_milli=WHOLE_MILLI), policy="Pack", resource=resource)


def _reservation(window: Window, *, claims: Sequence[Claim]) -> Reservation:
    job = Candidate(key=window.key, ask=_one(window.resources[0]), workers=window.gpus, name=window.key)
    words = says.KEPT_BY_QUOTA(count=window.gpus, quota=window.quota, until=window.until, reservation=window.name)
    return Reservation(
        job=job,
        at_seconds=max(0.0, window.at_seconds),
        claims=tuple(claims),
        words=words,
        until_seconds=window.until_seconds,
    )
