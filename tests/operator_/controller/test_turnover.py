"""The operator keeps nothing of jobs that are gone: its containers are as long after many jobs as after a few."""

from typing import Any

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.engine.ledger.node_table import LOG_LENGTH
from dovetail.kube.client import Client
from dovetail.names import LABEL_JOB
from dovetail_operator.queue.cycle import decide, survey
from tests.containers import items_by_attribute
from tests.core.kube.api import Api
from tests.operator_.builders import NOW, at, condition, make_child, make_job, make_pod, make_state
from tests.operator_.controller.test_controller import Rig
from tests.operator_.state.test_store import report

JOBS = 150
# Containers that drop their oldest items: the number that each may have.
BOUNDED = {"ChangeLog._touched": LOG_LENGTH}
# Nothing takes keys from the work queue here.
UNSERVED = {"WorkQueue._dirty", "WorkQueue._lanes"}


def job(number: int, **status: Any) -> GPUJob:
    meta = {"resourceVersion": str(100 + len(status))}
    return make_job(f"job-{number}", status={"number": number, **status}, meta=meta)


def child(number: int, **status: Any) -> Job:
    return make_child(job(number), uid=f"uid-child-{number}", status={"startTime": at(0), **status})


def pod(number: int, *, phase: str) -> Pod:
    meta = {"name": f"pod-{number}", "uid": f"uid-pod-{number}", "labels": {LABEL_JOB: f"job-{number}"}}
    return make_pod(node="a", devices=1, owner=f"uid-child-{number}", phase=phase, meta=meta)


def come_and_go(rig: Rig, *, first: int) -> None:
    """Let jobs wait, run, end and be deleted, one after the other."""
    changes = rig.controller.changes
    for number in range(first, first + JOBS):
        changes.job_event("ADDED", job(number))
        assert len(list(decide(rig.state, cycle=survey(rig.state, now=NOW)))) == 1
        changes.child_event("ADDED", child(number))
        changes.pod_event("ADDED", pod(number, phase="Running"))
        changes.gpunode_event("MODIFIED", report("a", devices=1, utilization=0.5))
        changes.job_event("MODIFIED", job(number, phase="Running"))
        assert not list(decide(rig.state, cycle=survey(rig.state, now=NOW)))
        changes.pod_event("MODIFIED", pod(number, phase="Succeeded"))
        ended, over = child(number, conditions=[condition("Complete")]), job(number, phase="Succeeded")
        changes.child_event("MODIFIED", ended)
        changes.job_event("MODIFIED", over)
        changes.pod_event("DELETED", pod(number, phase="Succeeded"))
        changes.child_event("DELETED", ended)
        changes.job_event("DELETED", over)


async def test_jobs_that_have_come_and_gone_leave_nothing(api: Api, client: Client) -> None:
    rig = Rig(api, client, make_state(a=1))
    come_and_go(rig, first=1)
    few = items_by_attribute(rig.controller)
    come_and_go(rig, first=1 + JOBS)
    many = items_by_attribute(rig.controller)
    grown = {name for name, count in many.items() if count >= few[name] + JOBS // 10} - UNSERVED
    assert {name for name in grown if many[name] > BOUNDED.get(name, 0)} == set()
    assert many["ChangeLog._touched"] > few["ChangeLog._touched"], "the containers of the ledger are counted too"
