"""Leader election: a Lease that one process holds at a time, with a fencing token.

No process trusts another machine's clock. A holder is the leader for `duration_seconds` from the moment at which it
sent its last renewal. A candidate counts the same time from the moment at which it saw that renewal, which is later.
Every write carries the resourceVersion that it was decided on. Each acquisition increments the term
(`leaseTransitions`). The term is the fencing token: it distinguishes writes of an earlier holder from those of the
present one.

A candidate that is needed sets `wanted`, which records its identity on the Lease; the holder sees it as `wanted_by` and
may release the Lease.

  LeaseLostError      another candidate holds the Lease, or the Lease is gone
  NotInOfficeError    a write was about to be sent without holding the Lease
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple, NoReturn

import msgspec

from dovetail.api.builtin import Lease, LeaseSpec
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import LEASES
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from dovetail.kube.retry import retry_on_conflict
from dovetail.logs import get_logger
from dovetail.names import GROUP

log = get_logger(__name__)

# How the Lease became free. "released": the holder declared that none of its requests is in flight. "inherited": our
# own identity held it before this process started. "expired": it was not renewed in time. After the last two, requests
# of the earlier holder may still be in flight.
Vacancy = Literal["released", "inherited", "expired"]

# As many digits as the policies of the Helm chart compare. The term after the last is 1, also when a manual edit has
# set the number beyond it.
_LAST_TERM: Final = 999_999_999
# The upper limit of a holder's time without a renewal, whatever duration the configuration allows or a manual edit has
# written into the Lease. An extender with the longest bind deadline holds it for 71 s.
_LONGEST_SECONDS: Final = 120
# Annotation with the identity of the candidate that should replace the holder.
WANTED_BY: Final = f"{GROUP}/wanted-by"
# Where the system has one, a clock that also advances during suspend: the Lease expires during suspend too.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LeaseLostError(Exception):
    """Another candidate holds the Lease, or the Lease is gone."""

    def __init__(self, name: str, *, holder: str) -> None:
        self.holder = holder
        super().__init__(f"the lease {name} is held by {holder}" if holder else f"the lease {name} was taken away")


class NotLeaderError(KubeError):
    """A write was about to be sent without holding the Lease."""

    def __init__(self, name: str) -> None:
        super().__init__(f"nothing is written while the lease {name} is not held")


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Seconds that a renewal lasts, between renewals, and between a candidate's reads."""

    duration_seconds: int = 15
    renew_seconds: float = 4.0
    look_seconds: float = 1.0


class _Sighting(NamedTuple):
    """What changes with every renewal, as the holder wrote it."""

    holder: str
    term: int
    renewed: str


def boot_clock() -> float:
    """Seconds of a clock that neither jumps nor stops during suspend."""
    return time.clock_gettime(_CLOCK)


