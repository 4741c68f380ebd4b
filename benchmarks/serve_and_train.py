"""Seven days of a service and training: windows and a reserve, against a static split of the same cluster.

The load follows published statistics; the tables themselves are not used.

- Azure's LLM services in a week of May 2024 (Stojkovic et al., DynamoLLM, HPCA 2025, on the dynamics of the load):
  conversation peaks at 1.7 times its mean and 3.3 times its valley, coding at 2.8 and 34.6 times, both by day, coding
  on weekdays.
- Alibaba's image generation of February 2025 (trace v2026-GenAI; statistics by affinode.io): of the samples of a pod's
  GPU, 66.8 % are idle, 2.3 % above 50 %, their mean is 7.0 %. As a service: a peak of 7.1 times that, a valley of 0.

The form of a day between them, a wave, and bursts of each minute (a gamma factor) are assumptions. The service scales
its replicas of one GPU to its load every minute, as an autoscaler does. Training has more work than the cluster can do,
in jobs of 2 to 12 hours, which are their time limits too. It saves its work every half an hour, and loses what it has
not saved. Its pods take up to 30 s to end.

The floor is missed while a replica waits that has been within the guarantee for longer than the time within which jobs
leave the reserve. With `--slow`, a part of training takes up to ten minutes to end: such jobs stay outside the reserve,
and a burst beyond it waits for them.

    python benchmarks/serve_and_train.py [--nodes 4] [--days 7] [--reserve 4] [--slow 0.2] [--plot FILE] [--json FILE]
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import queue_plane
from counts import count
from matplotlib.figure import Figure
from queue_workload import DAY, DEVICES, cluster

from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.gpu.request import parse
from dovetail.queue.backfill.advance_reservation import Windows, is_reserve, placed
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.limits.guarantees import capacity_of
from dovetail.queue.limits.quota_reservations import reserve_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Leaving, seconds_left
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.quota_tree.demand_forecast import observed
from dovetail.queue.quota_tree.guarantee_windows import in_force
from dovetail.queue.verdicts import Admitted

# A Monday.
BEGIN: Final = datetime(2026, 6, 1, tzinfo=UTC)
MINUTE: Final = 60.0
SAVES_SECONDS: Final = 1800.0
# The longest that pods of training take to end, and the time within which they have to leave the reserve.
ENDS_SECONDS: Final = 30.0
SLOW_SECONDS: Final = 600.0
WITHIN_SECONDS: Final = 45
RULES: Final = Rules(reclaim_grace_seconds=30.0)
FLOORS: Final = ("calendar", "forecast")
# How long a forecast has learned before the week that is measured.
WEEKS_BEFORE: Final = 3
TRAINING_SIZES: Final = ((1, 2, 4, 8), (40, 30, 20, 10))
TRAINING_HOURS: Final = (2.0, 12.0)
# How many cycles follow each other at once while some replicas have not had their turn to search.
CYCLES_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The load of a service over a week.

    - `by_mean`, `by_valley`: its peak by its mean and by its valley
    - `variation`: the coefficient of variation of the load of a minute
    - `weekend`: how much of the wave is left at the weekend
    """

    by_mean: float
    by_valley: float
    variation: float = 0.08
    weekend: float = 1.0


SHAPES: Final = {
    "conversation": Shape(by_mean=1.7, by_valley=3.3),
    "coding": Shape(by_mean=2.8, by_valley=34.6, weekend=0.2),
    "images": Shape(by_mean=7.1, by_valley=math.inf, variation=0.3),
}


