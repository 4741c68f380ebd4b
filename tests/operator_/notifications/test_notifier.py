"""Who is told what of a job: which changes are due, each once, over failures, restarts and deletions."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Client
from dovetail.kube.retry import Backoff
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.notifications.messages import due, letter
from dovetail_operator.notifications.notifier import ANYBODY, HOUR_SECONDS, MailRules, Notifier
from dovetail_operator.notifications.transports import sender_of
from tests.background import eventually, running
from tests.core.kube.api import Answer, Api
from tests.operator_ import mail
from tests.operator_.builders import at, make_job, see
from tests.operator_.mail import Mailbox

ALL = {
    "emails": ["ada@example.org"],
    "events": ["Started", "Succeeded", "Failed", "TimedOut", "Cancelled", "Preempted"],
}
RUNS: dict[str, Any] = {"phase": "Running", "number": 7, "startTime": at(0), "nodes": ["a"]}
ENDED: dict[str, Any] = {**RUNS, "phase": "Succeeded", "completionTime": at(60)}
STATUS = "PATCH /apis/dovetail.dev/v1beta1/namespaces/team/gpujobs/x/status"
GET = "GET /apis/dovetail.dev/v1beta1/namespaces/team/gpujobs/x"


def told_job(notify: dict[str, Any] = ALL, **status: Any) -> GPUJob:
    return make_job(notify=notify, status=status)


def events(job: GPUJob) -> list[str]:
    return [change.event for change in due(job)]


def test_by_default_the_end_is_told_and_nothing_else() -> None:
    asked = {"emails": ["ada@example.org"]}
    assert events(told_job(asked, **RUNS)) == []
    for phase in ("Succeeded", "Failed", "TimedOut", "Cancelled"):
        assert events(told_job(asked, **{**ENDED, "phase": phase})) == [phase]


def test_a_start_is_told_before_the_end_and_what_is_noted_is_not_told_again() -> None:
    assert events(told_job(**ENDED)) == ["Started", "Succeeded"]
    assert events(told_job(**ENDED, notified=["Started/1.0"])) == ["Succeeded"]
    assert events(told_job(**ENDED, notified=["Started/1.0", "Succeeded"])) == []
    assert events(told_job({"events": ["Failed"]}, **ENDED)) == []


def test_a_job_that_made_way_says_so_and_starts_once_more() -> None:
    made = {"count": 1, "lastTime": at(30), "at": None, "by": "uid-y", "message": "Job 9 goes before"}
    waits = {**RUNS, "phase": "Preempted", "preemption": made, "notified": ["Started/1.0"]}
    assert events(told_job(**waits)) == ["Preempted"]
    assert "Job 9 goes before" in letter(told_job(**waits), change=due(told_job(**waits))[0]).text
    again = {**waits, "phase": "Running", "startTime": at(90), "notified": ["Started/1.0", "Preempted/1"]}
    assert [change.key for change in due(told_job(**again))] == ["Started/1.1"]


def test_another_attempt_is_another_start() -> None:
    assert [change.key for change in due(told_job(**RUNS, attempt=2, notified=["Started/1.0"]))] == ["Started/2.0"]


def test_of_an_array_all_tasks_together_are_told() -> None:
    task = make_job(notify=ALL, status=ENDED, meta={"labels": {"dovetail.dev/array": "all"}})
    assert due(task) == []


def test_the_letter_has_the_facts_and_one_line_of_subject() -> None:
    failed = told_job(**{**ENDED, "phase": "Failed", "reason": "BackoffLimitExceeded", "message": "it\nfailed"})
    found = letter(failed, change=due(failed)[-1])
    assert found.subject == "Job 7 (x) has failed"
    assert "Reason:    BackoffLimitExceeded: it\nfailed" in found.text
    assert "Run time:  60s" in found.text
    assert (found.facts["event"], found.facts["number"], found.facts["nodes"]) == ("Failed", 7, ["a"])


def test_what_was_told_stays_in_the_status_that_the_operator_writes() -> None:
    job = told_job(**RUNS, notified=["Started/1.0"])
    assert reconcile(see(job)).status.notified == ["Started/1.0"]


class Told:
    """A notifier at work with a real SMTP server, and the API server that keeps what it notes."""

    def __init__(self, client: Client, api: Api, url: str, *, rules: MailRules = ANYBODY) -> None:
        self.now = 0.0
        self.events: list[Announcement] = []
        self.registry = CollectorRegistry()
        self.api = api
        self.notifier = Notifier(
            client,
            sender=sender_of(url, sender="dovetail@example.org"),
            post=self.events.append,
            registry=self.registry,
            rng=random.Random(7),
            rules=rules,
            clock=lambda: self.now,
            backoff=Backoff(first_seconds=0.001, longest_seconds=0.001),
        )

    def count(self, outcome: str) -> float | None:
        return self.registry.get_sample_value("dovetail_notifications_total", {"outcome": outcome})

    def running(self) -> AbstractAsyncContextManager[None]:
        return running(self.notifier.run())


@asynccontextmanager
async def at_work(client: Client, api: Api, *, rules: MailRules = ANYBODY) -> AsyncIterator[tuple[Told, Mailbox]]:
    async with mail.serving() as box:
        told = Told(client, api, f"smtp://127.0.0.1:{box.port}", rules=rules)
        async with told.running():
            yield told, box


def with_noted(*keys: str, job: GPUJob) -> GPUJob:
    return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, notified=list(keys)))


def body(job: GPUJob) -> Answer:
    return Answer(body=values_of(job))


async def test_each_change_is_sent_once_in_its_order_and_then_noted(client: Client, api: Api) -> None:
    job = told_job(**ENDED)
    noted = with_noted("Started/1.0", "Succeeded", job=job)
    api.answer(STATUS, body(noted))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(job)
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        told.notifier.observe(noted)
        assert box.subjects == ["Job 7 (x) has started", "Job 7 (x) has succeeded"]
        assert told.count("sent") == 2
    (patch,) = api.of(STATUS)
    assert patch.body["status"]["notified"] == ["Started/1.0", "Succeeded"]
    assert patch.body["metadata"] == {"uid": "uid-x", "resourceVersion": "10"}


async def test_the_next_operator_sends_nothing_of_what_is_noted(client: Client, api: Api) -> None:
    noted = with_noted("Started/1.0", job=told_job(**ENDED))
    api.answer(STATUS, body(with_noted("Started/1.0", "Succeeded", job=noted)))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(noted)
        await api.until(STATUS, count=1)
        assert box.subjects == ["Job 7 (x) has succeeded"]


async def test_a_conflict_sends_nothing_twice(client: Client, api: Api) -> None:
    job = told_job(**RUNS)
    ended = told_job(**ENDED)
    api.answer(STATUS, Answer(status=409, body={"code": 409, "reason": "Conflict", "message": "changed"}))
    api.answer(GET, body(ended))
    api.answer(STATUS, body(with_noted("Started/1.0", "Succeeded", job=ended)))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(job)
        await api.until(STATUS, count=2)
        assert box.subjects == ["Job 7 (x) has started", "Job 7 (x) has succeeded"]


async def test_a_status_that_forgets_what_was_told_brings_no_second_mail(client: Client, api: Api) -> None:
    job = told_job(**RUNS)
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)), body(with_noted("Started/1.0", job=job)))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        told.notifier.observe(with_noted("Started/1.0", job=job))
        told.notifier.observe(told_job(**RUNS))
        await api.until(STATUS, count=2)
        assert box.subjects == ["Job 7 (x) has started"]


async def test_what_comes_while_something_is_noted_is_told_next(client: Client, api: Api) -> None:
    job, ended, released = told_job(**RUNS), told_job(**ENDED, notified=["Started/1.0"]), asyncio.Event()
    answered = values_of(with_noted("Started/1.0", job=job))
    api.answer(STATUS, Answer(body=answered, released=released))
    api.answer(STATUS, body(with_noted("Started/1.0", "Succeeded", job=ended)))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        told.notifier.observe(ended)
        released.set()
        await api.until(STATUS, count=2)
        assert box.subjects == ["Job 7 (x) has started", "Job 7 (x) has succeeded"]


async def test_a_server_that_fails_for_a_while_gets_it_later(client: Client, api: Api) -> None:
    job = told_job(**RUNS)
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)))
    async with at_work(client, api) as (told, box):
        box.answers = ["451 later", "451 later"]
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        assert box.subjects == ["Job 7 (x) has started"]
        assert (told.count("sent"), told.count("retried"), told.count("failed")) == (1, 2, 0)
        assert told.events == []


async def test_after_a_second_try_what_comes_later_is_told_too(client: Client, api: Api) -> None:
    job = told_job(**RUNS)
    ended = with_noted("Started/1.0", job=told_job(**ENDED))
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)))
    api.answer(STATUS, body(with_noted("Started/1.0", "Succeeded", job=ended)))
    async with at_work(client, api) as (told, box):
        box.answers = ["451 later"]
        told.notifier.observe(job)
        await eventually(lambda: bool(api.seen) and not told.notifier._jobs)
        told.notifier.observe(ended)
        await api.until(STATUS, count=2)
        assert box.subjects == ["Job 7 (x) has started", "Job 7 (x) has succeeded"]


def kept(notifier: Notifier) -> list[object]:
    """What the notifier has of any job."""
    return [each for each in (notifier._jobs, notifier._sent, notifier._lost, notifier._tries, notifier._gone) if each]


async def test_of_a_job_that_was_told_of_and_deleted_nothing_is_kept(client: Client, api: Api) -> None:
    job = told_job(**RUNS)
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)))
    async with at_work(client, api) as (told, _):
        told.notifier.observe(job)
        await eventually(lambda: bool(api.seen) and not told.notifier._jobs)
        assert kept(told.notifier) != []
        told.notifier.drop(job)
        assert kept(told.notifier) == []


async def test_of_a_job_that_is_deleted_before_it_was_told_of_nothing_is_kept_afterwards(
    client: Client, api: Api
) -> None:
    async with at_work(client, api) as (told, box):
        told.notifier.observe(told_job(**RUNS))
        told.notifier.drop(told_job(**RUNS))
        await eventually(lambda: kept(told.notifier) == [])
        assert box.subjects == ["Job 7 (x) has started"]


@pytest.mark.parametrize(("answer", "times"), [("550 never", 1), ("451 later", 12)])
async def test_what_cannot_be_sent_is_given_up_with_an_event(client: Client, api: Api, answer: str, times: int) -> None:
    job = told_job(**RUNS)
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)))
    async with at_work(client, api) as (told, box):
        box.answers = [answer] * times
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        (event,) = told.events
        assert (event.reason, event.severity) == ("NotificationFailed", "Warning")
        assert event.message == f"The notification of Started was not sent: 127.0.0.1:{box.port} answered {answer[:3]}"
        assert (box.mails, box.answers, told.count("failed")) == ([], [], 1)


async def test_a_job_that_is_deleted_is_told_of_all_the_same(client: Client, api: Api) -> None:
    job = told_job(**ENDED)
    async with at_work(client, api) as (told, box):
        box.answers = ["451 later"]
        told.notifier.observe(job)
        await eventually(lambda: told.count("retried") == 1)
        told.notifier.drop(job)
        await eventually(lambda: len(box.mails) == 2)
    assert api.seen == []


NAMESPACE = "GET /api/v1/namespaces/team"
FAILED: dict[str, Any] = {**ENDED, "phase": "Failed", "message": "its pod is gone", "notified": ["Started/1.0"]}
GOING = Answer(body={"metadata": {"name": "team", "uid": "u", "resourceVersion": "5", "deletionTimestamp": at(30)}})


async def test_a_job_that_failed_since_its_namespace_was_deleted_is_told_as_cancelled(client: Client, api: Api) -> None:
    job = told_job(**FAILED)
    api.answer(NAMESPACE, GOING)
    api.answer(STATUS, body(with_noted("Started/1.0", "Failed", job=job)))
    async with at_work(client, api) as (told, box):
        box.answers = ["451 later"]
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        assert box.subjects == ["Job 7 (x) was cancelled"]
        assert "Its namespace was deleted before it had ended" in box.mails[0].get_content()
    assert len(api.of(NAMESPACE)) == 1, "by the next try it may be gone for another reason"


async def test_who_asked_for_failures_alone_is_not_told_of_a_deleted_namespace(client: Client, api: Api) -> None:
    job = told_job({"emails": ["ada@example.org"], "events": ["Failed"]}, **FAILED)
    api.answer(NAMESPACE, GOING)
    api.answer(STATUS, body(with_noted("Started/1.0", "Failed", job=job)))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        assert (box.mails, told.count("sent")) == ([], 0)


async def test_a_failure_in_a_namespace_that_stays_is_told_as_one(client: Client, api: Api) -> None:
    job = told_job(**FAILED)
    api.answer(NAMESPACE, Answer(body={"metadata": {"name": "team", "uid": "u", "resourceVersion": "5"}}))
    api.answer(STATUS, body(with_noted("Started/1.0", "Failed", job=job)))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        assert box.subjects == ["Job 7 (x) has failed"]


async def test_a_job_that_went_while_it_was_noted_is_let_be(client: Client, api: Api) -> None:
    api.answer(STATUS, Answer(status=404, body={"code": 404, "reason": "NotFound", "message": "gone"}))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(told_job(**RUNS))
        await eventually(lambda: len(api.seen) == 1)
        assert box.subjects == ["Job 7 (x) has started"]


async def test_after_a_conflict_with_another_job_of_its_name_nothing_is_noted_there(client: Client, api: Api) -> None:
    other = make_job(notify=ALL, status=ENDED, meta={"uid": "uid-other", "resourceVersion": "12"})
    api.answer(STATUS, Answer(status=409, body={"code": 409, "reason": "Conflict", "message": "changed"}))
    api.answer(GET, body(other))
    async with at_work(client, api) as (told, box):
        told.notifier.observe(told_job(**RUNS))
        await api.until(GET, count=1)
        await eventually(lambda: not told.notifier._jobs)
        assert box.subjects == ["Job 7 (x) has started"]
    assert len(api.of(STATUS)) == 1


async def test_where_nobody_can_be_told_the_job_says_so_once(client: Client, api: Api) -> None:
    job = told_job(**RUNS)
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)))
    told = Told(client, api, "")
    async with told.running():
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
    (event,) = told.events
    assert "no SMTP server or webhook is configured (notify_url)" in event.message


async def test_jobs_that_tell_nobody_cost_nothing(client: Client, api: Api) -> None:
    async with at_work(client, api) as (told, box):
        told.notifier.observe(make_job(status=ENDED))
        told.notifier.drop(make_job(status=ENDED))
        await asyncio.sleep(0)
        assert box.mails == []
    assert api.seen == []


async def test_mails_go_to_the_domains_that_are_allowed_and_the_job_says_who_was_not_told(
    client: Client, api: Api
) -> None:
    asked = {"emails": ["ada@Example.org", "eve@example.org.evil.com", "bob@lab.example.org"], "events": ["Started"]}
    job = told_job(asked, **RUNS)
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)))
    async with at_work(client, api, rules=MailRules(domains=["example.org", "*.example.org"])) as (told, box):
        box.answers = ["451 later"]
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        assert [each["To"] for each in box.mails] == ["ada@Example.org, bob@lab.example.org"]
    (event,) = told.events
    who = "eve@example.org.evil.com: mails go to example.org, *.example.org alone (notify_domains)"
    assert (event.reason, event.message) == ("NotificationFailed", f"Not every address was notified: {who}")


async def test_where_no_address_is_allowed_nothing_is_sent(client: Client, api: Api) -> None:
    job = told_job(**RUNS)
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)))
    async with at_work(client, api, rules=MailRules(domains=["example.com"])) as (told, box):
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        assert (box.mails, told.count("failed")) == ([], 1)
    assert [each.message[:49] for each in told.events] == ["The notification of Started was not sent: ada@exa"]


async def test_beyond_its_rate_a_namespace_sends_nothing_until_an_hour_has_passed_and_says_so_once(
    client: Client, api: Api
) -> None:
    async with at_work(client, api, rules=MailRules(per_hour=2)) as (told, box):
        for name in ("a", "b", "c", "d"):
            job = make_job(name, notify=ALL, status=RUNS)
            path = STATUS.replace("/x/", f"/{name}/")
            api.answer(path, body(with_noted("Started/1.0", job=job)))
            told.notifier.observe(job)
            await api.until(path, count=1)
        assert box.subjects == ["Job 7 (a) has started", "Job 7 (b) has started"]
        assert (told.count("sent"), told.count("limited")) == (2, 2)
        assert [each.reason for each in told.events] == ["NotificationsLimited"]
        assert "namespace team are dropped: it has sent 2 within an hour" in told.events[0].message
        told.now = HOUR_SECONDS
        job = make_job("e", notify=ALL, status=RUNS)
        api.answer(STATUS.replace("/x/", "/e/"), body(with_noted("Started/1.0", job=job)))
        told.notifier.observe(job)
        await api.until(STATUS.replace("/x/", "/e/"), count=1)
        assert box.subjects[2:] == ["Job 7 (e) has started"]


async def test_a_mail_that_did_not_go_out_counts_once_however_often_it_is_tried(client: Client, api: Api) -> None:
    job = told_job(**RUNS)
    api.answer(STATUS, body(with_noted("Started/1.0", job=job)))
    async with at_work(client, api, rules=MailRules(per_hour=1)) as (told, box):
        box.answers = ["451 later"] * 3
        told.notifier.observe(job)
        await api.until(STATUS, count=1)
        assert (box.subjects, told.count("limited")) == (["Job 7 (x) has started"], 0)
