"""Compare ways to queue the same jobs on several clusters: waits, waits of gangs, and utilization of the GPUs.

- `home`: separate clusters. Each team uses its own.
- `least`: one submission point; each job goes to the cluster with the fewest running and requested GPUs.
- `earliest`: to the cluster whose queue expects to start it first, if all jobs run as long as their limits.
- `learned`: the same with run times that are learned from the runs so far.
- `race`: MultiKueue's all-at-once; each job waits in each queue, and the first cluster that admits it runs it.
- `one`: one queue over all clusters, as if they were one.

No gang spans clusters. Each queue is Dovetail's own. The jobs are those of `queue_workload.py`: as they come
(`steady`), and with teams that are busy in bursts of one to three days (`bursts`). With `--tied`, that share of the
jobs can run only on the cluster of its team, because its data is there.

    python benchmarks/fleet.py [--clusters 4] [--nodes 6] [--jobs 1000] [-o json] [--json FILE] [--plot FILE]
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final

import queue_workload
from counts import count
from matplotlib.figure import Figure
from queue_plane import percentiles
from queue_workload import DAY, DEVICES, gpus_of

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.estimates.expectations import RunTimesUsed
from dovetail.queue.model.candidates import Candidate
from dovetail.simulator import dispatch, fleet, queue_replay
from dovetail.simulator.fleet import Arrival

WAYS: Final = ("home", "least", "earliest", "learned", "race", "one")
WORKLOADS: Final = ("steady", "bursts")
TEAMS: Final = 20
HOUR: Final = 3600.0
# A gang that waits longer than this counts as starved.
STARVED_HOURS: Final = 24.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to queue one workload, of which the share `tied` can run only where its team is."""

    way: str
    workload: str
    tied: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one case. Waits are in hours; gangs are jobs on more than one node; `starved`, `away` and
    `utilization` are shares."""

    mean_wait: float
    p95_wait: float
    longest_wait: float
    worst_team_mean_wait: float
    gang_mean_wait: float
    gang_p95_wait: float
    starved: float
    utilization: float
    away: float
    never_started: int
    cpu_seconds: float


class Learned:
    """Run times as jobs of the same size and limit had them so far."""

    def __init__(self) -> None:
        self._used = RunTimesUsed()

    def ended(self, run: queue_replay.Running) -> None:
        """Learn from one run."""
        job = run.of.job
        self._used.ended(_groups(job), ran_seconds=run.of.ran_seconds, limit_seconds=job.run_seconds)

    def ran(self, job: Candidate, so_far_seconds: float) -> float:
        """How long a job runs in total, in seconds."""
        return self._used.expected_seconds(_groups(job), limit_seconds=job.run_seconds, so_far_seconds=so_far_seconds)


def _groups(job: Candidate) -> tuple[str, ...]:
    limit, what = f"limit {job.run_seconds:.0f}", f"{job.workers}x{job.ask.gpu}"
    return f"{what}/{limit}", limit, what


def main() -> None:
    args = _options()
    cases = [Case(way=way, workload=each, tied=0.0) for each in WORKLOADS for way in WAYS]
    cases += [Case(way=way, workload="bursts", tied=share) for share in args.tied for way in WAYS[1:]]
    with ProcessPoolExecutor(max_workers=args.processes) as pool:
        results = []
        for case, result in zip(cases, pool.map(partial(run, args=args), cases), strict=True):
            results.append((case, result))
            print(_line(case, result), file=sys.stderr, flush=True)
    found = [{**asdict(case), **asdict(result)} for case, result in results]
    text = json.dumps({"clusters": args.clusters, "nodes": args.nodes, "jobs": args.jobs, "cases": found}, indent=2)
    for path in (args.json, args.plot):
        path.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(text + "\n")
    draw(found).savefig(args.plot, dpi=110)
    print(text if args.output == "json" else table(results))


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--clusters", type=count, default=4, help="clusters of one size (default: %(default)s)")
    options.add_argument("--nodes", type=count, default=6, help="nodes of each, with 8 GPUs (default: %(default)s)")
    options.add_argument("--jobs", type=count, default=1_000, help="jobs of all teams (default: %(default)s)")
    options.add_argument("--days", type=float, default=7.0, help="time in which they come (default: %(default)s)")
    options.add_argument("--load", type=float, default=0.9, help="share of the GPU time needed (default: %(default)s)")
    options.add_argument("--tied", type=float, nargs="*", default=[0.5], help="shares tied to data (default: 0.5)")
    options.add_argument("--seed", type=int, default=42, help="of the jobs and teams (default: %(default)s)")
    options.add_argument("--processes", type=int, default=2, help="cases at a time (default: %(default)s)")
    options.add_argument("-o", "--output", choices=("table", "json"), default="table", help="what is printed")
    options.add_argument("--json", type=Path, default=Path("out/fleet.json"), help="the results as a file too")
    options.add_argument("--plot", type=Path, default=Path("out/fleet.png"), help="the waits, as .png or .svg")
    args = options.parse_args()
    if args.clusters < 1:
        options.error(f"--clusters {args.clusters}: at least 1")
    if args.nodes < queue_workload.LARGEST:
        options.error(
            f"--nodes {args.nodes}: at least {queue_workload.LARGEST}, so that each cluster has room for each job"
        )
    if wrong := [share for share in args.tied if not 0 <= share <= 1]:
        options.error(f"--tied {wrong[0]:g}: a share from 0 to 1")
    return args


def run(case: Case, *, args: argparse.Namespace) -> Result:
    """Play one case."""
    arrivals, began = workload(case, args=args), time.process_time()
    ledgers = {name: queue_workload.cluster(args.nodes, prefix=name) for name in _names(args.clusters)}
    started = play(case.way, arrivals, ledgers=ledgers)
    seconds = time.process_time() - began
    return _result(arrivals, started, gpus=args.clusters * args.nodes * DEVICES, cpu_seconds=seconds)


def _names(clusters: int) -> list[str]:
    return [f"cluster-{at}" for at in range(clusters)]


def workload(case: Case, *, args: argparse.Namespace) -> list[Arrival]:
    """The jobs with their teams; teams are spread evenly over the clusters."""
    rng = Random(args.seed)
    jobs = queue_workload.synthetic(
        jobs=args.jobs, nodes=args.clusters * args.nodes, days=args.days, load=args.load, seed=args.seed
    )
    teams = [rng.randrange(TEAMS) for _ in jobs]
    moments = [job.at_seconds for job in jobs]
    if case.workload == "bursts":
        moments, teams = zip(*sorted((_moment_of(team, days=args.days, rng=rng), team) for team in teams), strict=True)
    names, found = _names(args.clusters), []
    for submission, team, at in zip(jobs, teams, moments, strict=True):
        job = replace(submission.job, created=f"{at:012.1f}", name=f"team-{team:02d}/{submission.job.key}")
        home = names[team % args.clusters]
        data = (home,) if rng.random() < case.tied else ()
        found.append(Arrival(submission=replace(submission, job=job, at_seconds=at), home=home, data=data))
    return found


def _moment_of(team: int, *, days: float, rng: Random) -> float:
    """When a job of a team comes that is busy in bursts: about one in five days begins one, of one to three days."""
    number = rng.randrange(max(1, round(days / 5)))
    burst = Random(1000 * team + number)
    length = burst.uniform(1, 3)
    return (burst.uniform(0, max(0.1, days - length)) + rng.uniform(0, length)) * DAY


def play(way: str, arrivals: Sequence[Arrival], *, ledgers: Mapping[str, Ledger]) -> dict[str, fleet.Started]:
    """Where and when each job started."""
    if way == "one":
        joined, ledger, sites = fleet.one_cluster(arrivals, ledgers=ledgers)
        clusters = {name: cluster for cluster, of in ledgers.items() for name in of.nodes()}
        where: dict[str, str] = {}
        starts = queue_replay.play(
            [each.submission for each in joined],
            ledger=ledger,
            policy=partial(queue_replay.easy_backfill, sites=sites),
            started=lambda _scene, run: where.update({run.of.job.key: clusters[run.claims[0].node]}),
        )
        return {key: fleet.Started(cluster=where[key], at_seconds=at) for key, at in starts.items()}
    learned = Learned()
    dispatchers: dict[str, fleet.Dispatcher] = {
        "home": dispatch.to_home,
        "least": dispatch.least_loaded,
        "earliest": dispatch.EarliestStart(),
        "learned": dispatch.EarliestStart(ran=learned.ran),
        "race": dispatch.first_to_admit,
    }
    return fleet.play(arrivals, ledgers=ledgers, dispatch=dispatchers[way], ended=learned.ended)


def _result(
    arrivals: Sequence[Arrival], started: Mapping[str, fleet.Started], *, gpus: int, cpu_seconds: float
) -> Result:
    ran = [(each, started[each.key]) for each in arrivals if each.key in started]
    hours = {each.key: (start.at_seconds - each.submission.at_seconds) / HOUR for each, start in ran}
    gangs = [hours[each.key] for each, _ in ran if each.submission.job.workers > 1]
    begin, last = arrivals[0].submission.at_seconds, arrivals[-1].submission.at_seconds
    used = 0.0
    for each, start in ran:
        until = min(last, start.at_seconds + each.submission.ran_seconds)
        used += gpus_of(each.submission) * max(0.0, until - start.at_seconds)
    by_team = defaultdict[str, list[float]](list)
    for each, _ in ran:
        by_team[each.submission.job.name.partition("/")[0]].append(hours[each.key])
    waits, of_gangs = percentiles(list(hours.values())), percentiles(gangs or [0.0])
    return Result(
        mean_wait=round(fmean(hours.values()), 2),
        p95_wait=round(waits["p95"], 1),
        longest_wait=round(waits["max"], 1),
        worst_team_mean_wait=round(max(map(fmean, by_team.values())), 2),
        gang_mean_wait=round(fmean(gangs or [0.0]), 1),
        gang_p95_wait=round(of_gangs["p95"], 1),
        starved=round(sum(wait > STARVED_HOURS for wait in gangs) / max(1, len(gangs)), 3),
        utilization=round(used / (gpus * (last - begin)), 3),
        away=round(sum(start.cluster != each.home for each, start in ran) / len(ran), 3),
        never_started=len(arrivals) - len(ran),
        cpu_seconds=round(cpu_seconds, 1),
    )


def table(results: Sequence[tuple[Case, Result]]) -> str:
    """The results as Markdown."""
    head = (
        "| jobs | way | mean wait | 95 % | worst team | gangs, mean | gangs, 95 % | gangs over 24 h | GPUs used "
        "| away from home |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    return "\n".join([head, *(_line(case, result) for case, result in results)])


def _line(case: Case, result: Result) -> str:
    jobs = case.workload + (f", {case.tied:.0%} tied" if case.tied else "")
    waits = (result.mean_wait, result.p95_wait, result.worst_team_mean_wait)
    of_gangs = (result.gang_mean_wait, result.gang_p95_wait)
    hours = [f"{wait:.1f} h" for wait in (*waits, *of_gangs)]
    shares = [f"{100 * share:.1f} %" for share in (result.starved, result.utilization, result.away)]
    return f"| {' | '.join([jobs, case.way, *hours, *shares])} |"


def draw(found: Sequence[Mapping[str, Any]]) -> Figure:
    """The mean waits of all jobs and of gangs, for each way."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    groups = list(dict.fromkeys((each["workload"], each["tied"]) for each in found))
    for axes, what, title in zip(
        figure.subplots(1, 2), ("mean_wait", "gang_mean_wait"), ("all jobs", "gangs on several nodes"), strict=True
    ):
        for at, (name, tied) in enumerate(groups):
            waits = {each["way"]: each[what] for each in found if (each["workload"], each["tied"]) == (name, tied)}
            places = [WAYS.index(way) + (at - (len(groups) - 1) / 2) * 0.8 / len(groups) for way in waits]
            label = name + (f", {tied:.0%} tied to their data" if tied else "")
            axes.bar(places, list(waits.values()), width=0.8 / len(groups), label=label)
        axes.set(title=title, ylabel="mean wait in hours")
        axes.set_xticks(range(len(WAYS)), list(WAYS))
        axes.legend()
    return figure


if __name__ == "__main__":
    main()
