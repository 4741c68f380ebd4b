"""The owner of a GPUJob that cannot be read reads why in its status, and what was known of it starts nothing."""

import asyncio
import random

import msgspec
import pytest

from dovetail.api.meta import ObjectMeta
from dovetail.kube.client import Client
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.state.state import State
from dovetail_operator.writes.unreadable_jobs import UnreadableJobs, sentence_of
from tests.background import running
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import NOW, make_child, make_job, make_state

STATUS = "PATCH /apis/dovetail.dev/v1beta1/namespaces/team/gpujobs/x/status"
META = ObjectMeta(name="x", namespace="team", uid="uid-x", generation=2, resource_version="11")
DEEP = "cannot be read: it is nested too deeply"
EXPLAIN = "`kubectl explain gpujob.spec.dependencies.name` says what is allowed"
SAID = "spec.template is nested too deeply: it may be 64 levels deep at most"


class Rig:
    def __init__(self, client: Client) -> None:
        self.state: State = make_state(a=1)
        self.events = asyncio.Queue[Announcement]()
        self.jobs = UnreadableJobs(
            client,
            jobs=self.state.store.jobs,
            child=self.state.store.child_named,
            found=lambda meta, message: self.state.store.job_unreadable(meta, message=message),
            post=self.events.put_nowait,
            rng=random.Random(7),
        )

    async def posted(self) -> Announcement:
        return await asyncio.wait_for(self.events.get(), 20)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        (DEEP, SAID),
        (
            "cannot be read: Expected `int`, got `str` - at `$.spec.dependencies[...].name`",
            "spec.dependencies[...].name cannot be read: Expected `int`, got `str`; " + EXPLAIN,
        ),
        # A newer operator wrote it; and what our own code fails at is no fault of the owner's.
        ("cannot be read: Invalid enum value 'New' - at `$.status.phase`", None),
        ("cannot be handled: KeyError: 'x'", None),
    ],
)
def test_the_sentence_names_the_field_and_what_is_allowed(problem: str, said: str | None) -> None:
    assert sentence_of(problem) == said


async def test_the_owner_reads_it_once_although_our_write_brings_another_version(api: Api, client: Client) -> None:
    api.answer(STATUS, refusal(503), Answer(body={}))
    rig = Rig(client)
    async with running(rig.jobs.run()):
        rig.jobs.report(META, DEEP)
        await api.until(STATUS, count=2)
        told = await rig.posted()
        rig.jobs.report(META, DEEP)
        assert not rig.jobs._queue
    patch = {
        "observedGeneration": 2, "phase": "Queued", "reason": "Invalid", "message": SAID,
        "details": [{"code": "Unreadable", "parameters": {"problem": SAID}}],
    }  # fmt: skip
    assert api.of(STATUS)[-1].body == {"metadata": {"uid": "uid-x"}, "status": patch}
    assert (told.reason, told.message, rig.events.empty()) == ("Invalid", SAID, True)


async def test_an_answer_that_cannot_be_read_is_a_status_that_was_written(api: Api, client: Client) -> None:
    api.answer(STATUS, Answer(body=b'{"spec":' + b"[" * 2000 + b"]" * 2000 + b"}"))
    rig = Rig(client)
    async with running(rig.jobs.run()):
        rig.jobs.report(META, DEEP)
        await api.until(STATUS, count=1)
        await rig.posted()
    assert len(api.of(STATUS)) == 1


async def test_the_status_of_a_run_stays(api: Api, client: Client) -> None:
    rig = Rig(client)
    rig.state.store.job_changed(make_job(status={"phase": "Running"}))
    async with running(rig.jobs.run()):
        rig.jobs.report(META, DEEP)
        await rig.posted()
    assert api.seen == []


@pytest.mark.parametrize(("suspended", "writes"), [(False, 0), (True, 1)])
async def test_the_status_of_a_run_stays_also_for_an_operator_that_never_read_the_job(
    api: Api, client: Client, suspended: bool, writes: int
) -> None:
    api.answer(STATUS, Answer(body={}))
    rig = Rig(client)
    rig.state.store.child_changed(make_child(make_job(), suspend=suspended))
    async with running(rig.jobs.run()):
        rig.jobs.report(META, DEEP)
        await rig.posted()
    assert len(api.of(STATUS)) == writes


def test_what_was_known_of_it_starts_nothing_until_it_can_be_read_again(client: Client) -> None:
    rig = Rig(client)
    rig.state.store.job_changed(make_job(status={"number": 1}))
    rig.jobs._note(META, SAID)
    obstacle = rig.state.obstacle_of(rig.state.store.jobs["team/x"], now=NOW)
    assert obstacle is not None
    assert (obstacle.reason, obstacle.message) == ("Invalid", SAID)
    assert rig.state.engaged({"uid-x": "team/x"}, named={"team/x"})
    rig.state.store.job_changed(make_job(status={"number": 1}, meta={"resourceVersion": "12", "generation": 3}))
    assert rig.state.obstacle_of(rig.state.store.jobs["team/x"], now=NOW) is None


def test_another_job_of_the_name_is_none_of_its_business(client: Client) -> None:
    rig = Rig(client)
    rig.state.store.job_changed(make_job(meta={"uid": "another"}))
    rig.jobs._note(META, SAID)
    assert not rig.state.store.is_unreadable("team/x")


async def test_what_is_announced_is_kept_no_longer_than_it_is_of_use(
    api: Api, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dovetail_operator.writes.unreadable_jobs._MOST_KNOWN", 2)
    rig = Rig(client)
    for name in ("a", "b", "c"):
        api.answer(STATUS.replace("/x/", f"/{name}/"), Answer(body={}))
        rig.jobs.report(ObjectMeta(name=name, namespace="team", uid=f"uid-{name}", generation=1), DEEP)
        await rig.jobs._announce(f"team/{name}")
        # A second turn for the same key finds nothing to do.
        await rig.jobs._announce(f"team/{name}")
    assert (rig.jobs._found, list(rig.jobs._reported)) == ({}, ["team/b", "team/c"])
    assert rig.events.qsize() == 3


async def test_a_version_that_comes_while_the_status_is_written_is_written_next(api: Api, client: Client) -> None:
    rig, released = Rig(client), asyncio.Event()
    api.answer(STATUS, Answer(body={}, released=released), Answer(body={}))
    newer = msgspec.structs.replace(META, generation=3, resource_version="12")
    async with running(rig.jobs.run()):
        rig.jobs.report(META, DEEP)
        await api.until(STATUS, count=1)
        rig.jobs.report(newer, "cannot be read: Expected `int`, got `str` - at `$.spec.workers`")
        released.set()
        await api.until(STATUS, count=2)
    assert [seen.body["status"]["observedGeneration"] for seen in api.of(STATUS)] == [2, 3]


async def test_a_batch_job_of_another_owner_keeps_no_job_from_its_status(api: Api, client: Client) -> None:
    rig = Rig(client)
    api.answer(STATUS, Answer(body={}))
    rig.state.store.child_changed(make_child(make_job(meta={"uid": "uid-earlier"})))
    rig.jobs.report(META, DEEP)
    await rig.jobs._announce("team/x")
    assert len(api.of(STATUS)) == 1
