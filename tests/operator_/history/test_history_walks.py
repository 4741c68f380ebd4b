"""Records over a walk of jobs, with a database that fails and operators that are killed: each end is recorded once.

Jobs of two namespaces with the same names begin, run again, end, go and come again, sometimes while no operator looks.
In the end every job that has ended or was deleted has one final record that says how, what is counted is what is
stored, and nothing is kept of deleted jobs.
"""

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob, is_finished
from dovetail.api.historyquery import HistoryQuerySpec, JobRecord
from dovetail.kube.client import Client
from dovetail_operator.history.store import HistoryError, HistoryStore
from dovetail_operator.state.due_records import Dues
from tests.background import eventually
from tests.core.kube.api import Answer, Api
from tests.operator_.builders import at, make_job
from tests.operator_.history.test_history import Keeping

ENDS = ("Succeeded", "Failed", "TimedOut", "Cancelled")
NAMESPACES = ("team", "lab")


class Flaky(HistoryStore):
    """A database that is away at random, before or after it has written."""

    rng: random.Random
    dues: Dues
    is_well = True
    # Jobs that may be deleted by their time to live although no final record of theirs is written.
    too_early: set[str]

    def _fails(self) -> bool:
        return not self.is_well and self.rng.random() < 0.3

    def write(self, records: Any) -> list[JobRecord]:
        if self._fails():
            raise HistoryError("here", problem="away")
        written = super().write(records)
        if self._fails():
            raise HistoryError("here", problem="the answer is lost")
        return written

    def final(self, uids: Any) -> set[str]:
        kept = self.dues._kept & set(uids)
        found = super().final(uids)
        self.too_early |= kept - found
        if self._fails():
            raise HistoryError("here", problem="away")
        return found


