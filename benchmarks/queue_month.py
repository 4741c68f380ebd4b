"""A month of a GPU cluster as published studies of real clusters describe it: users, their repeated works, run times,
sizes and limits. Each value has its source; none was chosen for its result. Except for the numbers of jobs, users and
GPUs, they are quoted from the papers from memory: check them before you cite them.

- Helios: Hu and others, Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters,
  2021.
- PAI: Weng and others, MLaaS in the Wild, 2022.
- Limits: Tsafrir, Etsion, Feitelson, Modeling User Runtime Estimates, 2005; Mu'alem, Feitelson, Utilization,
  Predictability, Workloads, and User Runtime Estimates in Scheduling the IBM SP2 with Backfilling, 2001.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from queue_workload import DAY, DEVICES, LIMITS, PRIORITIES, moment, submission

from dovetail.simulator.queue_replay import Submission

# Helios: 1.58 million GPU jobs in six months on 6,416 GPUs.
_JOBS_PER_GPU_AND_DAY: Final = 41 / 30
# PAI: 1,300 users of 6,742 GPUs. Zipf's law with this exponent gives the first 5 % of them half of it all, as in Helios
# (45 to 60 % of the GPU time; in PAI 77 % of the instances).
_GPUS_OF_A_USER: Final = 5.2
_ZIPF: Final = 1.3
# PAI: 65 % of the tasks are of works that ran five times or more: so with a geometric number of runs of this mean.
_RUNS_OF_A_WORK: Final = 1 / 0.24
# PAI: 78 % of run times are predicted to within 25 % from earlier runs of the same. So with 73 % that take as long as
# usual, give or take 10 %, and the others ending sometime before (Helios: 38 % of the jobs fail or are cancelled).
_SPREAD_OF_A_WORK: Final = 0.1
_CUT_SHORT: Final = 0.27
# Helios: a median of 206 s and a mean of 6,652 s, which for a lognormal is this spread. The load scales the median.
_SPREAD: Final = math.sqrt(2 * math.log(6652 / 206))
_LONGEST: Final = 4 * DAY
# Helios: more than half ask for one GPU, jobs of eight and more are few and take some 60 % of the GPU time.
_SIZES: Final = ((1, 1, 63), (1, 2, 13), (1, 4, 12), (1, 8, 8), (2, 8, 2.5), (4, 8, 1), (8, 8, 0.5))
LARGEST: Final = max(workers for workers, _, _ in _SIZES)
# Limits are round values, and of these the part that is needed is spread evenly (Mu'alem, Feitelson).
_PART_USED: Final = (0.05, 0.95)
# Between two runs of a work: no figure was found; many at once or within hours, some after days.
_GAP_SECONDS: Final = 1800.0
_GAP_SPREAD: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What one user runs repeatedly: its name, what it asks, how long it usually takes before scaling, which part
    of its limit that is, and its priority."""

    name: str
    workers: int
    gpus: int
    usual_seconds: float
    part_used: float
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One run of a work, and how long it takes before scaling."""

    work: _Work
    at_seconds: float
    seconds: float


def published(*, nodes: int, days: float, load: float, seed: int) -> list[Submission]:
    """The jobs of so many days. Run times are scaled so that all together need `load` of what the nodes have."""
    rng, gpus = Random(seed), nodes * DEVICES
    count = round(gpus * days * _JOBS_PER_GPU_AND_DAY)
    users = [1 / (at + 1) ** _ZIPF for at in range(max(1, round(gpus / _GPUS_OF_A_USER)))]
    runs: list[_Run] = []
    while len(runs) < count:
        user = rng.choices(range(len(users)), users)[0]
        work = _work(f"user-{user}-work-{len(runs)}", rng=rng)
        runs += _runs(work, begin=moment(rng, days=days), end=days * DAY, rng=rng)
    runs.sort(key=lambda run: run.at_seconds)
    scale = _scale(runs, gpu_seconds=load * gpus * days * DAY)
    return [_submitted(at, run, scale=scale) for at, run in enumerate(runs)]


def _work(name: str, *, rng: Random) -> _Work:
    workers, gpus, _ = rng.choices(_SIZES, [weight for *_, weight in _SIZES])[0]
    return _Work(
        name=name,
        workers=workers,
        gpus=gpus,
        usual_seconds=rng.lognormvariate(math.log(206), _SPREAD),
        part_used=rng.uniform(*_PART_USED),
        priority=rng.choices([each for each, _ in PRIORITIES], [weight for _, weight in PRIORITIES])[0],
    )


def _runs(work: _Work, *, begin: float, end: float, rng: Random) -> Iterator[_Run]:
    """The runs of one work that come before the end."""
    at = begin
    while at < end:
        part = rng.random() if rng.random() < _CUT_SHORT else rng.lognormvariate(0.0, _SPREAD_OF_A_WORK)
        yield _Run(work=work, at_seconds=at, seconds=work.usual_seconds * part)
        if rng.random() < 1 / _RUNS_OF_A_WORK:
            return
        at += rng.lognormvariate(math.log(_GAP_SECONDS), _GAP_SPREAD)


def _scale(runs: Sequence[_Run], *, gpu_seconds: float) -> float:
    """By how much run times have to be longer, so that all together need that: the longest are cut."""
    scale = 1.0
    for _ in range(50):
        needed = sum(run.work.workers * run.work.gpus * min(_LONGEST, run.seconds * scale) for run in runs)
        scale *= gpu_seconds / needed
    return scale


def _submitted(at: int, run: _Run, *, scale: float) -> Submission:
    usual = max(60.0, min(_LONGEST, run.work.usual_seconds * scale))
    limit = next((each for each in LIMITS if each >= usual / run.work.part_used), max(LIMITS))
    return submission(
        at,
        text=str(run.work.gpus),
        workers=run.work.workers,
        at_seconds=run.at_seconds,
        ran=min(limit, max(60.0, run.seconds * scale)),
        limit=limit,
        priority=run.work.priority,
        work=run.work.name,
    )
