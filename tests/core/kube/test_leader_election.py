"""The Lease: one holder at a time, whatever clocks, crashes and lost answers do."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership, LeaseLostError, Times
from tests.background import eventually
from tests.clock import Clock
from tests.extender.api_server import ApiServer

# A request may take as long as it is until the next renewal. Where none is waited for, none is ever late.
CALM = Times(duration_seconds=15, renew_seconds=60, look_seconds=0.005)
RENEWING = Times(duration_seconds=15, renew_seconds=1, look_seconds=0.005)


class Office:
    """A Lease and its candidates, who share a clock."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.client = client
        self.clock = Clock()

    def candidate(self, identity: str, *, times: Times = CALM) -> Leadership:
        return Leadership(
            self.client, namespace="dovetail-system", name="it", identity=identity, times=times, clock=self.clock
        )

    async def holder(self, identity: str, *, times: Times = CALM) -> Leadership:
        found = self.candidate(identity, times=times)
        await found.acquire()
        return found

    @property
    def spec(self) -> dict[str, Any]:
        return dict(self.api.leases["it"]["spec"])


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    async with ApiServer().running() as api, Client(api.connection, deadline_seconds=60.0) as client:
        yield Office(api, client)


async def is_kept_waiting(candidate: Leadership) -> asyncio.Task[None]:
    """The candidate's attempt, which has looked at the Lease by now and goes on."""
    attempt = asyncio.create_task(candidate.acquire())
    await eventually(lambda: candidate.holder != "")
    assert not attempt.done()
    return attempt


async def test_the_first_takes_it_at_once(office: Office) -> None:
    holder = await office.holder("one")
    assert (holder.term, holder.vacancy, holder.remaining_seconds) == (1, "released", 15)
    assert office.spec["holderIdentity"] == "one"
    assert office.spec["leaseDurationSeconds"] == 15


async def test_the_second_waits_until_it_was_not_renewed_for_the_whole_time(office: Office) -> None:
    await office.holder("one")
    second = office.candidate("two")
    attempt = await is_kept_waiting(second)
    office.clock.now += 14.9
    await asyncio.sleep(0.05)
    assert not attempt.done()
    office.clock.now += 0.2
    await attempt
    assert (second.term, second.vacancy) == (2, "expired")


async def test_what_the_holder_s_wall_clock_says_does_not_count(office: Office) -> None:
    await office.holder("one")
    office.api.leases["it"]["spec"]["renewTime"] = "1970-01-01T00:00:00.000000Z"
    attempt = await is_kept_waiting(office.candidate("two"))
    await asyncio.sleep(0.05)
    assert not attempt.done()
    attempt.cancel()


