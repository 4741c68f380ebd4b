"""Plans keep nothing of jobs and pods that are gone, in whichever order they go."""

from typing import Any

import pytest

from tests.extender.builders import make_bound, make_pod
from tests.extender.desk import Desk
from tests.extender.holds.test_planned_holds import forged
from tests.extender.holds.test_planned_workers import make_job, make_worker, waiting_for

JOBS = 50


def kept(desk: Desk) -> dict[str, Any]:
    """The containers of the plans that are not empty."""
    return {name: value for name, value in vars(desk.plans).items() if isinstance(value, dict) and value}


@pytest.mark.parametrize(
    "order",
    [
        "job seen, pod bound, pod ended, pod gone, job gone",
        "job seen, pod bound, pod ended, job gone, pod gone",
        "job seen, pod bound, job gone, pod ended, pod gone",
        "pod bound, job seen, pod ended, pod gone, job gone",
        "pod bound, pod ended, job seen, job gone, pod gone",
        "job seen, pod bound, planned again, pod ended, pod gone, job gone",
    ],
)
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_jobs_that_have_come_and_gone_leave_nothing(order: str, phase: str) -> None:
    desk = Desk(a=8)
    for number in range(JOBS):
        name = f"job-{number}"
        pod, job = make_worker(job=name), make_job(("a", 1), name=name)
        for step in order.split(", "):
            match step:
                case "job seen":
                    desk.put_job(job)
                case "planned again":
                    desk.put_job(make_job(("a", 1), name=name, generation=2))
                case "pod bound":
                    desk.put(pod, node="a", phase="Running")
                case "pod ended":
                    desk.put(pod, node="a", phase=phase)
                case "pod gone":
                    desk.delete(desk.pods[pod["metadata"]["uid"]])
                case "job gone":
                    desk.delete_job(job)
    assert kept(desk) == {}
    assert desk.ledger.claims() == []


def test_a_pod_that_only_names_a_plan_leaves_nothing_though_the_job_stays() -> None:
    desk = Desk(a=8)
    desk.put_job(make_job(("a", 1)))
    before = {name: len(value) for name, value in kept(desk).items()}
    desk.put(forged("no owner"), node="a", phase="Succeeded")
    assert {name: len(value) for name, value in kept(desk).items()} != before
    desk.delete(desk.pods["uid-train-1"])
    assert {name: len(value) for name, value in kept(desk).items()} == before


def test_room_that_is_left_is_kept_on_the_nodes_that_the_operator_named_last() -> None:
    desk = Desk(a=1, b=1)
    there = [desk.put(make_bound(make_pod(f"on-{node}"), node=node)) for node in ("a", "b")]
    for node in ("a", "b"):
        # Nothing is free there yet: what is kept is nothing, both times.
        job = waiting_for((node, []))
        job["status"]["queue"]["reserved"]["kept"] = []
        desk.put_job(job)
    for pod in there:
        desk.delete(pod)
    assert desk.held("job-large/left/uid-on-a/0", "job-large/left/uid-on-b/0") == ["", "b"]
