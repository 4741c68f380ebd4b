"""Writes of a status: what they are counted for, which events follow, and when a job is looked at again."""

from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, GPUJobStatus
from dovetail.kube.client import Client
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.controller import status_writer
from dovetail_operator.controller.status_writer import StatusWriter
from dovetail_operator.job.status_pacing import Pacing
from dovetail_operator.metrics import make_counters
from dovetail_operator.state.pending_writes import PendingWrites
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import at, make_job, make_state
from tests.operator_.controller.test_wake_ups import Woken

STATUS = "PUT /apis/dovetail.dev/v1beta1/namespaces/team/gpujobs/x/status"


def preempted(times: int) -> GPUJob:
    return make_job(status={"phase": "Queued", "preemption": {"count": times, "lastTime": at(0)}})


@pytest.mark.parametrize(
    ("before", "after", "answer", "counted"),
    [
        (make_job(), preempted(1), Answer(body=values_of(preempted(1))), 1),
        (preempted(1), preempted(2), Answer(body=values_of(preempted(2))), 1),
        (preempted(2), make_job(status={"phase": "Running"}), Answer(body=values_of(make_job())), 0),
        (make_job(), preempted(1), refusal(404, reason="NotFound"), 0),
    ],
)
async def test_preemptions_are_counted_once_they_are_written(
    api: Api, client: Client, before: GPUJob, after: GPUJob, answer: Answer, counted: int
) -> None:
    registry = CollectorRegistry()
    writer = StatusWriter(
        client,
        state=make_state(a=1),
        queue=WorkQueue(),
        pacing=Pacing(),
        pending=PendingWrites(),
        post=lambda _: None,
        preemptions=make_counters(registry).preemptions,
    )
    api.answer(STATUS, answer)
    await writer.write(before, status=after.status)
    assert registry.get_sample_value("dovetail_preemptions_total") == counted


class Scene(Woken):
    """A writer that notes its events."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.state = make_state(a=1)
        self.state.store.job_changed(make_job())
        self.pacing, self.pending = Pacing(), PendingWrites()
        self.said: list[tuple[str, str]] = []
        queue: Any = self
        self.writer = StatusWriter(
            client,
            state=self.state,
            queue=queue,
            pacing=self.pacing,
            pending=self.pending,
            post=lambda news: self.said.append((news.reason, news.message)),
            preemptions=make_counters(CollectorRegistry()).preemptions,
        )


@pytest.fixture
def scene(client: Client) -> Scene:
    return Scene(client)


def status(phase: str = "Running", **more: Any) -> GPUJobStatus:
    return make_job(status={"phase": phase, **more}).status


def condition(type_: str, message: str) -> dict[str, Any]:
    return {"type": type_, "status": "False", "reason": "R", "message": message, "lastTransitionTime": at(0)}


async def test_each_thing_that_a_status_says_for_the_first_time_is_an_event(scene: Scene, api: Api) -> None:
    api.answer(STATUS, Answer(body=values_of(make_job(meta={"resourceVersion": "11"}))))
    told = [condition("DevicesHealthy", "GPU 0 is ill"), condition("MemoryWithinPromise", "Pod p uses too much")]
    assert await scene.writer.write(make_job(), status=status("Succeeded", nodeList="a", conditions=told))
    assert scene.said == [
        ("BadCard", "GPU 0 is ill"), ("MemoryOverPromise", "Pod p uses too much"), ("Succeeded", "Succeeded on a"),
    ]  # fmt: skip


async def test_while_many_jobs_come_the_status_alone_says_that_they_wait_for_their_turn(
    scene: Scene, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = status("Queued", reason="Resources", message="Need 4 GPUs, only 1 available")
    seen, now = [], 100.0
    monkeypatch.setattr(status_writer, "time", SimpleNamespace(monotonic=lambda: now))
    for seconds in [0.1] * 9 + [1.1, 0.2]:
        now += seconds
        api.answer(STATUS, Answer(body=values_of(make_job(meta={"resourceVersion": "11"}))))
        await scene.writer.write(make_job(), status=waits)
        seen.append(bool(scene.said))
        scene.said.clear()
    assert seen == [True] * 7 + [False] * 2 + [True] * 2


@pytest.mark.parametrize(
    ("answer", "keys", "waits"),
    [
        (refusal(409), ["team/x"], True),
        (refusal(404), [], False),
        (Answer(body=values_of(make_job(meta={"resourceVersion": "11"}))), [], True),
    ],
)
async def test_after_a_write_the_next_look_waits_for_the_watch_and_a_conflict_asks_for_it(
    scene: Scene, api: Api, answer: Answer, keys: list[str], waits: bool
) -> None:
    api.answer(STATUS, answer)
    written = status("Failed")
    assert await scene.writer.write(make_job(), status=written) is (answer.status == 200)
    assert (scene.keys, scene.pending.wait_seconds("team/x") > 0) == (keys, waits)
    assert bool(scene.said) is (answer.status == 200)
    # Whatever came of it, no status is on its way any more.
    assert not scene.pending.is_being_sent("team/x", status=written)


async def test_a_status_that_comes_back_by_the_watch_is_known_as_ours(scene: Scene, api: Api) -> None:
    written = make_job(meta={"resourceVersion": "11"}, status={"phase": "Running"})
    api.answer(STATUS, Answer(body=values_of(written)))
    await scene.writer.write(make_job(), status=status())
    assert scene.pending.observed("GPUJob", meta=written.metadata).is_own_status


async def test_what_may_wait_is_written_when_it_is_due_and_not_before(scene: Scene, api: Api) -> None:
    """A figure of a running job: the time counts from the last write."""
    job = make_job(status={"phase": "Running", "elapsed": "10s"})
    api.answer(STATUS, Answer(body=values_of(job)))
    await scene.writer.write(make_job(), status=job.status)
    await scene.writer.write_or_postpone(job, status=status(elapsed="20s"))
    ((key, seconds),) = scene.later
    assert (key, len(api.of(STATUS)), seconds > 0) == ("team/x", 1, True)


async def test_a_status_that_is_there_already_is_no_write(scene: Scene, api: Api) -> None:
    job = make_job(status={"phase": "Running"})
    assert await scene.writer.write(job, status=job.status)
    await scene.writer.write_or_postpone(job, status=job.status)
    assert (api.seen, scene.said, scene.later) == ([], [], [])