async def test_a_renewal_makes_the_second_wait_anew(office: Office) -> None:
    await office.holder("one")
    attempt = await is_kept_waiting(office.candidate("two"))
    office.clock.now += 10
    office.api.leases["it"]["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    await asyncio.sleep(0.05)
    office.clock.now += 10
    await asyncio.sleep(0.05)
    assert not attempt.done()
    attempt.cancel()


async def test_a_released_lease_is_taken_at_once_in_the_next_term(office: Office) -> None:
    first = await office.holder("one")
    await first.release()
    assert first.remaining_seconds == 0
    assert first.term is None
    second = await office.holder("two")
    assert (second.term, second.vacancy) == (2, "released")


async def test_a_lease_that_somebody_noted_something_on_is_released_all_the_same(office: Office) -> None:
    first = await office.holder("one")
    office.api.leases["it"]["metadata"] |= {"resourceVersion": "9999", "annotations": {"waits": "two"}}
    await first.release()
    assert office.spec["holderIdentity"] == ""
    assert office.api.leases["it"]["metadata"]["annotations"] == {"waits": "two"}


async def test_the_next_holder_s_lease_is_not_released_by_the_one_before(office: Office) -> None:
    first = await office.holder("one")
    attempt = await is_kept_waiting(office.candidate("two"))
    office.clock.now += 15.1
    await attempt
    await first.release()
    assert office.spec["holderIdentity"] == "two"


async def test_a_process_that_starts_anew_takes_its_own_lease_at_once_in_the_next_term(office: Office) -> None:
    await office.holder("one")
    again = await office.holder("one")
    assert (again.term, again.vacancy) == (2, "inherited")


async def test_of_two_processes_of_one_name_the_older_finds_out(office: Office) -> None:
    first = await office.holder("one", times=RENEWING)
    await office.holder("one")
    with pytest.raises(LeaseLostError, match="held by one"):
        await first.keep()


async def test_the_holder_s_validity_counts_from_when_it_sent_and_not_from_when_it_was_answered(office: Office) -> None:
    holder = await office.holder("one", times=RENEWING)
    office.clock.now += 3
    office.api.answering.clear()
    keeping = asyncio.create_task(holder.keep())
    await eventually(lambda: office.api.waiting_leases == 1)
    office.clock.now += 5
    office.api.answering.set()
    await eventually(lambda: holder.remaining_seconds == 10)
    await ended(keeping)


async def test_a_kept_lease_is_valid_from_each_renewal(office: Office) -> None:
    holder = await office.holder("one", times=RENEWING)
    office.clock.now += 9
    keeping = asyncio.create_task(holder.keep())
    await eventually(lambda: holder.remaining_seconds == 15)
    assert holder.term == 1
    await ended(keeping)


async def test_while_the_api_server_is_away_the_time_runs_out_and_the_term_goes_on_after(office: Office) -> None:
    holder = await office.holder("one", times=RENEWING)
    office.api.answering.clear()
    keeping = asyncio.create_task(holder.keep())
    office.clock.now += 20
    assert holder.remaining_seconds == 0
    await asyncio.sleep(2.5 * RENEWING.renew_seconds)
    office.api.answering.set()
    await eventually(lambda: holder.remaining_seconds == 15)
    assert holder.term == 1
    await ended(keeping)


async def test_who_was_asleep_while_another_took_over_finds_out(office: Office) -> None:
    first = await office.holder("one", times=RENEWING)
    attempt = await is_kept_waiting(office.candidate("two"))
    office.clock.now += 16
    await attempt
    assert first.remaining_seconds == 0, "known before it asks anybody"
    with pytest.raises(LeaseLostError, match="the lease it is held by two"):
        await first.keep()
    assert first.term is None


async def test_a_lease_that_was_taken_away_is_lost(office: Office) -> None:
    holder = await office.holder("one", times=RENEWING)
    del office.api.leases["it"]
    with pytest.raises(LeaseLostError, match="taken away"):
        await holder.keep()


async def test_a_stranger_s_note_on_the_lease_ends_no_term(office: Office) -> None:
    holder = await office.holder("one", times=RENEWING)
    office.api.leases["it"]["metadata"]["resourceVersion"] = "999"
    office.clock.now += 3
    keeping = asyncio.create_task(holder.keep())
    await eventually(lambda: holder.remaining_seconds == 15)
    await ended(keeping)


async def test_a_taking_that_happened_but_was_not_answered_is_ours(office: Office) -> None:
    office.api.answers_leases = False
    candidate = office.candidate("one", times=RENEWING)
    attempt = asyncio.create_task(candidate.acquire())
    await eventually(lambda: len(office.api.lease_writes) == 1)
    office.api.answers_leases = True
    await asyncio.wait_for(attempt, 60)
    assert candidate.vacancy == "inherited"


async def test_after_the_last_term_that_can_be_counted_comes_the_first(office: Office) -> None:
    await office.holder("one")
    office.api.leases["it"]["spec"] |= {"holderIdentity": "", "leaseTransitions": 2**31 - 1}
    assert (await office.holder("two")).term == 1


async def test_a_lease_is_held_for_no_century_whatever_somebody_wrote_into_it(office: Office) -> None:
    await office.holder("one")
    office.api.leases["it"]["spec"] |= {"leaseDurationSeconds": 2**31 - 1}
    second = office.candidate("two")
    attempt = await is_kept_waiting(second)
    office.clock.now += 119
    await asyncio.sleep(0.05)
    assert not attempt.done()
    office.clock.now += 1
    await attempt
    assert second.vacancy == "expired"


async def test_of_many_who_want_it_at_once_one_gets_it(office: Office) -> None:
    candidates = [office.candidate(str(number)) for number in range(8)]
    attempts = [asyncio.create_task(candidate.acquire()) for candidate in candidates]
    await eventually(lambda: all(candidate.holder for candidate in candidates))
    assert [candidate.term for candidate in candidates if candidate.term] == [1]
    for attempt in attempts:
        await ended(attempt)


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_only_who_sees_another_holder_stands_by(office: Office) -> None:
    first, second = office.candidate("one"), office.candidate("two")
    assert not first.is_standby, "nobody holds it"
    await first.acquire()
    assert not first.is_standby
    attempt = await is_kept_waiting(second)
    assert second.is_standby
    office.clock.now += 15.1
    await attempt
    assert not second.is_standby
