"""Jobs of a virtual cluster of Microsoft's Philly: read from a table of that trace, or drawn in its shape.

The trace: Jeon and others, Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads, 2019. As a
table (a row for each job: its time, seconds, GPUs and virtual cluster) it has 82,247 jobs of 15 virtual clusters from
4 September to 22 December 2017, 978,078 GPU hours, 1 to 128 GPUs a job, and run times with a median of 1,144 s and a
mean of 13,136 s (counted). The table is not part of this repository. It has no time limits: see `LIMITS_BY`.
"""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from statistics import NormalDist, median
from typing import Final

from queue_workload import DAY, DEVICES, LIMITS, moment, submission

from dovetail.queue.model.candidates import Candidate
from dovetail.simulator.queue_replay import Submission

_MEDIAN_SECONDS: Final = 1_144.0
_MEAN_SECONDS: Final = 13_136.0
_SPREAD: Final = math.sqrt(2 * math.log(_MEAN_SECONDS / _MEDIAN_SECONDS))
_LEAST_SECONDS: Final = 60.0
_LONGEST_SECONDS: Final = 30 * DAY
# GPUs of a job, and how many of a thousand jobs. Of the paper: most jobs have one GPU, and those of more than
# eight are few (figures 2 and 3); the parts are read off by eye.
_SIZES: Final = ((1, 790), (2, 80), (4, 65), (8, 50), (16, 12), (32, 3))
# Jobs of more GPUs run longer (figure 2): the median grows with this power of the GPUs.
_LONGER: Final = 0.35
# The parts of the spread between works, and between the runs of one.
_OF_WORKS: Final = 0.8
_OF_RUNS: Final = 0.6
# The same person submits the same thing a few times within hours: a geometric number of runs of this mean.
_RUNS_OF_A_WORK: Final = 3.0
_GAP_SECONDS: Final = 5_400.0
# A smaller part of a distribution is taken to be evenly spread.
_LEAST_PART: Final = 1e-7
_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "time": ("timestamp", "submitted_time", "time"),
    "seconds": ("duration",),
    "gpus": ("num_gpus",),
    "cluster": ("vc", "virtual_cluster", "virtual_cluster_id"),
}


def _close(ran: float, rng: Random) -> float:
    return ran * rng.uniform(1.1, 3.0)


def _round(ran: float, _rng: Random) -> float:
    """The next limit that people write above twice the run."""
    return next((each for each in LIMITS if each >= 2 * ran), max(LIMITS[-1], 2 * ran))


# How time limits are made for a trace that has none.
LIMITS_BY: Final[Mapping[str, Callable[[float, Random], float]]] = {"close": _close, "round": _round}


def loaded(
    path: Path, *, cluster: str, jobs: int, skip: int = 0, limits: str = "round", seed: int = 1
) -> list[Submission]:
    """A window of a virtual cluster's jobs, in the order of their submission.

    `cluster` is the beginning of its name. Jobs of more than 8 GPUs are gangs of 8. Raises `ValueError` where the table
    lacks a column, a row cannot be read, or no job is left.
    """
    with path.open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        found = {what: _column(what, names=table.fieldnames or (), path=path) for what in _COLUMNS}
        rows = [row for row in table if (row[found["cluster"]] or "").startswith(cluster)]
    read = sorted(_read(row, columns=found, path=path) for row in rows)
    window = [each for each in read if each[1] >= _LEAST_SECONDS and each[2] > 0][skip : skip + jobs]
    if not window:
        message = f"{path}: {len(rows)} rows of virtual clusters {cluster!r}…, and no job after the first {skip}"
        raise ValueError(message)
    begin = window[0][0]
    return _submissions([(at - begin, ran, gpus, "") for at, ran, gpus in window], limits=limits, seed=seed)


def drawn(*, jobs: int, nodes: int, days: float, load: float, seed: int, limits: str = "round") -> list[Submission]:
    """As many jobs in the shape of the trace. Run times are scaled so that they need `load` of the nodes' GPU time."""
    rng, works = Random(seed), list[tuple[float, float, int, str]]()
    while len(works) < jobs:
        gpus = rng.choices([each for each, _ in _SIZES], [weight for _, weight in _SIZES])[0]
        at, name = moment(rng, days=days), f"work-{len(works)}"
        usual = rng.lognormvariate(_LONGER * math.log(gpus), _OF_WORKS * _SPREAD)
        while at < days * DAY and len(works) < jobs:
            works.append((at, usual * rng.lognormvariate(0.0, _OF_RUNS * _SPREAD), min(gpus, nodes * DEVICES), name))
            if rng.random() < 1 / _RUNS_OF_A_WORK:
                break
            at += rng.expovariate(1 / _GAP_SECONDS)
    scale, needed = _MEDIAN_SECONDS, load * nodes * DEVICES * days * DAY
    for _ in range(50):
        scale *= needed / sum(gpus * min(_LONGEST_SECONDS, ran * scale) for _, ran, gpus, _ in works)
    found = [(at, min(_LONGEST_SECONDS, max(_LEAST_SECONDS, ran * scale)), gpus, name) for at, ran, gpus, name in works]
    return _submissions(sorted(found), limits=limits, seed=seed + 1)


