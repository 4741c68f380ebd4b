"""Preemptions under an operator that may be killed between any two writes: each end is counted, and counted once."""

from dataclasses import replace
from datetime import timedelta

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.builtin import Job
from dovetail.api.gpujob import GPUJob
from dovetail_operator.job.actions import PatchJob
from dovetail_operator.job.observation import Notice, Observed
from dovetail_operator.lifecycle.reconcile import Outcome, is_status_first, reconcile
from tests.operator_.builders import LET_GO, NO_ROOM, NOW, at, make_child, make_job, make_pod, see

# What may happen at a step: the operator works, or is killed between its two writes, or does not get to the second one
# that may wait; the proof of a preemption comes or goes; the job gets room again; its user holds or releases it.
EVENTS = st.sampled_from(
    ["works", "works", "works", "is killed", "postpones", "proof", "proof", "no proof", "room", "holds", "releases"]
)


class Cluster:
    """A GPUJob and its batch Job as the API server has them."""

    def __init__(self, *, grace_seconds: float) -> None:
        self.job: GPUJob = make_job(status={"number": 1, "phase": "Running", "startTime": at(-600)})
        self.child: Job = make_child(self.job)
        self.notice: Notice | None = None
        self.grace_seconds = grace_seconds
        self.room = False
        self.ends = 0
        self.now = NOW

    @property
    def counted(self) -> int:
        made = self.job.status.preemption
        return made.count if made is not None else 0

    def step(self, event: str) -> None:
        self.now += timedelta(seconds=60)
        match event:
            case "proof" | "no proof":
                message = "Is ended for boss"
                proven = Notice(by="uid-boss", message=message, grace_seconds=self.grace_seconds)
                self.notice = proven if event == "proof" else None
            case "room":
                self.room = True
            case "holds" | "releases":
                spec = msgspec.structs.replace(self.job.spec, suspend=event == "holds")
                self.job = msgspec.structs.replace(self.job, spec=spec)
            case _:
                self.reconcile(event)

    def observe(self) -> Observed:
        runs = not self.child.spec.suspend
        pods = (make_pod(started=-600),) if runs else ()
        seen = see(self.job, *pods, child=self.child, verdict=LET_GO if self.room else NO_ROOM, now=self.now)
        return replace(seen, notice=self.notice if runs else None)

    def reconcile(self, event: str) -> None:
        seen = self.observe()
        outcome = reconcile(seen)
        status_first = is_status_first(seen, outcome=outcome)
        if status_first:
            self.write(outcome)
            if event == "is killed":
                return
        self.act(outcome)
        if not status_first and event == "works":
            self.write(outcome)

    def write(self, outcome: Outcome) -> None:
        self.job = msgspec.structs.replace(self.job, status=outcome.status)

    def act(self, outcome: Outcome) -> None:
        for action in outcome.actions:
            assert isinstance(action, PatchJob)
            suspend = bool(action.spec.get("suspend", self.child.spec.suspend))
            if suspend and not self.child.spec.suspend and not self.job.spec.suspend:
                assert self.notice is not None, "it ends without a proof"
                known = self.job.status.preemption
                assert known is not None, "the status does not say for whom it ends"
                assert known.by == self.notice.by
                self.ends += 1
                self.room = False
            self.child = make_child(self.job, suspend=suspend)


@given(st.sampled_from([0, 30]), st.lists(EVENTS, max_size=60))
def test_each_end_is_counted_once_whenever_the_operator_is_killed(grace_seconds: float, events: list[str]) -> None:
    cluster = Cluster(grace_seconds=grace_seconds)
    for event in events:
        cluster.step(event)
        assert cluster.counted <= cluster.ends
        assert cluster.ends - cluster.counted <= 1
    for event in ("no proof", "releases", "works", "works", "room", "works", "works", "works"):
        cluster.step(event)
    assert cluster.counted == cluster.ends
    assert cluster.job.status.phase == "Running"
    assert cluster.job.status.preemption is None or not cluster.job.status.preemption.by
