"""Advance reservations: GPUs that a quota keeps for its own jobs during a period; and its reserve. Pure.

They block devices as the reservation of the first job that does not fit does: another job gets the devices before the
period only where its time limit ends it in time. A job that already runs there without a time limit is not preempted.

A reserve has begun and does not end. Other jobs use it that leave in time; see `preemption.give_back` for those that
would not.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.api.gpujob import KeptOnNode
from dovetail.api.gpuquota import QuotaReserve
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import WHOLE_MILLI, GPURequest
from dovetail.queue.backfill.reservation import Lending, Reservation, beyond, kept_now, reserve
from dovetail.queue.model.candidates import Candidate, Leaving, Room, Sites, find_room

# Begins the key of a reserve: in the place of a job's UID, which has no such character.
_RESERVE: Final = "reserve/"


def reserve_key(quota: str) -> str:
    """The key of a quota's reserve where others have UIDs, also in `status.preemption.by`."""
    return f"{_RESERVE}{quota}"


def is_reserve(key: str) -> bool:
    """Whether a key is that of a reserve rather than of a job."""
    return key.startswith(_RESERVE)


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
    - `gpus_each`: the GPUs that have to be on one node
    - `lending`: for a reserve, who may use it meanwhile; None for an advance reservation
    """

    name: str
    quota: str
    at_seconds: float
    gpus: int
    until: str
    until_seconds: float = float("inf")
    nodes: Sequence[str] | None = None
    resources: Sequence[str] = ("",)
    gpus_each: int = 1
    lending: Lending | None = None

    @property
    def key(self) -> str:
        """The prefix of the keys of its claims."""
        return f"window/{self.quota}/{self.name}" if self.lending is None else reserve_key(self.quota)

    @property
    def words(self) -> Sentence:
        """What messages say of it."""
        if self.lending is not None:
            return says.KEPT_READY(count=self.gpus, quota=self.quota, seconds=self.lending.within_seconds)
        return says.KEPT_BY_QUOTA(count=self.gpus, quota=self.quota, until=self.until, reservation=self.name)

    def request(self, *, resource: str) -> Ask:
        """What each part of it asks of a node."""
        return Ask(gpu=GPURequest(count=self.gpus_each, share_milli=WHOLE_MILLI), policy="Pack", resource=resource)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The advance reservations of one scheduling cycle.

    - `wanted`: the advance reservations to place
    - `reservations`: where they are now, by quota
    - `quotas_of`: the quotas that bind each job, by the job's key; the advance reservations of these do not block the
      job
    - `kept`: what is kept from pods now, by quota
    - `ready`: what is ready of each reserve, by quota
    """

    reservations: Mapping[str, Sequence[Reservation]] = field(default_factory=dict)
    quotas_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    wanted: Sequence[Window] = ()
    kept: Mapping[str, list[KeptOnNode]] = field(default_factory=dict)
    ready: Mapping[str, QuotaReserve] = field(default_factory=dict)

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
            if each.at_seconds < end and start_seconds < each.until_seconds and not each.admits(job)
        ]


def placed(windows: Iterable[Window], *, ledger: Ledger, leaving: Sequence[Leaving]) -> dict[str, list[Reservation]]:
    """Place each advance reservation, by quota, on devices that are expected to be free by then.

    No device is kept twice for the same time. The ledger is unchanged when this returns.
    """
    found: dict[str, list[Reservation]] = {}
    before: list[Reservation] = []
    # Those bound to a pool come first: the others can use any node that is left.
    for window in sorted(windows, key=lambda each: (each.nodes is None, each.at_seconds, each.key)):
        future, lending = ledger.copy(), window.lending
        ready_seconds = window.at_seconds if lending is None else max(window.at_seconds, lending.ready_seconds)
        for each in leaving:
            if each.at_seconds <= ready_seconds and not each.assumed:
                future.release(each.key)
        keys = () if lending is None else sorted(lending.claims)
        lent = [claim for key in keys if (claim := future.release(key)) is not None]
        for other in before:
            # Periods that only touch do not overlap.
            if window.at_seconds < other.until_seconds and other.at_seconds < window.until_seconds:
                for claim in _not_lent(other, ledger=future):
                    future.commit(claim)
        if claims := _claims(window, ledger=future, lent={claim.node for claim in lent}):
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
    for claim in (claim for each in against for claim in _not_lent(each, ledger=ledger)):
        kept.commit(claim)
    beside = reserve(job, ledger=kept, sites=sites, leaving=leaving)
    if beside is not None or any(each.at_seconds > now_seconds or each.lending is not None for each in against):
        # A reserve has no end, after which the job could start.
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


def _not_lent(reservation: Reservation, *, ledger: Ledger) -> list[Claim]:
    """What is kept, without what jobs hold in the ledger that leave in time."""
    keys = () if reservation.lending is None else reservation.lending.claims
    held = [claim for key in keys if (claim := ledger.claim(key)) is not None]
    return beyond(reservation.claims, given=held) if held else list(reservation.claims)


def _claims(window: Window, *, ledger: Ledger, lent: Collection[str]) -> list[Claim]:
    """Claim as many of the GPUs as there are, part by part, and commit them to the ledger.

    First on the nodes that are `lent`: what is kept there takes nothing from jobs that would not leave in time.
    """
    claims: list[Claim] = []
    fit_cache, parts = FitCache(ledger), window.gpus // window.gpus_each
    there = [node for node in sorted(lent) if window.nodes is None or node in window.nodes]
    for resource in window.resources:
        for nodes in (*([there] if there else ()), window.nodes):
            while len(claims) < parts:
                key, ask = f"{window.key}/{len(claims)}", window.request(resource=resource)
                found = place(ledger, ask=ask, workers=1, key=key, nodes=nodes, fit_cache=fit_cache)
                if isinstance(found, Shortage):
                    break
                claims += found
                ledger.commit(found[0])
    return claims


def _reservation(window: Window, *, claims: Sequence[Claim]) -> Reservation:
    ask = window.request(resource=window.resources[0])
    job = Candidate(key=window.key, ask=ask, workers=window.gpus // window.gpus_each, name=window.key)
    return Reservation(
        job=job,
        at_seconds=max(0.0, window.at_seconds),
        claims=tuple(claims),
        words=window.words,
        until_seconds=window.until_seconds,
        lending=window.lending,
    )
