"""Compare the forecast of `dovetail observe report` with Dovetail really run: `python benchmarks/observe_forecast.py`.

The same jobs arrive at the same times on two sandboxes with equal simulated nodes. The first has the preset `observe`:
plain kube-scheduler places the pods of batch Jobs, and the report says what their mean wait would be under Dovetail.
The second runs Dovetail, and the jobs are GPUJobs. Jobs run for minutes where real ones run for hours, so what the
control plane takes for each start weighs more here than on a cluster. The figures go to out/observe_forecast.json and
to standard output.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dovetail import names
from dovetail.answers.observe import Forecast
from dovetail.api.builtin import Namespace, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import find_condition
from dovetail.api.resources import GPUJOBS, JOBS, NAMESPACES, PODS, SERVICEACCOUNTS
from dovetail.formats.timestamps import moment
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail_cli.cluster.connection import Cluster as Connected
from dovetail_cli.observe.look import report
from dovetail_sandbox.cluster import Cluster

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from counts import count

from tests.cluster.sandboxes import sandbox_with

ROOT: Final = Path(__file__).resolve().parents[1]
PRESET: Final = ROOT / "helm" / "dovetail" / "presets" / "observe.yaml"
NAMESPACE: Final = "bench"
GPU: Final = "nvidia.com/gpu"
# 32 devices; on the first sandbox a vendor's plugin has them.
NODES: Final = """
- {{name: a100, count: 3, model: A100, devices: 8, memory_mib: 81920, cpu: 96, memory: 768Gi{resource}}}
- {{name: t4, count: 2, model: T4, devices: 4, memory_mib: 16384, cpu: 32, memory: 256Gi{resource}}}
- {{name: cpu, count: 1, cpu: 64, memory: 256Gi}}
"""
SIZES: Final = ((1, 2, 4, 8), (35, 25, 25, 15))
RUN_SECONDS: Final = (30, 150)
GAP_SECONDS: Final = 4.0
# The part of the jobs that have a time limit, which is this much longer than the run.
LIMITED: Final = 0.5
LIMIT_BY_RUN: Final = (1.2, 3.0)
_PATIENCE_SECONDS: Final = 3600.0
_LOOK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A job of one pod: when it comes, what it asks for, how long it runs, and its time limit."""

    name: str
    at_seconds: float
    gpus: int
    cpu: int
    run_seconds: int
    limit_seconds: int | None


def arrivals(count: int, *, seed: int) -> list[Arrival]:
    """A burst of jobs that come faster than the nodes can run them."""
    draw, at_seconds, found = random.Random(seed), 0.0, []
    for number in range(count):
        run_seconds = draw.randint(*RUN_SECONDS)
        limit = round(run_seconds * draw.uniform(*LIMIT_BY_RUN))
        found.append(
            Arrival(
                name=f"job-{number}",
                at_seconds=at_seconds,
                gpus=draw.choices(*SIZES)[0],
                cpu=draw.choice([1, 2, 4]),
                run_seconds=run_seconds,
                limit_seconds=limit if draw.random() < LIMITED else None,
            )
        )
        at_seconds += draw.expovariate(1 / GAP_SECONDS)
    return found


Submit = Callable[[Client, Arrival], Awaitable[object]]


async def as_batch_job(client: Client, arrival: Arrival) -> None:
    """A batch Job as it is where Dovetail is not installed."""
    spec = _template(arrival, limits={GPU: str(arrival.gpus)})
    spec["spec"] |= {"restartPolicy": "Never"}
    if arrival.limit_seconds is not None:
        spec["spec"] |= {"activeDeadlineSeconds": arrival.limit_seconds}
    body = {"metadata": {"name": arrival.name}, "spec": {"template": spec, "backoffLimit": 0}}
    await client.create(JOBS, body=body, as_type=dict[str, Any], namespace=NAMESPACE)


async def as_gpujob(client: Client, arrival: Arrival) -> None:
    """The same as a GPUJob."""
    spec: dict[str, Any] = {"gpu": arrival.gpus, "template": _template(arrival, limits={})}
    if arrival.limit_seconds is not None:
        spec["activeDeadlineSeconds"] = arrival.limit_seconds
    body = {
        "apiVersion": names.API_VERSION,
        "kind": GPUJOBS.kind,
        "metadata": {"name": arrival.name},
        "spec": spec,
    }
    await client.create(GPUJOBS, body=body, as_type=GPUJob, namespace=NAMESPACE)