class Distributions:
    """How long drawn jobs with round limits run, given all that a queue sees of one: no model of run times knows more.

    That is its GPUs, its limit, how long it has run, and the runs of its work that have ended. Only the scale of all
    run times is taken from the jobs.
    """

    def __init__(self, jobs: Sequence[Submission]) -> None:
        self._usual = median(_log_size(each.job, each.ran_seconds) for each in jobs)
        self._ended: dict[str, list[float]] = {}

    def ended(self, job: Candidate, *, ran_seconds: float) -> None:
        """A job has ended."""
        self._ended.setdefault(_work_of(job), []).append(_log_size(job, ran_seconds))

    def quantiles(self, job: Candidate, *, so_far_seconds: float, parts: Sequence[float]) -> tuple[float, ...]:
        """The quantiles of its run time in seconds, in total."""
        limit, past = job.run_seconds, self._ended.get(_work_of(job), ())
        if limit not in LIMITS:
            # Above the largest round limit it is twice the run.
            return (limit / 2,) * len(parts)
        at = LIMITS.index(limit)
        low = max(LIMITS[at - 1] / 2 if at else _LEAST_SECONDS, so_far_seconds)
        high = max(low, limit / 2)
        # The usual run time of its work after these runs, and how far the next one is from it: both are normal.
        of_works, of_runs = (_OF_WORKS * _SPREAD) ** -2, (_OF_RUNS * _SPREAD) ** -2
        known = of_works + len(past) * of_runs
        middle = (self._usual * of_works + sum(past) * of_runs) / known + _LONGER * math.log(_gpus(job))
        of_logs = NormalDist(middle, math.sqrt(1 / known + 1 / of_runs))
        first, last = of_logs.cdf(math.log(low)), of_logs.cdf(math.log(high))
        if last - first < _LEAST_PART:
            return tuple(low * (high / low) ** part for part in parts)
        drawn = (first + part * (last - first) for part in parts)
        return tuple(min(high, max(low, math.exp(of_logs.inv_cdf(part)))) for part in drawn)


def _work_of(job: Candidate) -> str:
    return job.name.rpartition("-")[0]


def _gpus(job: Candidate) -> float:
    assert job.ask.gpu is not None, "all jobs here ask GPUs"
    return job.workers * job.ask.gpu.count


def _log_size(job: Candidate, ran_seconds: float) -> float:
    """The logarithm of the run time of a job of one GPU of its work."""
    return math.log(ran_seconds) - _LONGER * math.log(_gpus(job))


def _submissions(jobs: Sequence[tuple[float, float, int, str]], *, limits: str, seed: int) -> list[Submission]:
    rng, limit_of = Random(seed), LIMITS_BY[limits]
    return [
        submission(
            at,
            text=str(min(gpus, DEVICES)),
            workers=max(1, math.ceil(gpus / DEVICES)),
            at_seconds=at_seconds,
            ran=ran,
            limit=limit_of(ran, rng),
            priority=10,
            work=work,
        )
        for at, (at_seconds, ran, gpus, work) in enumerate(jobs)
    ]


def _column(what: str, *, names: Sequence[str], path: Path) -> str:
    for name in _COLUMNS[what]:
        if name in names:
            return name
    message = (
        f"{path}: no column for the {what} of a job: allowed are {', '.join(_COLUMNS[what])}; it has {', '.join(names)}"
    )
    raise ValueError(message)


def _read(row: Mapping[str, str], *, columns: Mapping[str, str], path: Path) -> tuple[float, float, int]:
    """Seconds since the epoch, run time in seconds, and GPUs of a row."""
    try:
        at = datetime.fromisoformat(row[columns["time"]].strip())
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        seconds, gpus = Decimal(row[columns["seconds"]]), int(Decimal(row[columns["gpus"]]))
        return at.timestamp(), float(int(seconds)), gpus
    except (AttributeError, TypeError, ValueError, ArithmeticError) as bad:
        message = f"{path}: a row cannot be read: {dict(row)}"
        raise ValueError(message) from bad
