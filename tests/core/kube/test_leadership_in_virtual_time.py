"""The Lease second by second, in virtual time: when its holder renews, and when another candidate may act."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Lease
from dovetail.kube.errors import AlreadyExists, Conflict, NotFound, Status, Unreachable
from dovetail.kube.leader_election import WANTED_BY, Leadership, LeaseLostError, NotLeaderError, Times
from tests import virtual_time
from tests.virtual_time import clock

DURATION, RENEW, LOOK = 15, 4.0, 1.0


class Leases:
    """One Lease as the API server keeps it.

    `away`: no request arrives. `loses_answers`: writes happen unanswered. `answer_seconds`: writes are answered late.
    """

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.writes: list[float] = []
        self.reads: list[float] = []
        self.away = False
        self.loses_answers = False
        self.answer_seconds = 0.0
        self.before_write: Callable[[], None] = lambda: None
        self._version = 0

    async def get(self, _: Any, name: str, *, as_type: type, namespace: str, deadline_seconds: float) -> Lease:
        assert (name, namespace, as_type, deadline_seconds) == ("it", "system", Lease, RENEW)
        self.reads.append(clock())
        self._answer()
        if self.lease is None:
            raise NotFound(Status(code=404))
        return self.lease

    async def create(self, _: Any, *, body: Lease, **options: Any) -> Lease:
        assert (body.metadata.name, body.metadata.namespace) == ("it", "system")
        self.before_write()
        self._answer()
        if self.lease is not None:
            raise AlreadyExists(Status(code=409))
        return await self._write(body, **options)

    async def update(self, _: Any, *, name: str, body: Lease, **options: Any) -> Lease:
        assert name == "it"
        self.before_write()
        self._answer()
        if self.lease is None:
            raise NotFound(Status(code=404))
        if body.metadata.resource_version != self.lease.metadata.resource_version:
            raise Conflict(Status(code=409))
        return await self._write(body, **options)

    def change(self, *, annotations: dict[str, str] | None = None, **spec: Any) -> None:
        """What somebody else writes."""
        assert self.lease is not None
        meta = (
            self.lease.metadata
            if annotations is None
            else msgspec.structs.replace(self.lease.metadata, annotations=annotations)
        )
        self._keep(
            msgspec.structs.replace(self.lease, metadata=meta, spec=msgspec.structs.replace(self.lease.spec, **spec))
        )

    async def _write(self, lease: Lease, *, as_type: type, namespace: str, deadline_seconds: float) -> Lease:
        assert (namespace, as_type, deadline_seconds) == ("system", Lease, RENEW)
        self.writes.append(clock())
        kept = self._keep(lease)
        await asyncio.sleep(self.answer_seconds)
        if self.loses_answers:
            raise Unreachable("here", problem="the answer was lost")
        return kept

    def _keep(self, lease: Lease) -> Lease:
        self._version += 1
        meta = msgspec.structs.replace(lease.metadata, resource_version=str(self._version))
        self.lease = msgspec.structs.replace(lease, metadata=meta)
        return self.lease

    def _answer(self) -> None:
        if self.away:
            raise Unreachable("here", problem="away")

    def candidate(self, identity: str = "one", **options: Any) -> Leadership:
        return Leadership(
            self,  # type: ignore[arg-type]
            namespace="system",
            name="it",
            identity=identity,
            clock=clock,
            **options,
        )

    async def holder(self, identity: str = "one") -> Leadership:
        found = self.candidate(identity)
        await found.acquire()
        return found


def scenario(test: Callable[[Leases], Awaitable[None]]) -> Callable[[], None]:
    """A test that plays in virtual time."""

    def played() -> None:
        async def play() -> None:
            await test(Leases())

        virtual_time.run(play())

    played.__name__ = test.__name__  # type: ignore[attr-defined]
    return played


async def end(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def seconds_until_acquired(candidate: Leadership) -> float:
    start = clock()
    async with asyncio.timeout(600):
        await candidate.acquire()
    return clock() - start


def test_the_defaults_leave_time_for_two_failed_renewals() -> None:
    times = Times()
    assert (times.duration_seconds, times.renew_seconds, times.look_seconds) == (DURATION, RENEW, LOOK)


@scenario
async def test_taking_a_lease_writes_holder_term_and_the_same_time_twice(leases: Leases) -> None:
    holder = await leases.holder()
    assert leases.lease is not None
    spec = leases.lease.spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("one", 15, 1)
    assert spec.acquire_time == spec.renew_time
    assert spec.renew_time
    assert (holder.holder, holder.term, holder.vacancy, holder.remaining_seconds) == ("one", 1, "released", 15)


@scenario
async def test_a_holder_renews_every_four_seconds_and_never_has_less_than_eleven_left(leases: Leases) -> None:
    holder = await leases.holder()
    keeping = asyncio.create_task(holder.keep())
    for _ in range(60):
        await asyncio.sleep(1)
        assert holder.remaining_seconds >= DURATION - RENEW
    await end(keeping)
    assert [at - leases.writes[0] for at in leases.writes[1:]] == [4 * n for n in range(1, 16)]
    assert holder.term == 1


@scenario
async def test_a_renewal_changes_the_renew_time_alone(leases: Leases) -> None:
    holder = await leases.holder()
    assert leases.lease is not None
    before = leases.lease.spec
    keeping = asyncio.create_task(holder.keep())
    await asyncio.sleep(RENEW + 0.5)
    await end(keeping)
    assert leases.lease.spec.renew_time != before.renew_time
    assert msgspec.structs.replace(leases.lease.spec, renew_time=before.renew_time) == before


@scenario
async def test_while_the_api_server_is_away_the_holder_tries_every_second_and_its_time_runs_out(
    leases: Leases,
) -> None:
    holder = await leases.holder()
    keeping = asyncio.create_task(holder.keep())
    leases.away = True
    await asyncio.sleep(DURATION - 0.5)
    assert holder.remaining_seconds == 0.5
    holder.guard()
    await asyncio.sleep(1)
    assert holder.remaining_seconds == 0
    with pytest.raises(NotLeaderError, match="while the lease it is not held"):
        holder.guard()
    leases.away = False
    await asyncio.sleep(LOOK)
    assert holder.remaining_seconds > DURATION - LOOK - 0.1
    assert holder.term == 1
    await end(keeping)


@scenario
async def test_a_holder_whose_lease_cannot_be_read_after_a_conflict_tries_every_second(leases: Leases) -> None:
    holder = await leases.holder()
    keeping = asyncio.create_task(holder.keep())
    leases.change(annotations={"note": "x"})
    original = leases.get

    async def unreadable(*args: Any, **options: Any) -> Lease:
        leases.away = True
        return await original(*args, **options)

    leases.get = unreadable  # type: ignore[method-assign]
    await asyncio.sleep(RENEW + 0.5)
    assert len(leases.reads) == 2
    leases.get = original  # type: ignore[method-assign]
    leases.away = False
    await asyncio.sleep(LOOK)
    assert holder.remaining_seconds > DURATION - LOOK
    await end(keeping)


@scenario
async def test_a_holders_time_begins_when_it_sends_a_write_and_not_with_the_answer(leases: Leases) -> None:
    """The API server may have stored it right then, and from then on another candidate counts."""
    leases.answer_seconds = 3.0
    first = await leases.holder()
    assert first.remaining_seconds == DURATION - 3
    leases.change(holder_identity="")
    second = await leases.holder("two")
    assert second.remaining_seconds == DURATION - 3
    keeping = asyncio.create_task(second.keep())
    await asyncio.sleep(RENEW + 3.5)
    assert second.remaining_seconds == DURATION - 3.5
    await end(keeping)


@scenario
async def test_another_candidate_takes_an_unrenewed_lease_after_fifteen_seconds(leases: Leases) -> None:
    await leases.holder()
    second = leases.candidate("two")
    assert await seconds_until_acquired(second) == DURATION
    assert (second.term, second.vacancy) == (2, "expired")
    assert leases.reads[-1] - leases.reads[-2] == LOOK


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"renew_time": "2026-01-01T00:00:00.000000Z"}, id="it was renewed"),
        pytest.param({"lease_transitions": 7}, id="it has another term"),
        pytest.param({"holder_identity": "three"}, id="it has another holder"),
    ],
)
def test_the_fifteen_seconds_begin_again_when(change: dict[str, Any]) -> None:
    @scenario
    async def played(leases: Leases) -> None:
        await leases.holder()
        asyncio.get_running_loop().call_later(9.5, lambda: leases.change(**change))
        assert await seconds_until_acquired(leases.candidate("two")) == 10 + DURATION

    played()


@scenario
async def test_the_duration_that_the_lease_names_counts_up_to_two_minutes(leases: Leases) -> None:
    for named, counted in ((7, 7), (120, 120), (121, 120), (None, DURATION)):
        leases.lease = None
        await leases.holder()
        leases.change(lease_duration_seconds=named)
        assert await seconds_until_acquired(leases.candidate("two")) == counted


@pytest.mark.parametrize(
    ("last", "term"), [(None, 1), (0, 1), (1, 2), (999_999_998, 999_999_999), (999_999_999, 1), (2**31 - 1, 1)]
)
def test_terms_are_counted_up_to_nine_digits(last: int | None, term: int) -> None:
    @scenario
    async def played(leases: Leases) -> None:
        await leases.holder()
        leases.change(holder_identity="", lease_transitions=last)
        assert (await leases.holder("two")).term == term

    played()


@scenario
async def test_a_process_that_starts_inherits_a_lease_under_its_own_name_at_once(leases: Leases) -> None:
    await leases.holder()
    again = leases.candidate()
    assert await seconds_until_acquired(again) == 0
    assert (again.term, again.vacancy) == (2, "inherited")


@scenario
async def test_one_that_was_in_office_in_this_process_lets_others_look_first_and_inherits_nothing(
    leases: Leases,
) -> None:
    await leases.holder()
    again = leases.candidate(heir=False)
    assert await seconds_until_acquired(again) == 2 * LOOK + DURATION
    assert again.vacancy == "expired"


@scenario
async def test_it_lets_others_look_twice_first_however_often_they_look(leases: Leases) -> None:
    again = leases.candidate(heir=False, times=Times(look_seconds=3))
    assert await seconds_until_acquired(again) == 6


@scenario
async def test_one_that_has_seen_another_holder_inherits_nothing_later(leases: Leases) -> None:
    await leases.holder("other")
    candidate = leases.candidate()
    asyncio.get_running_loop().call_later(0.5, lambda: leases.change(holder_identity="one"))
    assert await seconds_until_acquired(candidate) == LOOK + DURATION
    assert candidate.vacancy == "expired"


@scenario
async def test_one_that_has_met_a_conflict_inherits_nothing_later(leases: Leases) -> None:
    await leases.holder()
    candidate = leases.candidate()

    def another_process_of_that_name_renews() -> None:
        leases.before_write = lambda: None
        leases.change(renew_time="2026-01-01T00:00:00.000000Z")

    leases.before_write = another_process_of_that_name_renews
    assert await seconds_until_acquired(candidate) == LOOK + DURATION
    assert candidate.vacancy == "expired"


@scenario
async def test_a_write_of_ours_whose_answer_was_lost_counts_as_ours(leases: Leases) -> None:
    leases.loses_answers = True
    candidate = leases.candidate(heir=False)
    asyncio.get_running_loop().call_later(2 * LOOK + 0.5, lambda: setattr(leases, "loses_answers", False))
    assert await seconds_until_acquired(candidate) == 3 * LOOK
    assert (candidate.term, candidate.vacancy) == (2, "inherited")


@scenario
async def test_of_two_that_create_it_at_once_one_waits_for_the_other(leases: Leases) -> None:
    candidate = leases.candidate("two")

    def another_is_first() -> None:
        leases.before_write = lambda: None
        leases.lease = msgspec.structs.replace(template, metadata=template.metadata)

    first = Leases()
    await first.holder()
    assert first.lease is not None
    template = first.lease
    leases.before_write = another_is_first
    assert await seconds_until_acquired(candidate) == LOOK + DURATION
    assert candidate.term == 2


@scenario
async def test_while_the_api_server_is_away_a_candidate_looks_every_second(leases: Leases) -> None:
    leases.away = True
    candidate = leases.candidate()
    asyncio.get_running_loop().call_later(2.5, lambda: setattr(leases, "away", False))
    assert await seconds_until_acquired(candidate) == 3 * LOOK
    assert candidate.vacancy == "released"


@scenario
async def test_a_candidate_that_is_needed_says_so_once_and_the_holder_hears_of_it(leases: Leases) -> None:
    holder = await leases.holder()
    keeping = asyncio.create_task(holder.keep())
    second = leases.candidate("two")
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(2.5)
    assert leases.lease is not None
    assert WANTED_BY not in leases.lease.metadata.annotations, "nobody asked the second candidate anything"
    assert second.holder == "one"
    leases.change(annotations={"note": "stays"})
    second.wanted = True
    writes = len(leases.writes)
    await asyncio.sleep(1.4)
    assert len(leases.writes) == writes + 1
    assert leases.lease.metadata.annotations == {"note": "stays", WANTED_BY: "two"}
    await asyncio.sleep(1)
    assert holder.wanted_by == "two"
    assert holder.term == 1
    await end(keeping)
    await holder.release()
    await waiting
    assert leases.lease.metadata.annotations == {"note": "stays"}
    assert (second.term, second.vacancy) == (2, "released")


@scenario
async def test_a_candidate_that_is_needed_takes_the_place_of_one_that_was(leases: Leases) -> None:
    """The holder leaves for whom kube-scheduler asks now."""
    holder = await leases.holder()
    keeping = asyncio.create_task(holder.keep())
    leases.change(annotations={WANTED_BY: "gone"})
    second = leases.candidate("two")
    second.wanted = True
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(LOOK + 0.5)
    assert leases.lease is not None
    assert leases.lease.metadata.annotations == {WANTED_BY: "two"}
    await end(keeping)
    await end(waiting)


@scenario
async def test_a_note_on_the_lease_costs_the_holder_no_time(leases: Leases) -> None:
    holder = await leases.holder()
    keeping = asyncio.create_task(holder.keep())
    await asyncio.sleep(RENEW - 0.5)
    leases.change(annotations={"note": "x"})
    await asyncio.sleep(0.75)
    assert holder.remaining_seconds == DURATION - 0.25
    assert holder.wanted_by == ""
    await end(keeping)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"holder_identity": "two"}, "the lease it is held by two"),
        ({"holder_identity": ""}, "the lease it is held by no process"),
        ({"lease_transitions": 2}, "the lease it is held by one"),
    ],
)
def test_a_holder_learns_at_its_next_renewal_that_the_lease_is_lost(change: dict[str, Any], says: str) -> None:
    @scenario
    async def played(leases: Leases) -> None:
        holder = await leases.holder()
        leases.change(**change)
        with pytest.raises(LeaseLostError, match=says):
            await holder.keep()
        assert clock() == leases.writes[0] + RENEW
        assert (holder.term, holder.remaining_seconds) == (None, 0)
        assert holder.holder == (change.get("holder_identity", "one") or "no process")

    played()


@scenario
async def test_a_lease_that_is_deleted_is_lost(leases: Leases) -> None:
    holder = await leases.holder()
    leases.lease = None
    with pytest.raises(LeaseLostError, match="the lease it was taken away"):
        await holder.keep()
    assert (holder.term, holder.holder) == (None, "")


@scenario
async def test_a_release_lets_the_next_candidate_act_at_its_next_look(leases: Leases) -> None:
    holder = await leases.holder()
    second = leases.candidate("two")
    waiting = asyncio.create_task(seconds_until_acquired(second))
    await asyncio.sleep(3.5)
    await holder.release()
    assert (holder.term, holder.remaining_seconds) == (None, 0)
    assert await waiting == 4
    assert (second.term, second.vacancy) == (2, "released")


@scenario
async def test_a_release_after_a_conflict_looks_whose_the_lease_is(leases: Leases) -> None:
    for change, holder_after in (
        ({"annotations": {"note": "x"}}, ""),
        ({"holder_identity": "two"}, "two"),
        ({"lease_transitions": 9}, "one"),
    ):
        leases.lease = None
        holder = await leases.holder()
        leases.change(**change)
        await holder.release()
        assert leases.lease is not None
        assert leases.lease.spec.holder_identity == holder_after
        assert holder.term is None


@scenario
async def test_a_lease_that_cannot_be_released_ends_by_itself(leases: Leases) -> None:
    holder = await leases.holder()
    leases.away = True
    await holder.release()
    assert holder.term is None
    leases.away = False
    writes = len(leases.writes)
    await holder.release()
    assert len(leases.writes) == writes, "there is nothing to release any more"
    assert await seconds_until_acquired(leases.candidate("two")) == DURATION


@scenario
async def test_the_time_in_office_counts_from_when_the_renewal_was_sent(leases: Leases) -> None:
    holder = await leases.holder()
    original = leases.update

    async def slow(*args: Any, **options: Any) -> Lease:
        written = await original(*args, **options)
        await asyncio.sleep(3)
        return written

    leases.update = slow  # type: ignore[method-assign]
    keeping = asyncio.create_task(holder.keep())
    await asyncio.sleep(RENEW + 3 + 0.5)
    assert holder.remaining_seconds == DURATION - 3.5
    await end(keeping)
