"""Jobs over time for the queue's simulation: a generated month, and a trace with run times."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from random import Random

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.gpu.request import parse
from dovetail.queue.model.candidates import Candidate
from dovetail.simulator.queue_replay import Submission

DAY = 86_400.0
DEVICES = 8
# So many jobs of the trace came in its first four months, as many as in two days after that.
_SPARSE = 500
_BEGINNING = datetime(2026, 1, 5, tzinfo=UTC)
# Workers, GPUs of each, and how many of a hundred jobs: most are small, most GPU time goes to the few that are large.
_SIZES = ((1, 1, 60), (1, 2, 15), (1, 4, 12), (1, 8, 9), (2, 8, 3), (4, 8, 1))
# Nodes that the largest job takes.
LARGEST = max(workers for workers, _, _ in _SIZES)
_SHARES = (("0.5", 8), ("0.25", 4))
# Of repeated work: how many runs a work has on the average, and how far the logarithms of their run times spread.
_RUNS_OF_A_WORK = 20
_SPREAD_OF_A_WORK = 0.15
PRIORITIES = ((10, 85), (50, 12), (100, 3))
# Limits that people write: the next of these above what the job needs, and they ask for more than that.
LIMITS = [hours * 3600.0 for hours in (0.5, 1, 2, 4, 8, 12, 24, 48, 72, 96)]


def cluster(nodes: int, *, prefix: str = "node") -> Ledger:
    """Nodes with eight devices of one kind each."""
    ledger = Ledger()
    for at in range(nodes):
        name = f"{prefix}-{at:03d}"
        ledger.set_node(NodeFacts(name=name, cpu_milli=128_000, memory_mib=1_048_576))
        ledger.set_devices(
            name,
            devices=[
                DeviceFacts(index=index, uuid=f"{name}-{index}", model="V100", vendor="nvidia", memory_mib=32_768)
                for index in range(DEVICES)
            ],
        )
    return ledger


def gpus_of(submission: Submission) -> float:
    """GPUs that a job holds; a share counts as such."""
    gpu = submission.job.ask.gpu
    assert gpu is not None, "all jobs here ask GPUs"
    return submission.job.workers * gpu.count * gpu.share_milli / 1000


def synthetic(*, jobs: int, nodes: int, days: float, load: float, seed: int, repeated: float = 0.0) -> list[Submission]:
    """Jobs of a month: more by day and on weekdays, lognormal run times, limits above what is needed.

    Run times are scaled so that all jobs together need `load` of what the nodes have in that time. A share of them, of
    `repeated`, are runs of repeated works under one name: of the same size and limit, and nearly as
    long each time.
    """
    rng = Random(seed)
    works = _works([_drawn(rng) for _ in range(jobs)], repeated=repeated, rng=Random(seed + 1))
    needed = sum(work.gpus * work.seconds for work in works)
    scale = load * nodes * DEVICES * days * DAY / needed
    moments = sorted(moment(rng, days=days) for _ in range(jobs))
    found = []
    for at, (at_seconds, work) in enumerate(zip(moments, works, strict=True)):
        usual = min(3 * DAY, max(60.0, work.usual_seconds * scale))
        limit = next((each for each in LIMITS if each >= usual * (work.over or rng.uniform(1.1, 3.0))), LIMITS[-1])
        found.append(
            submission(
                at,
                text=work.text,
                workers=work.workers,
                at_seconds=at_seconds,
                ran=min(limit, max(60.0, min(3 * DAY, work.seconds * scale))),
                limit=limit,
                priority=rng.choices([each for each, _ in PRIORITIES], [weight for _, weight in PRIORITIES])[0],
                work=work.name,
            )
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One run of a work: what it asks, how long it takes this time and usually, before scaling; how many times what it
    needs its limit is, 0 where that is drawn for each run; and its name, empty where it runs once."""

    text: str
    workers: int
    gpus: float
    seconds: float
    usual_seconds: float
    over: float = 0.0
    name: str = ""