class Leadership:
    """One candidate for a Lease: `acquire()`, then `keep()` while it leads, then `release()`.

    With `heir` the candidate takes over a Lease that its own identity holds: it starts after the earlier process with
    that identity has ended. A candidate that already led in this same process is not an heir, and lets other candidates
    acquire first.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        name: str,
        identity: str,
        heir: bool = True,
        times: Times | None = None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.name = name
        self.identity = identity
        self.holder = ""
        self.vacancy: Vacancy | None = None
        self.wanted = False
        self.wanted_by = ""
        self._heir = heir
        self._client = client
        self._namespace = namespace
        self._times = times or Times()
        self._clock = clock
        self._lease: Lease | None = None
        self._valid_until = float("-inf")
        self._seen: tuple[_Sighting, float] | None = None
        self._stamp = ""

    @property
    def term(self) -> int | None:
        """The number of our term: the fencing token. None before acquisition and after loss."""
        return None if self._lease is None else self._lease.spec.lease_transitions

    @property
    def is_standby(self) -> bool:
        """Whether another process holds the Lease."""
        return self.term is None and self.holder not in {"", self.identity}

    @property
    def remaining_seconds(self) -> float:
        """For how many seconds no other candidate can hold the Lease; 0 when we do not hold it."""
        return 0.0 if self._lease is None else max(0.0, self._valid_until - self._clock())

    def guard(self) -> None:
        """Raise `NotLeaderError` unless we hold the Lease. A client calls this before each write."""
        if not self.remaining_seconds:
            raise NotLeaderError(self.name)

    async def acquire(self) -> None:
        """Wait until we hold the Lease. `vacancy` then says how it became free."""
        if not self._heir:
            # We gave the Lease up for another candidate, so a candidate that is waiting must read it before we do.
            await asyncio.sleep(2 * self._times.look_seconds)
        while True:
            try:
                if await self._try():
                    log.info("lease acquired", lease=self.name, term=self.term, vacancy=self.vacancy)
                    return
                self._heir = False
            except Conflict:
                # Another process writes the Lease, perhaps under our own identity, so it is alive.
                self._heir = False
            except KubeError as error:
                log.warning("the lease cannot be taken", lease=self.name, error=str(error))
            await asyncio.sleep(self._times.look_seconds)

    async def keep(self) -> None:
        """Renew until cancelled. Raises `LeaseLostError`.

        While the API server is unreachable, `remaining_seconds` runs down to 0. If no candidate has taken the Lease by
        the time the API server returns, the same term continues.
        """
        pause = self._times.renew_seconds
        while True:
            await asyncio.sleep(pause)
            pause = await self._renew()

    async def release(self) -> None:
        """Release the Lease at once.

        The caller guarantees that none of its requests is still in flight.
        """
        held, self._lease = self._lease, None
        if held is None:
            return

        async def vacate(attempt: int) -> None:
            # A conflict is our own renewal, whose answer did not arrive, or the annotation of a waiting candidate.
            found = await self._read() if attempt else held
            if (found.spec.holder_identity, found.spec.lease_transitions) == (
                self.identity,
                held.spec.lease_transitions,
            ):
                await self._vacate(found)

        try:
            await retry_on_conflict(vacate, attempts=2)
        except KubeError as error:
            log.warning("the lease was not released and ends by itself", lease=self.name, error=str(error))

    async def _vacate(self, held: Lease) -> None:
        spec = msgspec.structs.replace(held.spec, holder_identity="", renew_time=_now())
        await self._write(msgspec.structs.replace(held, spec=spec))

    async def _try(self) -> bool:
        try:
            found = await self._read()
        except NotFound:
            return await self._create()
        vacancy = self._vacancy(found)
        if vacancy is None:
            self.holder = found.spec.holder_identity or ""
            await self._say_that_we_are_wanted(found)
            return False
        last = found.spec.lease_transitions or 0
        term = last + 1 if last < _LAST_TERM else 1
        meta = _with_note(found.metadata, wanted_by="")
        await self._take(msgspec.structs.replace(found, metadata=meta, spec=self._spec(term=term)), vacancy=vacancy)
        return True

    async def _say_that_we_are_wanted(self, found: Lease) -> None:
        if self.wanted and found.metadata.annotations.get(WANTED_BY) != self.identity:
            await self._write(
                msgspec.structs.replace(found, metadata=_with_note(found.metadata, wanted_by=self.identity))
            )

    async def _create(self) -> bool:
        meta = ObjectMeta(name=self.name, namespace=self._namespace)
        try:
            await self._take(Lease(metadata=meta, spec=self._spec(term=1)), vacancy="released")
        except AlreadyExists:
            return False
        return True

    def _vacancy(self, found: Lease) -> Vacancy | None:
        """How the Lease is free to take; None while it is held."""
        spec = found.spec
        if not spec.holder_identity:
            return "released"
        sighting = _Sighting(spec.holder_identity, spec.lease_transitions or 0, spec.renew_time or "")
        # A write of ours whose answer did not arrive counts as ours.
        if sighting.holder == self.identity and (self._heir or sighting.renewed == self._stamp):
            return "inherited"
        now = self._clock()
        if self._seen is None or self._seen[0] != sighting:
            self._seen = sighting, now
        duration = spec.lease_duration_seconds or self._times.duration_seconds
        return "expired" if now - self._seen[1] >= min(duration, _LONGEST_SECONDS) else None

    def _spec(self, *, term: int) -> LeaseSpec:
        self._stamp = _now()
        return LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._times.duration_seconds,
            acquire_time=self._stamp,
            renew_time=self._stamp,
            lease_transitions=term,
        )

    async def _take(self, wanted: Lease, *, vacancy: Vacancy) -> None:
        sent_at = self._clock()
        self._lease = await self._write(wanted)
        self._valid_until = sent_at + self._times.duration_seconds
        self.vacancy, self.holder = vacancy, self.identity

    async def _renew(self) -> float:
        """Renew the Lease. Returns the seconds until the next renewal."""
        assert self._lease is not None, "acquire the lease first"
        sent_at = self._clock()
        wanted = msgspec.structs.replace(self._lease, spec=msgspec.structs.replace(self._lease.spec, renew_time=_now()))
        try:
            self._lease = await self._write(wanted)
        except (Conflict, NotFound):
            return await self._after_conflict()
        except KubeError as error:
            log.warning("the lease is not renewed", lease=self.name, left=self.remaining_seconds, error=str(error))
            return self._times.look_seconds
        self._valid_until = sent_at + self._times.duration_seconds
        return self._times.renew_seconds

    async def _after_conflict(self) -> float:
        """Another process wrote the Lease: renew at once if holder and term are still ours."""
        try:
            found = await self._read()
        except NotFound:
            self._lose(holder="")
        except KubeError as error:
            log.warning("the lease cannot be read", lease=self.name, error=str(error))
            return self._times.look_seconds
        if (found.spec.holder_identity, found.spec.lease_transitions) != (self.identity, self.term):
            self._lose(holder=found.spec.holder_identity or "no process")
        self._lease = found
        self.wanted_by = found.metadata.annotations.get(WANTED_BY, "")
        return 0.0

    def _lose(self, *, holder: str) -> NoReturn:
        self._lease, self.holder = None, holder
        raise LeaseLostError(self.name, holder=holder)

    async def _read(self) -> Lease:
        return await self._client.get(
            LEASES, name=self.name, as_type=Lease, namespace=self._namespace, deadline_seconds=self._times.renew_seconds
        )

    async def _write(self, lease: Lease) -> Lease:
        seconds = self._times.renew_seconds
        if not lease.metadata.resource_version:
            return await self._client.create(
                LEASES, body=lease, as_type=Lease, namespace=self._namespace, deadline_seconds=seconds
            )
        return await self._client.update(
            LEASES, name=self.name, body=lease, as_type=Lease, namespace=self._namespace, deadline_seconds=seconds
        )


def _with_note(meta: ObjectMeta, *, wanted_by: str) -> ObjectMeta:
    others = {key: text for key, text in meta.annotations.items() if key != WANTED_BY}
    return msgspec.structs.replace(meta, annotations=others | ({WANTED_BY: wanted_by} if wanted_by else {}))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
