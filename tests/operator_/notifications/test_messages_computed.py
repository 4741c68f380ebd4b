"""What is told of a job, computed again from its status: which changes, in which order, and what a message says."""

from random import Random
from typing import Any

import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail_operator.notifications.messages import MOST_NOTED, Change, due, letter, noted
from tests.operator_.builders import at, make_job

EVENTS = ["Started", "Succeeded", "Failed", "TimedOut", "Cancelled", "Preempted"]
ENDS = EVENTS[1:5]
BEFORE, START, AFTER, END = at(-500), at(-400), at(-300), at(-100)


def drawn(random: Random) -> tuple[GPUJob, dict[str, Any]]:
    """A job at some moment, and its status."""
    status: dict[str, Any] = {"phase": random.choice(["Queued", "Running", *ENDS]), "attempt": random.choice([1, 2])}
    if status["phase"] != "Queued" or random.random() < 0.5:
        status["startTime"] = START
    if random.random() < 0.5:
        last = random.choice([None, BEFORE, AFTER])
        status["preemption"] = {
            "count": random.choice([1, 2]),
            "lastTime": last,
            "message": "it made way",
            "by": "uid-y",
        }
    if status["phase"] in ENDS:
        status |= {
            "completionTime": END,
            "reason": random.choice(["", "Error"]),
            "message": random.choice(["", "it broke"]),
        }
    status |= {"request": "2(V100)", "nodes": ["n1", "n2"], "number": random.choice([None, 7])}
    status = {name: value for name, value in status.items() if value is not None}
    status["notified"] = random.sample(["Started/1.0", "Started/2.0", "Started/1.1", "Preempted/1", "Failed"], k=2)
    events = random.choice([None, [], random.sample(EVENTS, k=3)])
    notify = {"emails": ["a@x.org", "b@x.org"]} | ({} if events is None else {"events": events})
    labels = {names.LABEL_PROJECT: "p"} | ({names.LABEL_ARRAY: "a"} if random.random() < 0.1 else {})
    job = make_job("x\ty", status=status, meta={"labels": labels, "annotations": {names.USER: "ada"}}, notify=notify)
    return job, status


def expected(job: GPUJob, *, status: dict[str, Any]) -> list[Change]:
    """An end for others is told before the start that follows it, and the end last; each once."""
    made = status.get("preemption", {"count": 0, "lastTime": None})
    found = [("Preempted", f"Preempted/{made['count']}")] if made["count"] else []
    if "startTime" in status and made["lastTime"] != AFTER:
        found.append(("Started", f"Started/{status['attempt']}.{made['count']}"))
    if status["phase"] in ENDS:
        found.append((status["phase"], status["phase"]))
    assert job.spec.notify is not None
    wanted = job.spec.notify.events or ENDS
    is_told = names.LABEL_ARRAY not in job.metadata.labels
    return [
        Change(event=event, key=key)
        for event, key in found
        if is_told and event in wanted and key not in status["notified"]
    ]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_told_of_a_job_is_what_its_status_shows_and_was_not_told_yet(seed: int) -> None:
    random = Random(seed)
    for _ in range(30):
        job, status = drawn(random)
        found = due(job)
        assert found == expected(job, status=status)
        assert noted(job, changes=found) == [*status["notified"], *(change.key for change in found)]
        for change in found:
            look_at(job, change=change, status=status)


def look_at(job: GPUJob, *, change: Change, status: dict[str, Any]) -> None:
    """The message about one change."""
    told = letter(job, change=change)
    assert (told.id, told.to) == (f"uid-x\ty/{change.key}", ["a@x.org", "b@x.org"])
    assert told.subject.startswith(f"Job {status['number']} (x y) " if "number" in status else "Job (x y) ")
    reason = {"Started": "", "Succeeded": "", "Preempted": "it made way"}.get(
        change.event, ": ".join(filter(None, [status.get("reason", ""), status.get("message", "")]))
    )
    lines = dict(line.split(":", 1) for line in told.text.splitlines() if ":" in line)
    rows = {name: value.strip() for name, value in lines.items()}
    assert rows.get("Reason", "") == reason
    assert (rows["State"], rows["GPUs"], rows["Nodes"], rows["User"]) == (change.event, "2(V100)", "n1, n2", "ada")
    assert (rows.get("Started"), rows.get("Ended")) == (status.get("startTime"), status.get("completionTime"))
    assert rows.get("Run time") == ("5m" if {"startTime", "completionTime"} <= status.keys() else None)
    facts = told.facts
    assert (facts["event"], facts["reason"], facts["attempt"]) == (change.event, reason, status["attempt"])
    assert (facts["startTime"], facts["completionTime"]) == (status.get("startTime"), status.get("completionTime"))
    assert (facts["namespace"], facts["name"], facts["project"]) == ("team", "x\ty", "p")


def test_of_very_many_changes_the_last_ones_are_noted() -> None:
    job = make_job(status={"phase": "Running", "notified": [f"Preempted/{at}" for at in range(MOST_NOTED)]})
    found = noted(job, changes=[Change(event="Preempted", key="Preempted/99")])
    assert found == [*(f"Preempted/{at}" for at in range(1, MOST_NOTED)), "Preempted/99"]


def test_the_run_of_a_job_that_was_held_ended_when_it_was_held() -> None:
    held = {"type": "Suspended", "status": "True", "lastTransitionTime": AFTER, "reason": "Held", "message": ""}
    status = {"phase": "Cancelled", "startTime": START, "completionTime": END, "conditions": [held]}
    job = make_job(status=status, notify={"emails": ["a@x.org"]})
    assert "Run time:  100s" in letter(job, change=Change(event="Cancelled", key="Cancelled")).text
