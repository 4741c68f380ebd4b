"""Compare four ways to queue the same jobs: waits, utilization of the GPUs, and the quality of the estimates.

- `fifo`: the oldest first; a job that does not fit blocks all jobs behind it.
- `priority`: the same by priority.
- `skip`: gflow's way: by priority and age, each job that fits starts, the others are skipped.
- `dovetail`: priority, age, and EASY backfill, as the operator does it.

The jobs come from a generated month, or with `--published` from a month as studies of real clusters describe it (its
jobs follow from nodes and days), or with `--traces FOLDER` from the trace's own arrivals and run times. Estimates are
renewed while jobs wait (every `--every` hours), with bounds learned from the misses so far. Each estimate is compared,
as it was published, with the real start; a job with many estimates weighs as much as a job with one.

With `--philly TABLE` the jobs are a window of a virtual cluster of that trace, on as many nodes as give the load; with
`--philly-shaped` they are drawn in its shape.

    python benchmarks/queue_policies.py [--jobs 2000] [--nodes 12] [--load 0.9] [--traces FOLDER] [--json FILE]
    python benchmarks/queue_policies.py --ours --philly philly.csv --virtual-cluster ee9e8c --jobs 350 [--skip 250]
    python benchmarks/queue_policies.py --ours --philly-shaped --jobs 1500 --nodes 10 --days 92 --every 6
"""

import argparse
import json
import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import queue_month
import queue_philly
import queue_workload
from counts import count
from matplotlib.figure import Figure
from queue_plane import percentiles
from queue_workload import DEVICES, gpus_of

from dovetail.engine.model.claims import Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.estimates.calibration import Bounds, Foreseen, Misses
from dovetail.queue.estimates.expectations import PARTS, Arrivals, RunTimesUsed, about
from dovetail.queue.estimates.monte_carlo import foresee_with_range
from dovetail.queue.model.candidates import Candidate, Room, commit, find_room
from dovetail.simulator.queue_replay import Policy, Running, Scene, Submission, easy_backfill, likely, play

