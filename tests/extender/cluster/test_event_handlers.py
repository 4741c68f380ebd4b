"""What an event of a pod, a job or a quota changes besides the ledger."""

from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType
from dovetail.pods.tenancy import DEFAULT_PRIORITY
from dovetail_extender.cluster.event_handlers import EventHandlers
from dovetail_extender.decide.unschedulable import Waiting
from dovetail_extender.holds.planned_workers import PlannedJob
from tests.extender.builders import make_bound, make_pod
from tests.extender.desk import Desk
from tests.extender.holds.test_planned_workers import make_job, make_worker


@pytest.mark.parametrize(
    ("event", "node", "left"),
    [("MODIFIED", "", 1), ("MODIFIED", "a", 0), ("DELETED", "", 0)],
    ids=["it still waits", "it is bound", "it is deleted"],
)
def test_a_refused_pod_is_woken_only_while_it_waits(event: EventType, node: str, left: int) -> None:
    desk = Desk(a=1)
    waiting = Waiting(ledger=desk.ledger, clock=desk.clock)
    handlers = EventHandlers(decisions=desk.decisions, waiting=waiting)
    pod = msgspec.convert(make_pod(nodeName=node), Pod)
    ask = desk.decisions.ask(pod)
    assert ask is not None
    waiting.refused(pod.metadata.uid, ask=ask, nodes=["a"])
    handlers.pod_event(event, pod)
    assert len(waiting) == left


def test_what_a_deleted_quota_kept_free_is_free() -> None:
    desk = Desk(a=1)
    waiting = Waiting(ledger=desk.ledger, clock=desk.clock)
    handlers = EventHandlers(decisions=desk.decisions, waiting=waiting)
    kept = {"kept": [{"name": "a", "keeps": ["1"]}]}
    quota = msgspec.convert({"metadata": {"name": "q"}, "spec": {}, "status": kept}, GPUQuota)
    handlers.quota_event("ADDED", quota)
    assert [desk.ledger.is_hold(claim.key) for claim in desk.ledger.claims_on("a")] == [True]
    handlers.quota_event("DELETED", quota)
    assert list(desk.ledger.claims_on("a")) == []


class Handled(Desk):
    """A desk whose quotas, tenancies and holds know only what the handlers passed on."""

    def __init__(self, **gpus: int) -> None:
        super().__init__(**gpus)
        waiting = Waiting(ledger=self.ledger, clock=self.clock)
        self.handlers = EventHandlers(decisions=self.decisions, waiting=waiting)

    def quota(self, event: EventType, **spec: Any) -> None:
        self.handlers.quota_event(event, msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, GPUQuota))

    def job(self, event: EventType, made: dict[str, Any]) -> None:
        self.handlers.job_event(event, msgspec.convert(made, PlannedJob))

    def pod(self, event: EventType, made: dict[str, Any]) -> None:
        seen = msgspec.convert(made, Pod)
        (self.view.pod_gone if event == "DELETED" else self.view.pod_changed)(seen)
        self.handlers.pod_event(event, seen)

    def is_within_quotas(self, made: dict[str, Any]) -> bool:
        return self.decisions.quotas.refusal(msgspec.convert(made, Pod), ask=self.ask(made)) is None


def test_every_worker_that_is_planned_counts_against_quotas_until_its_job_is_gone() -> None:
    desk = Handled(a=8)
    desk.quota("ADDED", limit={"gpus": 3})
    job = make_job(("a", 2), gpu="1")
    desk.job("ADDED", job)
    assert [desk.is_within_quotas(make_pod("p", gpu, milli=1000 * int(gpu))) for gpu in "12"] == [True, False]
    desk.job("DELETED", job)
    assert desk.is_within_quotas(make_pod("p", "3", milli=3000))


def test_a_bound_pod_counts_against_quotas_until_it_is_gone() -> None:
    desk = Handled(a=8)
    desk.quota("ADDED", limit={"gpus": 1})
    pod = make_bound(make_pod("other"), node="a")
    desk.pod("ADDED", pod)
    assert not desk.is_within_quotas(make_pod())
    desk.pod("DELETED", pod)
    assert desk.is_within_quotas(make_pod())


def test_a_quota_bounds_the_weight_of_pods_until_it_is_gone() -> None:
    desk = Handled(a=8)
    job = make_job(("a", 1)) | {"spec": {"priority": 200}}
    desk.job("ADDED", job)
    worker = msgspec.convert(make_worker(), Pod)
    desk.quota("ADDED", maxPriority=5)
    assert desk.decisions.tenancies.tenancy(worker).priority == 5
    desk.quota("DELETED", maxPriority=5)
    assert desk.decisions.tenancies.tenancy(worker).priority == 200
    desk.job("DELETED", job)
    assert desk.decisions.tenancies.tenancy(worker).priority == DEFAULT_PRIORITY


def test_a_job_s_plan_and_a_nominated_pod_hold_room_until_they_are_gone() -> None:
    desk = Handled(a=8)
    job, pod = make_job(("a", 1)), make_pod()
    nominated = pod | {"status": pod["status"] | {"nominatedNodeName": "a"}}
    desk.job("ADDED", job)
    desk.pod("ADDED", nominated)
    assert desk.held("job-train/0", "uid-p") == ["a", "a"]
    desk.job("DELETED", job)
    desk.pod("DELETED", nominated)
    assert desk.held("job-train/0", "uid-p") == ["", ""]