def load(shape: str, *, at_seconds: float) -> float:
    """The load at a time as a part of the peak: a day's wave."""
    has = SHAPES[shape]
    hour, weekday = at_seconds / 3600 % 24, int(at_seconds // DAY) % 7
    wave = (1 + math.cos((hour - 14) / 24 * 2 * math.pi)) / 2 * (has.weekend if weekday >= 5 else 1.0)
    low = 1 / has.by_valley
    return low + (1 - low) * wave ** _exponent(shape, mean=1 / has.by_mean)


_EXPONENTS: dict[str, float] = {}


def _exponent(shape: str, *, mean: float) -> float:
    """How narrow the peaks are, so that the mean of a week is right; found by bisection."""
    if shape not in _EXPONENTS:
        low, high = 0.2, 40.0
        for _ in range(30):
            _EXPONENTS[shape] = middle = (low + high) / 2
            hours = [load(shape, at_seconds=3600.0 * hour) for hour in range(168)]
            low, high = (middle, high) if sum(hours) / len(hours) > mean else (low, middle)
    return _EXPONENTS[shape]


@dataclass(slots=True, kw_only=True)
class Run:
    """A job that runs until it is `over`.

    If it was notified, `due` is when its pods begin to end, and `ends` when they have ended.
    """

    job: Candidate
    since: float
    claims: tuple[Claim, ...]
    over: float = math.inf
    by: str = ""
    notified: float = 0.0
    due: float = math.inf
    ends: float = math.inf

    def leaving(self, *, now: float) -> list[Leaving]:
        """The ends of its claims, as the queue knows them."""
        job = self.job
        at = seconds_left(job.run_seconds, ran=now - self.since, limited=job.limited)
        return [Leaving(key=each.key, job=job.key, at_seconds=at, assumed=not job.limited) for each in self.claims]


@dataclass(slots=True, kw_only=True)
class Week:
    """The queue over time, with one service and endless training."""

    ledger: Ledger
    quotas: Quotas
    rng: Random
    gpus: int
    slow: float = 0.0
    now: float = 0.0
    waiting: dict[str, Candidate] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    asked_at: dict[str, float] = field(default_factory=dict)
    # Since when each waiting replica is within the guarantee; the others borrow.
    guaranteed_since: dict[str, float] = field(default_factory=dict)
    # For which waiting replica each job has ended.
    ended_for: dict[str, str] = field(default_factory=dict)
    searches: NegativeCache = field(default_factory=NegativeCache)
    # The facts after the last cycle.
    settled: tuple[object, ...] = ()
    submitted: int = 0
    # What the report is made of.
    waits: list[float] = field(default_factory=list)
    borrowed_waits: list[float] = field(default_factory=list)
    late: int = 0
    missed_seconds: float = 0.0
    idle_seconds: float = 0.0
    trained_seconds: float = 0.0
    lost: list[float] = field(default_factory=list)
    give_backs: dict[str, int] = field(default_factory=lambda: {"reserve": 0, "replica": 0})
    series: list[tuple[float, int, int, float, int]] = field(default_factory=list)

    def play(self, *, days: float, wanted: "Demand") -> None:
        """Minute by minute, with the ends of jobs between them."""
        for minute in range(int(days * DAY / MINUTE)):
            then = minute * MINUTE
            while (end := min((min(run.ends, run.over) for run in self.running.values()), default=math.inf)) < then:
                self.advance(end)
                self.decide()
            self.advance(then)
            replicas = wanted.replicas(at_seconds=then)
            self.scale(replicas)
            self.forecast(replicas)
            self.decide()
            if minute % 10 == 0:
                self.note()

    def advance(self, then: float) -> None:
        """Add up what was used until then, and end what ends."""
        seconds = then - self.now
        serving = sum(run.job.gpus for run in self.running.values() if serves(run.job))
        training = sum(run.job.gpus for run in self.running.values() if not serves(run.job) and not run.by)
        for since in self.guaranteed_since.values():
            self.missed_seconds += max(0.0, then - max(self.now, since + WITHIN_SECONDS))
        self.idle_seconds += (self.gpus - serving) * seconds
        self.trained_seconds += training * seconds
        self.now = then
        for key in [key for key, run in self.running.items() if min(run.ends, run.over) <= then]:
            self.release(key)

    def forecast(self, replicas: int) -> None:
        """What a quota with a forecast learns of its demand, as its status is written each minute."""
        (quota,) = self.quotas.all
        if quota.spec.forecast is not None:
            self.quotas.update(learned(quota, replicas=replicas, at_seconds=self.now))

    def floor(self) -> float:
        """What the quota is guaranteed now. Where it has a reserve, the queue counts a window before it begins."""
        (quota,) = self.quotas.all
        guaranteed = in_force(quota, at=[self.time]).spec.guaranteed
        return 0.0 if guaranteed is None else float(guaranteed.gpus or 0)

    def note_guaranteed(self) -> None:
        """Note which waiting replicas are within the guarantee: the oldest first."""
        serving = sum(run.job.gpus for run in self.running.values() if serves(run.job))
        waiting = sorted((key for key in self.waiting if serves_key(key)), key=lambda key: (self.asked_at[key], key))
        within = waiting[: max(0, round(self.floor() - serving))]
        self.guaranteed_since = {key: self.guaranteed_since.get(key, self.now) for key in within}

    def release(self, key: str) -> None:
        run = self.running.pop(key)
        for claim in run.claims:
            self.ledger.release(claim.key)
        if run.by and run.ends < run.over:
            # It saves its work when it is notified, if it has the time; here it loses what it has not saved.
            self.lost.append(min(run.notified - run.since, SAVES_SECONDS))
            self.give_backs["reserve" if is_reserve(run.by) else "replica"] += 1
            self.waiting[key] = run.job
            self.ended_for[key] = run.by

    def scale(self, replicas: int) -> None:
        """As many replicas as are wanted: the youngest go first, those that wait before those that run."""
        there = [key for key in (*self.running, *self.waiting) if serves_key(key)]
        for key in sorted(there, key=lambda key: (key in self.waiting, self.asked_at[key]))[replicas:]:
            if key in self.waiting:
                del self.waiting[key]
            else:
                self.release(key)
        for _ in range(replicas - len(there)):
            self.submit("serve", gpus=1)
        self.fill()

    def fill(self) -> None:
        """More training than the cluster can do, with jobs of each size."""
        (sizes, weights), waiting = TRAINING_SIZES, [job for job in self.waiting.values() if not serves(job)]
        for _ in range(8 - len(waiting)):
            self.submit("train", gpus=self.rng.choices(sizes, weights)[0])
        there = {round(job.gpus) for job in self.waiting.values() if not serves(job)}
        for gpus in sorted(set(sizes) - there):
            self.submit("train", gpus=gpus)

    def submit(self, team: str, *, gpus: int) -> None:
        self.submitted += 1
        key = f"{team}-{self.submitted:06d}"
        self.asked_at[key] = self.now
        self.waiting[key] = Candidate(
            key=key,
            ask=Ask(gpu=parse(gpus)),
            created=f"{self.now:012.1f}",
            number=self.submitted,
            name=f"{team}/{key}",
            run_seconds=3600.0 * self.rng.uniform(*TRAINING_HOURS) if team == "train" else DAY,
            limited=team == "train",
            leave_seconds=SLOW_SECONDS if team == "train" and self.rng.random() < self.slow else ENDS_SECONDS,
        )

    def decide(self) -> None:
        """Cycles of the queue, until each replica that may has searched; none where nothing has changed."""
        self.quotas.observe(self.ledger, now=self.time, grace_seconds=RULES.reclaim_grace_seconds)
        if self.facts() == self.settled:
            return
        for _ in range(CYCLES_AT_ONCE):
            self.note_guaranteed()
            self.look()
            if not self.searches.is_behind:
                break
        self.note_guaranteed()
        self.settled = self.facts()

    @property
    def time(self) -> datetime:
        """The time of the calendar."""
        return BEGIN + timedelta(seconds=self.now)

    def facts(self) -> tuple[object, ...]:
        """What a cycle decides by."""
        notified = frozenset((key, run.by, self.now < run.due) for key, run in self.running.items() if run.by)
        return frozenset(self.waiting), frozenset(self.running), notified, self.quotas.version, self.floor()

    def look(self) -> None:
        """One cycle of the queue. Who is notified has its notice, and then its pods end."""
        gate = self.quotas.gate(list(self.counted()), capacity=capacity_of(self.ledger))
        self.ended_for = {key: by for key, by in self.ended_for.items() if by in self.waiting and key in self.waiting}
        left = [
            Running(key=key, priority=0, run_seconds=0.0, claims=(), yields_to=by, left=True)
            for key, by in self.ended_for.items()
        ]
        runs = [self.victim(run) for run in self.running.values()]
        evictor = Evictor(running=[*runs, *left], rules=RULES, negative_cache=self.searches)
        leaving = [each for run in self.running.values() for each in run.leaving(now=self.now)]
        windows = Windows()
        if gate is not None and gate.loans is not None:
            made = [reserve_of(quota, loans=gate.loans, leaving=leaving) for quota in self.quotas.all]
            wanted = [window for window in made if window is not None]
            own = {key: frozenset({"serve"}) for key in self.waiting if serves_key(key)}
            found = placed(wanted, ledger=self.ledger, leaving=leaving)
            windows = Windows(reservations=found, quotas_of=own, wanted=wanted)
        look = SchedulingCycle(
            self.ledger.copy(), sites={}, gate=gate, evictor=evictor, leaving=leaving, windows=windows
        )
        for job in look.in_order(self.waiting.values()):
            verdict = look.at(job)
            if isinstance(verdict, Admitted):
                self.start(job, claims=verdict.claims)
        look.end()
        for key, order in evictor.orders.items():
            run = self.running[key]
            if not run.by:
                run.by, run.notified, run.due = order.by.key, self.now, self.now + order.grace_seconds
                run.ends = run.due + self.rng.uniform(0, run.job.leave_seconds or 0.0)
        for key, run in self.running.items():
            # Once pods end, nothing withdraws that.
            if run.by and key not in evictor.orders and self.now < run.due:
                run.by, run.due, run.ends = "", math.inf, math.inf

    def start(self, job: Candidate, *, claims: tuple[Claim, ...]) -> None:
        del self.waiting[job.key]
        self.ledger.commit_all(claims)
        over = self.now + job.run_seconds if job.limited else math.inf
        self.running[job.key] = Run(job=job, since=self.now, claims=claims, over=over)
        if not serves(job):
            return
        since = self.guaranteed_since.get(job.key)
        if since is None:
            self.borrowed_waits.append(self.now - self.asked_at[job.key])
        else:
            self.waits.append(self.now - since)
            self.late += self.waits[-1] > WITHIN_SECONDS

    def counted(self) -> Iterator[Counted]:
        for job, queued in (
            *((job, True) for job in self.waiting.values()),
            *((run.job, False) for run in self.running.values()),
        ):
            yield Counted(
                uid=job.key,
                subject=Subject(namespace=job.name.partition("/")[0], user="u"),
                milli=round(job.gpus * 1000),
                queued=queued,
                leave_seconds=job.leave_seconds,
            )

    def victim(self, run: Run) -> Running:
        return Running(
            key=run.job.key,
            priority=0,
            run_seconds=self.now - run.since,
            claims=tuple(claim.key for claim in run.claims),
            yields_to=run.by,
            checkpoint_seconds=SAVES_SECONDS,
        )

    def note(self) -> None:
        serving = sum(1 for run in self.running.values() if serves(run.job))
        training = sum(round(run.job.gpus) for run in self.running.values() if not serves(run.job))
        wanted = serving + sum(serves_key(key) for key in self.waiting)
        self.series.append((self.now, wanted, serving, self.floor(), training))


def serves(job: Candidate) -> bool:
    return serves_key(job.key)


def serves_key(key: str) -> bool:
    return key.startswith("serve-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The replicas that the load of a service needs, `peak` of them at its peak."""

    shape: str
    peak: int
    seed: int

    def replicas(self, *, at_seconds: float) -> int:
        """With its burst of that minute; scaled up at once, and down by the highest of the last ten minutes."""
        return max(self._needed(at_seconds - back * MINUTE) for back in range(10))

    def _needed(self, at_seconds: float) -> int:
        spread = SHAPES[self.shape].variation ** 2
        burst = Random(f"{self.seed}/{at_seconds}").gammavariate(1 / spread, spread)
        return max(1, min(self.peak, math.ceil(self.peak * load(self.shape, at_seconds=at_seconds) * burst)))


def learned(quota: GPUQuota, *, replicas: int, at_seconds: float) -> GPUQuota:
    """The quota with what its forecast is after a look at the replicas that are wanted."""
    assert quota.spec.forecast is not None, "only a quota with a forecast learns"
    now = BEGIN + timedelta(seconds=at_seconds)
    found = observed(quota.status.forecast, said=quota.spec.forecast, demand_gpus=replicas, now=now)
    return msgspec.structs.replace(quota, status=msgspec.structs.replace(quota.status, forecast=found))


def after_weeks(quota: GPUQuota, *, demand: "Demand") -> GPUQuota:
    """The quota after the weeks before the first: their load has other bursts, from the same distribution."""
    for minute in range(int(-WEEKS_BEFORE * 7 * DAY / MINUTE), 0):
        at_seconds = minute * MINUTE
        quota = learned(quota, replicas=demand.replicas(at_seconds=at_seconds), at_seconds=at_seconds)
    return quota


def quota_of(shape: str, *, peak: int, floor: str, reserve: int) -> GPUQuota:
    """The floor follows the load: by the calendar, its peak by day and what it needs at night; or by forecast."""
    low = max(1, math.ceil(peak * load(shape, at_seconds=2 * 3600.0)))
    days = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"] if shape == "coding" else []
    spec: dict[str, Any] = {
        "namespaces": ["serve"],
        "guaranteed": {"gpus": max(low, peak // 2)},
        "guaranteeWindows": [{"name": "day", "days": days, "start": "07:00", "end": "22:00", "gpus": peak}],
        "limit": {"gpus": peak},
        "reserve": {"gpus": reserve, "leaveWithinSeconds": WITHIN_SECONDS},
    }
    if floor == "forecast":
        del spec["guaranteeWindows"]
        spec |= {"guaranteed": {"gpus": low}, "forecast": {"gpus": peak}}
    return msgspec.convert({"metadata": {"name": "serve"}, "spec": spec}, GPUQuota)


def run(shape: str, *, floor: str, args: argparse.Namespace) -> tuple[dict[str, Any], Week]:
    """One week of a shape."""
    gpus = args.nodes * DEVICES
    peak = round(gpus * 0.75)
    quotas, demand = Quotas(), Demand(shape=shape, peak=peak, seed=11)
    quota = quota_of(shape, peak=peak, floor=floor, reserve=args.reserve)
    quotas.update(after_weeks(quota, demand=demand) if floor == "forecast" else quota)
    week = Week(ledger=cluster(args.nodes), quotas=quotas, rng=Random(7), gpus=gpus, slow=args.slow)
    week.play(days=args.days, wanted=demand)
    forecast = quotas.all[0].status.forecast
    waits = sorted(week.waits)
    trained, split = week.trained_seconds / 3600, (gpus - peak) * week.now / 3600
    return {
        "gpus": gpus,
        "peak_replicas": peak,
        "replicas_started": len(waits),
        "wait_seconds": {"p50": waits[len(waits) // 2], "p95": waits[int(len(waits) * 0.95)], "most": waits[-1]},
        "later_than_promised": week.late,
        "borrowing_replicas": {"started": len(week.borrowed_waits), "most": max(week.borrowed_waits, default=0.0)},
        "floor_missed_gpu_seconds": round(week.missed_seconds),
        "training_of_idle_time": round(week.trained_seconds / week.idle_seconds, 4),
        "training_gpu_hours": round(trained),
        "training_gpu_hours_static_split": round(split),
        "give_backs": week.give_backs,
        "lost_seconds_most": round(max(week.lost, default=0.0)),
        "lost_part_of_training": round(sum(week.lost) / max(1.0, week.trained_seconds), 4),
        "floor_gpus_mean": round(sum(each[3] for each in week.series) / len(week.series), 2),
        "forecast_error_gpus": None if forecast is None else forecast.error,
    }, week


def draw(weeks: dict[str, Week], *, path: Path) -> None:
    """Replicas wanted and running, the floor, and what training uses, over the week."""
    figure = Figure(figsize=(10, 2.8 * len(weeks)), layout="constrained")
    for axes, (shape, week) in zip(figure.subplots(len(weeks), squeeze=False)[:, 0], weeks.items(), strict=True):
        days = [at / DAY for at, *_ in week.series]
        serving, training = ([each[at] for each in week.series] for at in (2, 4))
        axes.stackplot(days, serving, training, labels=["service", "training"], colors=["#4477aa", "#ccbb44"])
        axes.step(days, [each[3] for each in week.series], where="post", color="black", lw=1, label="floor")
        axes.axhline(week.gpus * 0.75, color="black", lw=1, ls="--", label="ceiling")
        axes.set(title=shape, ylabel="GPUs", xlim=(0, days[-1]), ylim=(0, week.gpus))
    axes.set_xlabel("day, from Monday on")
    axes.legend(loc="lower right", ncols=4)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=4, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--days", type=float, default=7, help="length (default: %(default)s)")
    options.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES), help="loads (default: all)")
    options.add_argument("--floors", nargs="+", choices=FLOORS, default=list(FLOORS), help="floors (default: all)")
    options.add_argument("--reserve", type=int, default=4, help="GPUs that are kept ready (default: %(default)s)")
    options.add_argument("--slow", type=float, default=0.0, help="part of training that ends late (default: none)")
    options.add_argument("--plot", type=Path, help="the week as a picture, as .png or .svg")
    options.add_argument("--json", type=Path, default=Path("out/serve_and_train.json"), help="where it is written too")
    args = options.parse_args()
    found, weeks = {}, {}
    for shape in args.shapes:
        for floor in args.floors:
            name = f"{shape}, floor by {floor}"
            found[name], weeks[name] = run(shape, floor=floor, args=args)
    queue_plane.report(found, path=args.json)
    if args.plot:
        draw(weeks, path=args.plot)


if __name__ == "__main__":
    main()
