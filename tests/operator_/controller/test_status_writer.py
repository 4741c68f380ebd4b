"""A status that was written is counted where it tells of a preemption, and only then."""

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Client
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.controller.status_writer import StatusWriter
from dovetail_operator.job.status_pacing import Pacing
from dovetail_operator.metrics import make_counters
from dovetail_operator.state.pending_writes import PendingWrites
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import at, make_job, make_state

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
