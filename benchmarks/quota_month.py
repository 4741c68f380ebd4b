"""A synthetic month of 20 teams with guarantees, against the same month without quotas.

Each team is busy and idle in turns. A reclaimed job returns to its queue and loses what it has not saved; it saves its
work every half an hour. The report has each team's GPU hours within its guarantee, asked and held, the use of the
cluster, and the lost work.

    python benchmarks/quota_month.py [--nodes 8] [--days 30] [--jobs 2400] [--plot FILE] [--json FILE]
"""

import argparse
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import queue_plane
from counts import count
from matplotlib.figure import Figure
from queue_workload import DAY, DEVICES, cluster

from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu.request import parse
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.limits.guarantees import capacity_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Leaving
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted

TEAMS = 20
SAVES_SECONDS = 1800.0
HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job of a team that needs so many seconds of run time."""

    team: str
    job: Candidate
    at_seconds: float
    seconds: float


@dataclass(slots=True, kw_only=True)
class Run:
    """A job that runs, with what is left of it."""

    of: Arrival
    since: float
    claims: tuple[Claim, ...]
    left: float


@dataclass(slots=True, kw_only=True)
class Month:
    """The queue over time."""

    ledger: Ledger
    quotas: Quotas
    now: float = 0.0
    waiting: dict[str, Arrival] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    borrowed: dict[str, float] = field(default_factory=dict)
    busy: float = 0.0
    lost: float = 0.0
    reclaims: int = 0

    def play(self, arrivals: Sequence[Arrival], *, guaranteed: int) -> None:
        """Play all arrivals, until the last of them has come."""
        coming = sorted(arrivals, key=lambda each: each.at_seconds, reverse=True)
        while coming:
            ends = [(run.since + run.left, key) for key, run in self.running.items()]
            heapq.heapify(ends)
            then = min(coming[-1].at_seconds, ends[0][0] if ends else float("inf"))
            self.count(then - self.now, guaranteed=guaranteed)
            self.now = then
            while ends and ends[0][0] <= then:
                self.release(heapq.heappop(ends)[1])
            while coming and coming[-1].at_seconds <= then:
                each = coming.pop()
                self.waiting[each.job.key] = each
                self.left[each.job.key] = each.seconds
            for _ in range(8):
                if not self.look():
                    break

    def count(self, seconds: float, *, guaranteed: int) -> None:
        """Add up what each team asks and holds within its guarantee until the next event."""
        use: dict[str, float] = {}
        for run in self.running.values():
            use[run.of.team] = use.get(run.of.team, 0.0) + run.of.job.gpus
        wants = dict(use)
        for each in self.waiting.values():
            if wants.get(each.team, 0.0) + each.job.gpus <= guaranteed:
                wants[each.team] = wants.get(each.team, 0.0) + each.job.gpus
        for team, gpus in wants.items():
            held = use.get(team, 0.0)
            self.asked[team] = self.asked.get(team, 0.0) + min(guaranteed, gpus) * seconds
            self.held[team] = self.held.get(team, 0.0) + min(guaranteed, held) * seconds
            self.borrowed[team] = self.borrowed.get(team, 0.0) + max(0.0, held - guaranteed) * seconds
        self.busy += sum(use.values()) * seconds

    def release(self, key: str) -> Run:
        run = self.running.pop(key)
        for claim in run.claims:
            self.ledger.release(claim.key)
        return run

    def look(self) -> bool:
        """One look; jobs that end for a guarantee are gone before the next one. Returns whether any did."""
        counted = [
            Counted(
                uid=each.job.key,
                subject=Subject(namespace=each.team, user="u"),
                milli=round(each.job.gpus * 1000),
                queued=each.job.key in self.waiting,
            )
            for each in (*self.waiting.values(), *(run.of for run in self.running.values()))
        ]
        evictor = Evictor(running=[self.candidate(key, run) for key, run in self.running.items()], rules=Rules())
        look = SchedulingCycle(
            self.ledger.copy(),
            sites={},
            gate=self.quotas.gate(counted, capacity=capacity_of(self.ledger)),
            evictor=evictor,
            leaving=[
                Leaving(key=claim.key, job=key, at_seconds=max(60.0, run.since + run.of.job.run_seconds - self.now))
                for key, run in self.running.items()
                for claim in run.claims
            ],
        )
        for job in look.in_order(each.job for each in self.waiting.values()):
            verdict = look.at(job)
            if isinstance(verdict, Admitted):
                each = self.waiting.pop(job.key)
                self.ledger.commit_all(verdict.claims)
                self.running[job.key] = Run(of=each, since=self.now, claims=verdict.claims, left=self.left[job.key])
        for key in evictor.orders:
            run = self.release(key)
            unsaved = min(self.now - run.since, SAVES_SECONDS)
            self.left[key] = run.left - (self.now - run.since - unsaved)
            self.waiting[key] = run.of
            self.lost += unsaved * run.of.job.gpus
            self.reclaims += 1
        return bool(evictor.orders)

    def candidate(self, key: str, run: Run) -> Running:
        keys = tuple(claim.key for claim in run.claims)
        return Running(
            key=key,
            priority=run.of.job.priority,
            run_seconds=self.now - run.since,
            claims=keys,
            checkpoint_seconds=SAVES_SECONDS,
        )


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=8, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--days", type=float, default=30, help="length (default: %(default)s)")
    options.add_argument("--jobs", type=count, default=2_400, help="jobs of all teams (default: %(default)s)")
    options.add_argument("--load", type=float, default=0.9, help="asked part of the cluster (default: %(default)s)")
    options.add_argument("--plot", type=Path, help="a bar for each team, as .png or .svg")
    options.add_argument("--json", type=Path, default=Path("out/quota_month.json"), help="where it is written too")
    args = options.parse_args()
    guaranteed = args.nodes * DEVICES // TEAMS
    arrivals = month(Random(5), args=args)
    found = {
        name: run(arrivals, guaranteed=guaranteed, with_quotas=name == "guarantees", args=args)
        for name in ("without", "guarantees")
    }
    queue_plane.report({"guaranteed_gpus": guaranteed, **found}, path=args.json)
    if args.plot:
        draw(found, path=args.plot)


def month(rng: Random, *, args: argparse.Namespace) -> list[Arrival]:
    """Jobs of teams that are busy in bursts of one to three days."""
    drawn: list[tuple[float, str, int, float]] = []
    for _ in range(args.jobs):
        team = rng.randrange(TEAMS)
        begin = Random(team * 7 + rng.randrange(6)).uniform(0, max(0.1, args.days - 3))
        at = (begin + rng.uniform(0, Random(team + 99).uniform(1, 3))) * DAY
        drawn.append((at, f"team-{team:02d}", rng.choices((1, 2, 4), (65, 25, 10))[0], rng.lognormvariate(8, 1.2)))
    needed = sum(gpus * seconds for _, _, gpus, seconds in drawn)
    scale = args.load * args.nodes * DEVICES * args.days * DAY / needed
    return [
        Arrival(team=team, job=job_of(number, gpus=gpus, at=at), at_seconds=at, seconds=min(DAY, seconds * scale))
        for number, (at, team, gpus, seconds) in enumerate(sorted(drawn))
    ]


def job_of(number: int, *, gpus: int, at: float) -> Candidate:
    created = f"{at:012.1f}"
    return Candidate(key=f"j{number}", ask=Ask(gpu=parse(gpus)), created=created, number=number, run_seconds=DAY)


def run(arrivals: Sequence[Arrival], *, guaranteed: int, with_quotas: bool, args: argparse.Namespace) -> dict[str, Any]:
    """Play the month."""
    quotas = Quotas()
    for number in range(TEAMS if with_quotas else 0):
        name = f"team-{number:02d}"
        spec = {"namespaces": [name], "guaranteed": {"gpus": guaranteed}}
        quotas.update(msgspec.convert({"metadata": {"name": name}, "spec": spec}, GPUQuota))
    played = Month(ledger=cluster(args.nodes), quotas=quotas)
    played.play([replace(each) for each in arrivals], guaranteed=guaranteed)
    whole = args.nodes * DEVICES * played.now
    return {
        "utilization": round(played.busy / whole, 4),
        "lost": round(played.lost / whole, 4),
        "reclaims": played.reclaims,
        "teams": {
            team: {
                "asked_gpu_hours": round(asked / HOUR),
                "held": round(played.held[team] / asked, 4) if asked else 1.0,
                "borrowed_gpu_hours": round(played.borrowed[team] / HOUR),
            }
            for team, asked in sorted(played.asked.items())
        },
    }


def draw(found: dict[str, dict[str, Any]], *, path: Path) -> None:
    """What each team held of what it asked within its guarantee, with and without guarantees."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    axes = figure.subplots()
    for shift, (name, label) in ((-0.2, ("without", "without quotas")), (0.2, ("guarantees", "with guarantees"))):
        teams = found[name]["teams"]
        places = [at + shift for at in range(len(teams))]
        axes.bar(places, [100 * each["held"] for each in teams.values()], width=0.4, label=label)
    axes.set_xlabel("team")
    axes.set_ylabel("held of what was asked\nwithin the guarantee [%]")
    axes.set_xticks(range(TEAMS), [str(at) for at in range(TEAMS)])
    axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
