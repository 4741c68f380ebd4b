"""What the queue sees of a job at each moment of its life, and what runs of it, computed again from its parts."""

from random import Random
from typing import Any

import pytest

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.engine.model.claims import Claim
from dovetail.queue.inputs.at_work import AtWork, at_work
from dovetail.queue.inputs.entries import entry_of
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.verdicts import Admitted
from tests.core.engine.builders import make_ask
from tests.operator_.builders import NOW, at, condition, make_child, make_job, make_pod

ASK = make_ask("1")
CPU_AFTER, WAITED = 300.0, 100.0


class Facts:
    """Where the facts about one job come from: each is given."""

    def __init__(self, **given: Any) -> None:
        self.work: AtWork | None = given["work"]
        self.due: bool = given["due"]
        self.admitted: Admitted | None = given["admitted"]
        self.readable: bool = given["readable"]

    def work_of(self, _job: GPUJob) -> AtWork | None:
        return self.work

    def is_due(self, _job: GPUJob) -> bool:
        assert self.work is None, "a job at work is not asked"
        return self.due

    def child_of(self, _job: GPUJob) -> Job | None:
        return None

    def admission_of(self, _job: GPUJob) -> Admitted | None:
        return self.admitted

    def candidate(
        self, job: GPUJob, *, workers: int, nodes: tuple[str, ...] = (), waits: bool = False
    ) -> Candidate | None:
        if not self.readable:
            return None
        after = CPU_AFTER if waits else None
        return Candidate(
            key=job.metadata.uid, name="team/x", ask=ASK, workers=workers, nodes=nodes, cpu_in_seconds=after
        )


def drawn_job(random: Random) -> tuple[GPUJob, int]:
    workers = random.randint(1, 4)
    spec = {"workers": workers} | ({"minWorkers": 1} if random.random() < 0.5 else {})
    status = {"phase": "Queued", "gpuWaitStartTime": at(-WAITED)}
    return make_job(status=status, **spec), workers


@pytest.mark.parametrize("seed", range(6))
def test_a_job_is_at_work_or_held_back_or_waits_or_is_on_its_way(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        look(random)


def look(random: Random) -> None:
    job, workers = drawn_job(random)
    starts_with = random.randint(1, workers) if job.spec.min_workers else workers
    claims = tuple(Claim(key=str(each), node=f"n{each // 2}", unnamed=1) for each in range(starts_with))
    on_cpu = random.random() < 0.3
    admitted = Admitted(key="uid-x", claims=() if on_cpu else claims, ask=None if on_cpu else ASK)
    missing = random.choice([0, 1, 2])
    child = make_child(job)
    run = RunTimes().run_of(job, child=child, pods=())
    nodes = ("n7",) * missing
    work = AtWork(job=job, child=child, pods=(), run=run, workers=missing, nodes=nodes, refused=False)
    given: dict[str, Any] = {
        "work": random.choice([None, None, None, work]), "due": random.random() < 0.8,
        "admitted": random.choice([None, admitted]), "readable": random.random() < 0.9,
    }  # fmt: skip
    found = entry_of(job, source=Facts(**given), now=NOW)
    if given["work"] is not None:
        assert found is not None
        assert (found.work, found.waits) == (work, False)
        assert (found.candidate is not None) == (missing > 0 and given["readable"])
        if found.candidate is not None:
            assert (found.candidate.workers, found.candidate.nodes) == (missing, work.nodes)
    elif not (given["due"] and given["readable"]):
        assert found is None
    else:
        assert found is not None
        assert found.candidate is not None
        assert found.waits == (given["admitted"] is None)
        is_sized = given["admitted"] is not None and not on_cpu
        assert found.candidate.workers == (starts_with if is_sized else workers)
        assert found.candidate.nodes == (tuple(claim.node for claim in claims) if is_sized else ())
        assert found.candidate.cpu_in_seconds == CPU_AFTER - WAITED


@pytest.mark.parametrize("seed", range(6))
def test_the_workers_without_a_node_go_where_the_plan_says(seed: int) -> None:
    random = Random(seed)
    for _ in range(30):
        workers = random.randint(1, 4)
        nodes = [f"n{random.randrange(3)}" for _ in range(workers)]
        planned = [{"name": node, "workers": 1} for node in nodes]
        placement = random.choice([None, {"generation": 1, "worker": {"request": "1"}, "nodes": planned}])
        status = {"phase": "Running", "startTime": at(-60)} | ({"placement": placement} if placement else {})
        job = make_job(status=status, workers=workers)
        pods, waits, refused = list[Pod](), list[int](), False
        for worker in range(workers):
            state = random.choice(["bound", "bound", "waits", "refused", "none"])
            if state == "bound":
                pods.append(make_pod(worker, node=nodes[worker], created=worker))
                continue
            waits.append(worker)
            refused |= state == "refused"
            if state != "none":
                why = condition("PodScheduled", status="False", reason="Unschedulable") if state == "refused" else None
                pods.append(
                    make_pod(worker, node="", phase="Pending", created=worker, conditions=[why] if why else None)
                )
        found = at_work(job, child=make_child(job), pods=pods, run_times=RunTimes())
        assert found.workers == len(waits)
        assert found.nodes == (tuple(nodes[worker] for worker in waits) if placement else ())
        assert found.refused == (refused and placement is not None)
        assert (found.job, list(found.pods)) == (job, pods)