def _template(arrival: Arrival, *, limits: Mapping[str, str]) -> dict[str, Any]:
    requests = {"cpu": str(arrival.cpu), "memory": "1Gi"}
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": dict(limits)}}
    return {
        "metadata": {"annotations": {names.RUN_SECONDS: str(arrival.run_seconds)}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }


@dataclass(slots=True, kw_only=True)
class Played:
    """What became of the jobs of one sandbox: the waits in seconds of those that have started, by name."""

    waited: dict[str, float]
    ended: set[str]

    async def look(self, client: Client, *, gpujobs: bool) -> None:
        """Read the pods. Later looks may not find those of jobs that have ended."""
        created: dict[str, str] = {}
        if gpujobs:
            jobs = (await client.list(GPUJOBS, as_type=GPUJob, namespace=NAMESPACE)).items
            created = {job.metadata.name: job.metadata.creation_timestamp for job in jobs}
        for pod in (await client.list(PODS, as_type=Pod, namespace=NAMESPACE)).items:
            name = pod.metadata.labels["batch.kubernetes.io/job-name"]
            bound = find_condition(pod.status.conditions, type="PodScheduled")
            if pod.spec.node_name and bound is not None and bound.last_transition_time is not None:
                came = created[name] if gpujobs else pod.metadata.creation_timestamp
                self.waited[name] = (moment(bound.last_transition_time) - moment(came)).total_seconds()
            if pod.status.phase in {"Succeeded", "Failed"}:
                assert pod.status.phase == "Succeeded", f"{name} failed: {pod.status}"
                self.ended.add(name)


async def play(client: Client, jobs: Sequence[Arrival], *, submit: Submit, what: str) -> Played:
    """Submit each job at its time, and look until all have ended."""
    await client.create(NAMESPACES, body={"metadata": {"name": NAMESPACE}}, as_type=Namespace)
    await _has_account(client)
    loop, played = asyncio.get_running_loop(), Played(waited={}, ended=set())
    began = loop.time()

    async def submit_all() -> None:
        for each in jobs:
            await asyncio.sleep(max(0.0, began + each.at_seconds - loop.time()))
            await submit(client, each)

    submits = asyncio.create_task(submit_all())
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while len(played.ended) < len(jobs):
            await asyncio.sleep(_LOOK_SECONDS)
            await played.look(client, gpujobs=submit is as_gpujob)
    await submits
    print(f"{what}: all jobs have ended after {loop.time() - began:.0f} s", file=sys.stderr)
    return played


async def _has_account(client: Client) -> None:
    """Wait for the account that pods of the namespace get: without it, the Job controller waits for ever longer."""
    async with asyncio.timeout(_PATIENCE_SECONDS):
        while True:
            if (await client.list(SERVICEACCOUNTS, as_type=dict[str, Any], namespace=NAMESPACE)).items:
                return
            await asyncio.sleep(0.2)


async def observed(sandbox: Cluster, jobs: Sequence[Arrival]) -> Forecast:
    """What the report says once kube-scheduler has run the jobs."""
    async with Client(load_connection(sandbox.kubeconfig)) as client:
        await play(client, jobs, submit=as_batch_job, what="kube-scheduler")
        return await report(Connected(client=client, namespace=NAMESPACE))


async def run_really(sandbox: Cluster, jobs: Sequence[Arrival]) -> Mapping[str, float]:
    """The waits in seconds under Dovetail, by job."""
    async with Client(load_connection(sandbox.kubeconfig)) as client:
        return (await play(client, jobs, submit=as_gpujob, what="Dovetail")).waited


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The waits in seconds of each job, in the order of the arrivals."""

    jobs: Sequence[Arrival]
    theirs: Sequence[float]
    forecast: Sequence[float]
    real: Sequence[float]
    reproduced: float

    def figures(self) -> dict[str, Any]:
        """The error of the forecast's mean wait, and what it is made of."""
        apart = [abs(one - other) for one, other in zip(self.forecast, self.real, strict=True)]
        means = {
            "kube_scheduler": fmean(self.theirs),
            "forecast": fmean(self.forecast),
            "dovetail": fmean(self.real),
        }
        return {
            "jobs": len(self.jobs),
            "reproduced": self.reproduced,
            "mean_wait_seconds": {name: round(seconds, 1) for name, seconds in means.items()},
            # Nothing to compare where no job waits.
            "error_of_mean_wait": round(means["forecast"] / means["dovetail"] - 1, 4) if means["dovetail"] else None,
            "median_wait_seconds": {
                "kube_scheduler": median(self.theirs),
                "forecast": median(self.forecast),
                "dovetail": median(self.real),
            },
            "apart_seconds": {"median": round(median(apart), 1), "most": round(max(apart), 1)},
            "within_10_seconds": round(sum(each <= 10 for each in apart) / len(apart), 3),
            "waits": [
                {"name": job.name, "gpus": job.gpus, "kube_scheduler": theirs, "forecast": one, "dovetail": other}
                for job, theirs, one, other in zip(self.jobs, self.theirs, self.forecast, self.real, strict=True)
            ],
        }


def compared(jobs: Sequence[Arrival], *, found: Forecast, waited: Mapping[str, float]) -> Compared:
    """The waits of both runs and of the forecast, job by job."""
    items = {item.owner.removeprefix("Job/"): item for item in found.items}
    missing = [job.name for job in jobs if items[job.name].under_dovetail is None]
    assert not missing, f"the forecast does not start {missing}"
    return Compared(
        jobs=jobs,
        theirs=[items[job.name].waited for job in jobs],
        forecast=[items[job.name].under_dovetail or 0.0 for job in jobs],
        real=[waited[job.name] for job in jobs],
        reproduced=found.reproduced,
    )


def draw(found: Compared) -> Figure:
    """How many jobs wait over time, and each job's wait as it was forecast and as it was."""
    figure = Figure(figsize=(10, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    for waits, label, style in (
        (found.forecast, "Dovetail, as forecast", {"color": "#cc6677", "ls": "--"}),
        (found.real, "Dovetail, as it was", {"color": "#4477aa"}),
    ):
        _queue(left, jobs=found.jobs, waits=waits, label=label, **style)
    left.set(xlabel="seconds since the first job came", ylabel="jobs that wait")
    left.legend(loc="upper right")
    right.scatter(found.forecast, found.real, s=[12 * job.gpus for job in found.jobs], alpha=0.5, color="#4477aa")
    most = max(*found.forecast, *found.real)
    right.plot([0, most], [0, most], color="black", lw=0.8)
    right.set(xlabel="wait as forecast, in s", ylabel="wait as it was, in s")
    return figure


def _queue(axes: Axes, *, jobs: Sequence[Arrival], waits: Sequence[float], label: str, **style: Any) -> None:
    came = [(job.at_seconds, 1) for job in jobs]
    started = [(job.at_seconds + wait, -1) for job, wait in zip(jobs, waits, strict=True)]
    changes = sorted(came + started, key=lambda change: (change[0], -change[1]))
    count, at, counts = 0, [0.0], [0]
    for seconds, change in changes:
        count += change
        at.append(seconds)
        counts.append(count)
    axes.step(at, counts, where="post", label=label, **style)


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--jobs", type=count, default=80, help="how many arrive (default: %(default)s)")
    options.add_argument("--seed", type=int, default=35, help="of the arrivals (default: %(default)s)")
    options.add_argument("--plot", type=Path, help="the comparison as a picture, as .png or .svg")
    options.add_argument("--json", type=Path, default=Path("out/observe_forecast.json"), help="where it is written too")
    asked = options.parse_args()
    jobs = arrivals(asked.jobs, seed=asked.seed)
    with tempfile.TemporaryDirectory() as folder:
        vendor, managed = Path(folder) / "vendor.yaml", Path(folder) / "managed.yaml"
        vendor.write_text(NODES.format(resource=f", resource: {GPU}"), encoding="utf-8")
        managed.write_text(NODES.format(resource=""), encoding="utf-8")
        # The programs of a sandbox have accounts in one namespace.
        with sandbox_with(nodes_file=vendor, values_file=PRESET, overrides=["agent.namespace="]) as sandbox:
            found = asyncio.run(observed(sandbox, jobs))
        with sandbox_with(nodes_file=managed) as sandbox:
            waited = asyncio.run(run_really(sandbox, jobs))
    both = compared(jobs, found=found, waited=waited)
    figures = both.figures()
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: value for name, value in figures.items() if name != "waits"}, indent=1))
    if asked.plot:
        draw(both).savefig(asked.plot, dpi=110)


if __name__ == "__main__":
    main()
