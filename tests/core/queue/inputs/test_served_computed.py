"""Which jobs have run since others last ended for them, computed victim by victim, whatever the order of the jobs."""

from datetime import datetime
from random import Random
from typing import Any

from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import moment
from dovetail.queue.inputs.preemption_candidates import served_jobs
from tests.operator_.builders import at, make_job
from tests.seeds import seeds

NAMES = "abcdefg"


def drawn(random: Random, name: str) -> GPUJob:
    """A job that ran at some times, and ended at others for one of those that wait."""

    def some() -> str:
        return at(-10 * random.randint(1, 9))

    status: dict[str, Any] = {"phase": "Queued"}
    if random.random() < 0.7:
        status["preemption"] = {
            "count": 1,
            "by": random.choice(["", "uid-a", "uid-a", "uid-b", "uid-gone", "Drain"]),
            "lastTime": random.choice([None, some(), some(), some()]),
            "at": random.choice([None, None, None, at(30)]),
        }
    attempt = {"number": 1, "reason": "Failed", "message": "", "counted": True, "endTime": at(0)}
    status["attempts"] = [{**attempt, "startTime": some()} for _ in range(random.choice([0, 0, 1, 2]))]
    if random.random() < 0.4:
        status |= {"admittedTime": some(), "earlierRunSeconds": random.choice([0, 60])}
    return make_job(name, status=status)


def served_by_itself(job: GPUJob, *, among: list[GPUJob]) -> bool:
    """Whether a run of the job is not older than any end for it."""
    ends = [
        moment(made.last_time)
        for each in among
        if (made := each.status.preemption) is not None
        and (made.by, made.at) == (job.metadata.uid, None)
        and made.last_time is not None
    ]
    return bool(ends) and any(all(run >= end for end in ends) for run in runs_of(job))


def runs_of(job: GPUJob) -> list[datetime]:
    """Times at which the job ran: the start of its last attempt, its own end for others, and before it was held."""
    status = job.status
    found = [] if not status.attempts else [status.attempts[-1].start_time]
    found += [] if status.preemption is None else [status.preemption.last_time]
    found += [status.admitted_time] if status.earlier_run_seconds else []
    return [moment(each) for each in found if each is not None]


@seeds(200)
def test_a_job_is_served_that_ran_after_every_end_for_it(seed: int) -> None:
    random = Random(seed)
    jobs = [drawn(random, name) for name in NAMES]
    want = {job.metadata.uid for job in jobs if served_by_itself(job, among=jobs)}
    for _ in range(3):
        assert served_jobs(jobs) == want
        random.shuffle(jobs)