LARGE: Final = 8
# What estimates may know, for a bound of what can be foreseen: how long jobs run, or from which distributions that was
# drawn, and which ones come.
KNOWS: Final = ("runs", "distributions", "arrivals")
MINUTE: Final = 60.0
_NEAR_MINUTES: Final = (1, 10, 60)
Started = Iterable[tuple[str, Sequence[Claim]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one policy made of the jobs. Waits are in hours."""

    policy: str
    mean_wait: float
    median_wait: float
    p95_wait: float
    p95_wait_large: float
    longest_wait: float
    utilization: float
    makespan_days: float
    never_started: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How one estimate turned out: its width by the job's whole wait, and by what was left of it."""

    within: bool
    width_by_wait: float
    width_by_rest: float
    off_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """How the starts that were foreseen turned out: over the waits of the jobs, and for each job's first estimate.

    `first_within` has the part of the first estimates that were off by at most 1, 10 and 60 minutes, of the jobs that
    waited with one; `all_within` the same of these and the jobs that started at once, whose estimate is "now".
    """

    jobs: int
    estimates: int
    within_bounds: float
    median_width_by_wait: float
    median_width_by_rest: float
    median_miss_hours: float
    first_within_bounds: float
    first_median_width_by_wait: float
    first_within: tuple[float, ...]
    all_within: tuple[float, ...]


def arguments() -> argparse.Namespace:
    """The command line, with `workloads`: jobs and nodes by name. Ends the process with a sentence for a wrong one."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--jobs", type=count, default=2_000, help="jobs of each workload (default: %(default)s)")
    options.add_argument("--nodes", type=count, default=12, help="nodes of the made-up month (default: %(default)s)")
    options.add_argument("--days", type=float, default=28.0, help="its length (default: %(default)s)")
    options.add_argument("--load", type=float, default=0.9, help="share of the GPU time needed (default: %(default)s)")
    options.add_argument("--traces", type=Path, help="folder with openb_pod_list_default.csv")
    options.add_argument("--every", type=float, default=4.0, help="hours between estimates (default: %(default)s)")
    options.add_argument("--seed", type=int, default=42, help="of the made-up month (default: %(default)s)")
    options.add_argument(
        "--repeated", type=float, default=0.0, help="share of its jobs that run one work again (default: %(default)s)"
    )
    options.add_argument("--published", action="store_true", help="a month as studies of real clusters describe it")
    options.add_argument("--philly", type=Path, help="a table of the Philly trace")
    options.add_argument("--virtual-cluster", default="", help="of that table: how its name begins")
    options.add_argument("--skip", type=int, default=0, help="of its jobs, leave out the first (default: %(default)s)")
    options.add_argument("--philly-shaped", action="store_true", help="jobs in the shape of that trace")
    options.add_argument(
        "--limits", choices=list(queue_philly.LIMITS_BY), default="round", help="of these jobs (default: %(default)s)"
    )
    options.add_argument("--at-arrival", action="store_true", help="estimate each job that waits when it comes, too")
    options.add_argument("--knows", choices=KNOWS, nargs="*", default=(), help="what estimates know of the future")
    options.add_argument("--ours", action="store_true", help="play dovetail's queue alone")
    options.add_argument("--json", type=Path, default=Path("out/queue_policies.json"), help="where it is written too")
    args = options.parse_args()
    largest = queue_month.LARGEST if args.published else queue_workload.LARGEST
    if args.nodes < largest:
        options.error(f"--nodes {args.nodes}: at least {largest}, so that every job has room at all")
    if not 0 <= args.repeated <= 1:
        options.error(f"--repeated {args.repeated:g}: a share from 0 to 1")
    try:
        workloads = {"philly": philly_of(args)} if args.philly else {"month": (month_of(args), args.nodes)}
    except (OSError, ValueError) as bad:
        options.error(f"--philly {bad}")
    if args.traces:
        trace = queue_workload.traced(args.traces / "openb_pod_list_default.csv", jobs=args.jobs)
        workloads["trace"] = (trace, queue_workload.nodes_for(trace, load=args.load))
    if "distributions" in args.knows and not (args.philly_shaped and args.limits == "round"):
        options.error("--knows distributions: only of --philly-shaped jobs with --limits round")
    args.workloads = workloads
    return args


def main() -> None:
    args = arguments()
    found: dict[str, Any] = {}
    drawn: dict[str, dict[str, list[float]]] = {}
    for name, (jobs, nodes) in args.workloads.items():
        played = {"dovetail": POLICIES["dovetail"]} if args.ours else POLICIES
        foreseeing = Foreseeing(
            every_seconds=args.every * 3600, at_arrival=args.at_arrival, knows=args.knows, jobs=jobs
        )
        results, waits = compare(jobs, nodes=nodes, foreseeing=foreseeing, policies=played)
        estimates = foreseeing.result()
        print(table(f"{name}: {len(jobs)} jobs, {nodes} nodes x {DEVICES} GPUs", results, estimates), flush=True)
        found[name] = {"nodes": nodes, "policies": [asdict(each) for each in results], "estimates": asdict(estimates)}
        drawn[name] = waits
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(found, indent=2) + "\n")
    draw(drawn).savefig(args.json.with_suffix(".png"), dpi=110)


def philly_of(args: argparse.Namespace) -> tuple[list[Submission], int]:
    """The jobs of the window that was asked for, and nodes for their load, as many as the largest job needs at least.

    Raises `OSError` and `ValueError` for a table that cannot be read.
    """
    jobs = queue_philly.loaded(
        args.philly, cluster=args.virtual_cluster, jobs=args.jobs, skip=args.skip, limits=args.limits
    )
    return jobs, max(*(each.job.workers for each in jobs), queue_workload.nodes_for(jobs, load=args.load))


def month_of(args: argparse.Namespace) -> list[Submission]:
    """The jobs of the month that was asked for."""
    if args.philly_shaped:
        return queue_philly.drawn(
            jobs=args.jobs, nodes=args.nodes, days=args.days, load=args.load, seed=args.seed, limits=args.limits
        )
    if args.published:
        return queue_month.published(nodes=args.nodes, days=args.days, load=args.load, seed=args.seed)
    return queue_workload.synthetic(
        jobs=args.jobs, nodes=args.nodes, days=args.days, load=args.load, seed=args.seed, repeated=args.repeated
    )


def fifo(scene: Scene) -> Started:
    """The oldest first, and no job before it."""
    ordered = sorted(scene.waiting.values(), key=lambda each: (each.at_seconds, each.job.key))
    return _until_one_does_not_fit(scene, [each.job for each in ordered])


def priority(scene: Scene) -> Started:
    """The first by priority, and no job before it."""
    return _until_one_does_not_fit(scene, scene.candidates())


def skip(scene: Scene) -> Started:
    """Each that fits, in order."""
    ledger = scene.ledger.copy()
    fit_cache, refused = FitCache(ledger), set()
    for job in scene.candidates():
        if job.shape in refused:
            continue
        room = find_room(job, ledger=ledger, fit_cache=fit_cache, sites={})
        if isinstance(room, Room):
            commit(room.claims, job=job, ledger=ledger)
            yield job.key, room.claims
        else:
            refused.add(job.shape)


def _until_one_does_not_fit(scene: Scene, jobs: Iterable[Candidate]) -> Started:
    ledger = scene.ledger.copy()
    fit_cache = FitCache(ledger)
    for job in jobs:
        room = find_room(job, ledger=ledger, fit_cache=fit_cache, sites={})
        if not isinstance(room, Room):
            return
        commit(room.claims, job=job, ledger=ledger)
        yield job.key, room.claims


POLICIES: Final[dict[str, Policy]] = {"fifo": fifo, "priority": priority, "skip": skip, "dovetail": easy_backfill}


class Foreseeing:
    """Repeatedly estimates the starts of all waiting jobs, and learns from the real starts.

    `at_arrival` adds an estimate of each job when it comes, as the operator makes it. `knows` is what the estimates
    know of the future, of `KNOWS`: `jobs` are all that come.
    """

    def __init__(
        self,
        *,
        every_seconds: float,
        at_arrival: bool = False,
        knows: Collection[str] = (),
        jobs: Sequence[Submission] = (),
    ) -> None:
        self._every_seconds = every_seconds
        self._at_arrival = at_arrival
        self._asked = set[str]()
        self._distributions = queue_philly.Distributions(jobs) if "distributions" in knows else None
        self._runs = {each.job.key: each.ran_seconds for each in jobs} if "runs" in knows else {}
        self._later = sorted(jobs, key=lambda each: each.at_seconds) if "arrivals" in knows else []
        self._due = float("-inf")
        self._used, self._misses, self._arrivals = RunTimesUsed(), Misses(), Arrivals()
        self._known: dict[str, list[tuple[float, float, Bounds]]] = {}
        self.checks: list[list[Checked]] = []
        self._at_once = 0

    def watch(self, scene: Scene) -> None:
        """After a look: estimates for all that wait, if it is time, or for those that have come."""
        is_due = bool(scene.waiting) and scene.now >= self._due
        new = scene.waiting.keys() - self._asked if self._at_arrival else set[str]()
        if not is_due and not new:
            return
        self._asked |= new
        if is_due:
            self._due = scene.now + self._every_seconds
        waiting, leaving = likely(scene, ran=self._ran, within=self._within)
        coming = partial(self._coming, now_seconds=scene.now)
        only = next(iter(new)) if not is_due and len(new) == 1 else None
        for start in foresee_with_range(
            waiting, ledger=scene.ledger, sites={}, leaving=leaving, coming=coming, only=only
        ):
            if start is not None and (is_due or start.key in new):
                early, late = start.range_seconds or (0.0, start.in_seconds)
                seen = Foreseen(seconds=start.in_seconds, early_seconds=early, late_seconds=late)
                bounds = self._misses.bounds_of(start.key, foreseen=seen, now_seconds=scene.now)
                self._known.setdefault(start.key, []).append((scene.now, self._misses.expected_seconds(seen), bounds))

    def _coming(self, *, play: int, above: int, now_seconds: float) -> Iterator[tuple[float, Candidate]]:
        """What came before comes again, and runs as long as those like it did; or what really comes."""
        if self._later:
            first = bisect_right(self._later, now_seconds, key=lambda each: each.at_seconds)
            for each in self._later[first:]:
                ran, within = self._ran(each.job, 0.0), self._within(each.job, 0.0)
                yield each.at_seconds - now_seconds, replace(each.job, likely_seconds=ran, likely_range=within)
            return
        for at, job in self._arrivals.again(now_seconds=now_seconds, play=play, above=above):
            yield at, replace(job, likely_seconds=self._ran(job, 0.0), likely_range=self._within(job, 0.0))

    def started(self, scene: Scene, run: Running) -> None:
        """What came true of the estimates of a job."""
        self._misses.started(run.of.job.key, now_seconds=scene.now)
        checks, wait = [], max(MINUTE, scene.now - run.of.at_seconds)
        self._at_once += scene.now == run.of.at_seconds
        for at, foreseen, bounds in self._known.pop(run.of.job.key, ()):
            left, width = scene.now - at, bounds.latest_seconds - bounds.earliest_seconds
            checks.append(
                Checked(
                    within=bounds.hold(left),
                    width_by_wait=width / wait,
                    width_by_rest=width / max(MINUTE, left),
                    off_hours=abs(left - foreseen) / 3600,
                )
            )
        self.checks += [checks] if checks else []

    def came(self, scene: Scene, submission: Submission) -> None:
        """A job was submitted."""
        self._arrivals.came(submission.job, at_seconds=scene.now)

    def ended(self, run: Running) -> None:
        """How much of its limit a job used."""
        job = run.of.job
        if self._distributions is not None:
            self._distributions.ended(job, ran_seconds=run.of.ran_seconds)
        self._used.ended(_groups(job), ran_seconds=run.of.ran_seconds, limit_seconds=job.run_seconds)

    def result(self) -> Estimates:
        """All of it; each job counts as one, whatever its number of estimates."""
        first = [checks[0] for checks in self.checks]
        near = [sum(each.off_hours <= minutes / 60 for each in first) for minutes in _NEAR_MINUTES]
        return Estimates(
            jobs=len(self.checks),
            estimates=sum(map(len, self.checks)),
            within_bounds=_mean(fmean(each.within for each in checks) for checks in self.checks),
            median_width_by_wait=_median(median(each.width_by_wait for each in checks) for checks in self.checks),
            median_width_by_rest=_median(median(each.width_by_rest for each in checks) for checks in self.checks),
            median_miss_hours=_median(median(each.off_hours for each in checks) for checks in self.checks),
            first_within_bounds=_mean(each.within for each in first),
            first_median_width_by_wait=_median(each.width_by_wait for each in first),
            first_within=tuple(round(each / max(1, len(first)), 3) for each in near),
            all_within=tuple(round((each + self._at_once) / max(1, len(first) + self._at_once), 3) for each in near),
        )

    def _ran(self, job: Candidate, so_far: float) -> float:
        if job.key in self._runs:
            return self._runs[job.key]
        if self._distributions is not None:
            return self._distributions.quantiles(job, so_far_seconds=so_far, parts=(0.5,))[0]
        return self._used.expected_seconds(_groups(job), limit_seconds=job.run_seconds, so_far_seconds=so_far)

    def _within(self, job: Candidate, so_far: float) -> tuple[float, ...] | None:
        if job.key in self._runs:
            return (self._runs[job.key],)
        if self._distributions is not None:
            return self._distributions.quantiles(job, so_far_seconds=so_far, parts=PARTS)
        return self._used.range_seconds(_groups(job), limit_seconds=job.run_seconds, so_far_seconds=so_far)


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return round(fmean(known), 3) if known else 0.0


def _median(values: Iterable[float]) -> float:
    known = list(values)
    return round(median(known), 3) if known else 0.0


def _groups(job: Candidate) -> tuple[str, ...]:
    """As the operator has them, of one user: the runs of one work by their name first."""
    limit, what = f"limit {job.run_seconds:.0f}", f"{job.workers}x{job.ask.gpu}"
    return f"{job.name.rpartition('-')[0]}/{what}/{limit}", f"{what}/{limit}", limit, about(job.run_seconds), what


def compare(
    jobs: Sequence[Submission], *, nodes: int, foreseeing: Foreseeing, policies: Mapping[str, Policy]
) -> tuple[list[Result], dict[str, list[float]]]:
    """The policies on the same jobs, and the waits in hours, by policy. Ours is foreseen."""
    results, waits = [], {}
    for name, policy in policies.items():
        ours = name == "dovetail"
        hooks: dict[str, Callable[..., None]] = (
            {each: getattr(foreseeing, each) for each in ("came", "watch", "started", "ended")} if ours else {}
        )
        began = time.monotonic()
        starts = play(jobs, ledger=queue_workload.cluster(nodes), policy=policy, **hooks)
        result, waits[name] = _result(name, jobs, starts, nodes=nodes, seconds=time.monotonic() - began)
        results.append(result)
        print(f"{name}: {result.seconds:.0f} s", flush=True)
    return results, waits


def _result(
    name: str, jobs: Sequence[Submission], starts: dict[str, float], *, nodes: int, seconds: float
) -> tuple[Result, list[float]]:
    ran = [each for each in jobs if each.job.key in starts]
    hours = [(starts[each.job.key] - each.at_seconds) / 3600 for each in ran]
    large = [wait for each, wait in zip(ran, hours, strict=True) if gpus_of(each) >= LARGE]
    begin, last = jobs[0].at_seconds, jobs[-1].at_seconds
    used = sum(
        gpus_of(each) * max(0.0, min(last, starts[each.job.key] + each.ran_seconds) - starts[each.job.key])
        for each in ran
    )
    end = max(starts[each.job.key] + each.ran_seconds for each in ran)
    spread = percentiles(hours)
    return (
        Result(
            policy=name,
            mean_wait=round(fmean(hours), 3),
            median_wait=round(spread["median"], 3),
            p95_wait=round(spread["p95"], 2),
            p95_wait_large=round(percentiles(large)["p95"], 2) if large else 0.0,
            longest_wait=round(spread["max"], 1),
            utilization=round(used / (nodes * DEVICES * (last - begin)), 3),
            makespan_days=round((end - begin) / queue_workload.DAY, 2),
            never_started=len(jobs) - len(ran),
            seconds=round(seconds, 1),
        ),
        sorted(hours),
    )


def table(title: str, results: Sequence[Result], estimates: Estimates) -> str:
    """As Markdown."""
    lines = [
        f"\n{title}\n",
        "| policy | mean wait h | median h | p95 h | p95 of large h | longest h | utilisation | days |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {each.policy} | {each.mean_wait:.2f} | {each.median_wait:.2f} | {each.p95_wait:.1f} "
        f"| {each.p95_wait_large:.1f} | {each.longest_wait:.1f} | {each.utilization:.1%} | {each.makespan_days} |"
        for each in results
    ]
    if not estimates.jobs:
        return "\n".join([*lines, "\nnone waited: no start had to be estimated"])
    lines.append(
        f"\n{estimates.estimates} estimates of {estimates.jobs} jobs, at any time: "
        f"{estimates.within_bounds:.0%} within their bounds, median width {estimates.median_width_by_wait:.0%} of the "
        f"wait ({estimates.median_width_by_rest:.0%} of what was left of it), median miss "
        f"{estimates.median_miss_hours:.2f} h; the first of each job: {estimates.first_within_bounds:.0%} within, "
        f"median width {estimates.first_median_width_by_wait:.0%} of the wait; off by at most 1, 10, 60 minutes "
        f"{_parts(estimates.first_within)}, and {_parts(estimates.all_within)} with the jobs that started at once"
    )
    return "\n".join(lines)


def _parts(parts: Iterable[float]) -> str:
    return ", ".join(f"{each:.0%}" for each in parts)


def draw(waits: dict[str, dict[str, list[float]]]) -> Figure:
    """For each workload how many jobs waited no longer than so many hours."""
    figure = Figure(figsize=(6 * len(waits), 4), layout="constrained")
    for axes, (name, by_policy) in zip(figure.subplots(1, len(waits), squeeze=False)[0], waits.items(), strict=True):
        for policy, hours in by_policy.items():
            parts = [100 * (at + 1) / len(hours) for at in range(len(hours))]
            axes.plot([max(each, 0.01) for each in hours], parts, label=policy)
        axes.set(title=name, xlabel="wait in hours", ylabel="jobs in percent", xscale="log", ylim=(0, 101))
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    return figure


if __name__ == "__main__":
    main()