class Walk:
    """Jobs on the API server, and the operator that looks at them, if one does."""

    def __init__(self, seed: int, *, client: Client, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.client = client
        self.url = f"sqlite:///{folder}/history.db"
        self.jobs: dict[str, GPUJob] = {}
        # The phase that each job's record has to say.
        self.ends: dict[str, str] = {}
        # The jobs that have begun and not ended in the database that an operator has left.
        self.unfinished: set[str] = set()
        self.final: set[str] = set()
        self.keeping: Keeping | None = None
        self.version = 0
        self.counted = 0.0

    def put(self, key: str, job: GPUJob) -> None:
        self.version += 1
        meta = msgspec.structs.replace(job.metadata, resource_version=str(self.version))
        self.jobs[key] = job = msgspec.structs.replace(job, metadata=meta)
        if self.keeping is not None:
            self.keeping.state.store.job_changed(job)
            self.noticed(job)

    def noticed(self, job: GPUJob) -> None:
        if is_finished(job):
            self.ends.setdefault(job.metadata.uid, job.status.phase)

    def step(self) -> None:
        namespace, name = self.rng.choice(NAMESPACES), self.rng.choice("xy")
        key = f"{namespace}/{name}"
        job = self.jobs.get(key)
        if job is None:
            uid = f"uid-{key}-{self.version}"
            meta = {"namespace": namespace, "uid": uid, "annotations": {"dovetail.dev/user": self.rng.choice("ab")}}
            self.put(key, make_job(name, meta=meta, status={"phase": "Queued"}))
            return
        phase = job.status.phase
        match self.rng.choice(["go on", "go on", "delete", "touch", "again"]):
            case "delete":
                self.delete(key)
            case "go on" if phase == "Queued":
                self.put(key, changed(job, phase="Running", start_time=at(-60), gpus=1))
            case "go on" if phase == "Running":
                self.put(key, changed(job, phase=self.rng.choice(ENDS), completion_time=at(0)))
            case "again" if phase == "Running":
                self.put(key, changed(job, phase="Queued", start_time=None, attempt=job.status.attempt + 1))
            case _:
                self.put(key, changed(job, message=str(self.version)))

    def delete(self, key: str) -> None:
        job = self.jobs.pop(key)
        uid = job.metadata.uid
        if self.keeping is not None:
            self.keeping.state.store.job_deleted(key, uid=uid)
            self.ends.setdefault(uid, "Cancelled")
        else:
            self.gone_unseen(uid)

    def gone_unseen(self, uid: str) -> None:
        """A job that no operator has seen go: its end is known if it was written, and its beginning ends it."""
        if uid in self.unfinished:
            self.ends[uid] = "Cancelled"
        elif uid not in self.final:
            self.ends.pop(uid, None)

    # --- operators ---------------------------------------------------------------------------------------------

    async def begin(self, stack: AsyncExitStack) -> None:
        store = Flaky(self.url)
        store.rng, store.too_early = self.rng, set()
        self.keeping = Keeping(self.client, store)
        store.dues = self.keeping.dues
        for job in self.jobs.values():
            self.keeping.state.store.job_changed(job)
            self.noticed(job)
        await stack.enter_async_context(self.keeping.running())
        await self.keeping.history.synced.wait()
        assert self.keeping.history._used._used == store.used(), "jobs that went unseen count too"
        store.is_well = False

    def killed(self) -> None:
        """What the operator has not written of deleted jobs is lost with it."""
        self.keeping = None
        store = HistoryStore(self.url)
        store.open()
        self.unfinished = {each.uid for each in store.unfinished()}
        self.final = store.final(sorted(self.ends))
        store.close()
        for uid in sorted(self.ends.keys() - {job.metadata.uid for job in self.jobs.values()}):
            self.gone_unseen(uid)

    def until_written(self) -> Any:
        keeping = self.keeping
        assert keeping is not None
        store = keeping.history.store
        assert isinstance(store, Flaky)
        store.is_well = True
        assert not store.too_early
        return eventually(
            lambda: (
                not keeping.dues._due
                and not keeping.history._changed.is_set()
                and all(keeping.dues.is_kept(job) for job in self.jobs.values() if is_finished(job))
            )
        )

    def records(self) -> dict[str, JobRecord]:
        assert self.keeping is not None
        question = HistoryQuerySpec(limit=500)
        found = [each for name in NAMESPACES for each in self.keeping.history.store.find(name, question=question)[0]]
        assert len({each.uid for each in found}) == len(found)
        return {each.uid: each for each in found}


def changed(job: GPUJob, **status: Any) -> GPUJob:
    return msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, **status))


@pytest.mark.parametrize("seed", range(6))
async def test_each_end_has_one_record_that_says_how_it_was(
    seed: int, api: Api, client: Client, tmp_path: Path
) -> None:
    for name in NAMESPACES:
        there = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}}
        api.answer(f"GET /api/v1/namespaces/{name}", *[Answer(body=there)] * 500)
    walk = Walk(seed, client=client, folder=tmp_path)
    for _ in range(3):
        async with AsyncExitStack() as stack:
            await walk.begin(stack)
            for _ in range(25):
                walk.step()
                if walk.rng.random() < 0.3:
                    await asyncio.sleep(0.001)
            # It is killed in the middle, or has written all.
            if walk.rng.random() < 0.5:
                await walk.until_written()
        walk.killed()
        for _ in range(walk.rng.choice([0, 3])):
            walk.step()
    async with AsyncExitStack() as stack:
        await walk.begin(stack)
        for key in list(walk.jobs):
            walk.delete(key)
        await walk.until_written()
        keeping = walk.keeping
        assert keeping is not None
        await eventually(lambda: walk.ends.keys() <= walk.records().keys())
        found = walk.records()
        assert {uid: found[uid].phase for uid in walk.ends} == walk.ends
        await eventually(lambda: keeping.history._used._used == pytest.approx(dict(keeping.history.store.used())))
        assert [each for each in vars(keeping.dues).values() if isinstance(each, dict | set) and each] == []
