"""What an event of a pod or a quota changes besides the ledger."""

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType
from dovetail_extender.cluster.event_handlers import EventHandlers
from dovetail_extender.decide.unschedulable import Waiting
from tests.extender.builders import make_pod
from tests.extender.desk import Desk


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
