"""Where a job runs, or why it does not, in one text; and how long it has run."""

from dovetail.api.meta import Condition
from dovetail.jobs.runs import run_seconds
from dovetail.query.jobs.places import place_or_reason
from tests.cli.builders import NOW, ago, make_job


def test_the_place_is_the_devices_by_node() -> None:
    job = make_job(phase="Running", devices=[("b", 3), ("a", 1)])
    assert place_or_reason(job) == "a:1 b:3"


def test_without_a_place_it_is_the_reason() -> None:
    waits = make_job(phase="Queued", reason="Resources", message="Need 4 GPUs, only 1 available")
    assert place_or_reason(waits) == "(Resources: Need 4 GPUs, only 1 available)"
    assert place_or_reason(make_job("new")) == "(Evaluating: no operator has seen it yet)"


def test_a_job_without_the_gpus_that_it_requests_says_so() -> None:
    runs = make_job(phase="Running", nodes=["a"], device="cpu", request="2")
    assert place_or_reason(runs) == "a (CPU)"
    asked_so = make_job(phase="Running", nodes=["a"], device="cpu", request="cpu")
    assert place_or_reason(asked_so) == "a"


def test_the_place_of_a_simulated_job_says_that_it_is_simulated() -> None:
    running = {"phase": "Running", "devices": [("a", 1, 1000)]}
    assert place_or_reason(make_job(**running, simulated=True)) == "a:1 (simulated)"
    assert place_or_reason(make_job(**running)) == "a:1"
    assert place_or_reason(make_job(phase="Succeeded", nodes=["a"], simulated=True)) == "a (simulated)"


def test_the_run_time_of_a_suspended_job_does_not_grow() -> None:
    held = Condition(type="Suspended", status="True", reason="", message="", last_transition_time=ago(minutes=50))
    job = make_job(phase="Suspended", start_time=ago(hours=1), conditions=[held])
    assert run_seconds(job.status, now=NOW) == 600
