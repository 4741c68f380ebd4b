"""Kueue's part: it lets the Jobs of its queues go within a quota of its own, and suspends those that it takes back."""

from dovetail import names
from tests.world.api import ApiServer, Values


class Kueue:
    """`most_milli` is its quota, in thousandths of a GPU. The oldest are admitted first and taken back last."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.most_milli = 0
        # The UIDs of the Jobs that it lets run.
        self.admitted: list[str] = []

    def step(self) -> None:
        """Look once at all Jobs."""
        jobs = {job["metadata"]["uid"]: job for job in self._server.all("jobs") if _queue_of(job) and not _is_over(job)}
        # Who suspends an admitted Job gives its place up.
        self.admitted = [uid for uid in self.admitted if uid in jobs and not jobs[uid]["spec"].get("suspend")]
        while self.admitted and sum(_milli(jobs[uid]) for uid in self.admitted) > self.most_milli:
            self._suspend(jobs[self.admitted.pop()], suspend=True)
        for uid, job in jobs.items():
            used = sum(_milli(jobs[each]) for each in self.admitted)
            if uid not in self.admitted and job["spec"].get("suspend") and used + _milli(job) <= self.most_milli:
                self.admitted.append(uid)
                self._suspend(job, suspend=False)

    def check(self, job: Values) -> None:
        """Assert that nobody else lets a Job of its queues go."""
        meta = job["metadata"]
        if _queue_of(job) and not _is_over(job) and not job["spec"].get("suspend"):
            assert meta["uid"] in self.admitted, f"{meta['name']} runs, and Kueue has not admitted it"

    def _suspend(self, job: Values, *, suspend: bool) -> None:
        key = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        self._server.change("jobs", key, lambda each: each["spec"].update(suspend=suspend))


def _queue_of(job: Values) -> str:
    return str(job["metadata"].get("labels", {}).get(names.KUEUE_QUEUE, ""))


def _is_over(job: Values) -> bool:
    return bool(job.get("status", {}).get("conditions"))


def _milli(job: Values) -> int:
    template = job["spec"]["template"]
    limits = template["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return int(job["spec"]["parallelism"]) * int(limits.get(names.GPU_MILLI, 0))