def _works(drawn: Sequence[tuple[str, int, float, float]], *, repeated: float, rng: Random) -> list[_Work]:
    """The jobs as drawn; but a share of them are runs of the first few instead, of which some come more often."""
    known = drawn[: max(1, len(drawn) // _RUNS_OF_A_WORK)]
    over = [rng.uniform(1.3, 3.0) for _ in known]
    often = [1 / (at + 1) for at in range(len(known))]
    found = []
    for each in drawn:
        if rng.random() >= repeated:
            text, workers, gpus, seconds = each
            found.append(_Work(text=text, workers=workers, gpus=gpus, seconds=seconds, usual_seconds=seconds))
            continue
        at = rng.choices(range(len(known)), often)[0]
        text, workers, gpus, usual = known[at]
        seconds = usual * rng.lognormvariate(0.0, _SPREAD_OF_A_WORK)
        found.append(
            _Work(
                text=text,
                workers=workers,
                gpus=gpus,
                seconds=seconds,
                usual_seconds=usual,
                over=over[at],
                name=f"work-{at}",
            )
        )
    return found


def _drawn(rng: Random) -> tuple[str, int, float, float]:
    """Request, workers, GPUs in all, and run time in seconds before scaling."""
    choices = [(str(gpus), workers, float(workers * gpus)) for workers, gpus, _ in _SIZES]
    choices += [(text, 1, float(text)) for text, _ in _SHARES]
    weights = [weight for *_, weight in _SIZES] + [weight for _, weight in _SHARES]
    text, workers, gpus = rng.choices(choices, weights)[0]
    return text, workers, gpus, rng.lognormvariate(math.log(2400), 1.6)


def moment(rng: Random, *, days: float) -> float:
    """When a job is submitted: more by day and on weekdays."""
    while True:
        at = rng.uniform(0, days * DAY)
        day, hour = int(at // DAY), at % DAY / 3600
        busy = (0.35 if day % 7 >= 5 else 1.0) * (0.55 - 0.45 * math.cos((hour - 3) / 24 * 2 * math.pi))
        if rng.random() < busy:
            return at


def traced(path: Path, *, jobs: int) -> list[Submission]:
    """The jobs of a trace that asked for GPUs, with their creation and their run time; limits as people set them.

    The trace begins with months in which hardly anything came: those jobs are left out.
    """
    rng = Random(1)
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if int(row["num_gpu"]) > 0 and row["deletion_time"]]
        # Pods that still ran when the trace ended have that as their end: their run time is unknown.
        end = max(float(row["deletion_time"]) for row in rows)
        ended = (row for row in rows if float(row["deletion_time"]) < end)
        ordered = sorted(ended, key=lambda row: float(row["creation_time"]))
        for at, row in enumerate(islice(ordered, _SPARSE, _SPARSE + jobs)):
            begin = float(row["scheduled_time"] or row["creation_time"])
            ran = max(60.0, float(row["deletion_time"]) - begin)
            whole = int(row["gpu_milli"]) >= 1000
            text = row["num_gpu"] if whole else f"{int(row['gpu_milli']) / 1000:g}"
            found.append(
                submission(
                    at,
                    text=text,
                    workers=1,
                    at_seconds=float(row["creation_time"]),
                    ran=ran,
                    limit=ran * rng.uniform(1.1, 3.0),
                    priority=10,
                )
            )
    return found


def nodes_for(submissions: list[Submission], *, load: float) -> int:
    """How many nodes the jobs fill to `load` in the time in which they are submitted."""
    begin, end = submissions[0].at_seconds, submissions[-1].at_seconds
    # What a job holds beyond the last submission is not offered in that time.
    needed = sum(gpus_of(each) * min(each.ran_seconds, max(0.0, end - each.at_seconds)) for each in submissions)
    return max(1, round(needed / (end - begin) / DEVICES / load))


def submission(
    at: int, *, text: str, workers: int, at_seconds: float, ran: float, limit: float, priority: int, work: str = ""
) -> Submission:
    request = parse(text)
    name = f"bench/{work or f'job-{at:06d}'}-{at:06d}"
    return Submission(
        job=Candidate(
            key=f"uid-{at:06d}",
            ask=Ask(gpu=request, mode="Exclusive" if request.whole else "Fractional", policy="Balanced"),
            workers=workers,
            priority=priority,
            created=(_BEGINNING + timedelta(seconds=at_seconds)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            name=name,
            run_seconds=limit,
            limited=True,
        ),
        at_seconds=at_seconds,
        ran_seconds=ran,
    )
