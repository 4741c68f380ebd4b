"""A replay from options to summary: the jobs, the place where they run, the campaign.

A module of its own: it loads the simulator and the API client, which the options in `command` do not wait for.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.formats.durations import brief
from dovetail.simulator.trace import Pod, TraceError, parse_timed_pods
from dovetail_cli import sandboxes
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.replay import campaign, progress
from dovetail_cli.replay.jobs import Pace, job_of
from dovetail_cli.replay.report import Summary, summarise
from dovetail_cli.ui import job_names
from dovetail_cli.ui.errors import UsageError
from dovetail_cli.ui.files import read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the jobs run: the named sandbox, else the cluster that the options name."""

    namespace: str
    sandbox: str | None = None
    nodes: Path | None = None
    limit_nodes: int | None = None
    keep: bool = False
    kubeconfig: str | None = None
    context: str | None = None


def read_jobs(path: Path, *, limit: int | None, pace: Pace, namespace: str) -> list[GPUJob]:
    """The jobs of a trace, and a word on how long the longest of them makes the replay."""
    pods = _read_pods(path)[:limit]
    jobs = [job_of(pod, pace=pace, namespace=namespace) for pod in pods]
    longest = max(jobs, key=_run_seconds)
    if _run_seconds(longest) > 60:
        print(
            f"The longest job, {longest.metadata.name}, runs {brief(_run_seconds(longest))}: "
            "a larger --speedup or --max-run 60s makes this shorter.",
            file=sys.stderr,
        )
    return jobs


def _read_pods(path: Path) -> list[Pod]:
    """The pods in the order of their arrival.

    Raises `UsageError`, also for a name that no job can have.
    """
    try:
        pods = parse_timed_pods(read_text(path), source=str(path))
    except TraceError as error:
        raise UsageError(str(error)) from error
    for pod in pods:
        job_names.check_object_name(pod.name, field=f'{path}, column "name":')
    return pods


def drive(jobs: Sequence[GPUJob], *, place: Place, title: str) -> Summary:
    """Run the jobs at that place and return how it went."""
    with _cluster_of(place) as kubeconfig, progress.progress(title=title) as watcher:

        async def go(cluster: Cluster) -> campaign.Ended:
            return await campaign.run(cluster, jobs=jobs, watcher=watcher)

        return summarise(work(go, kubeconfig=kubeconfig, context=place.context, namespace=place.namespace))


@contextmanager
def _cluster_of(place: Place) -> Iterator[str | None]:
    """The kubeconfig of the place.

    A new sandbox is removed at the end, unless it is to be kept.
    """
    if place.sandbox is None:
        yield place.kubeconfig
        return
    config = sandboxes.kubeconfig(place.sandbox)
    ours = not config.exists()
    sandboxes.up(place.sandbox, nodes=None if place.nodes is None else str(place.nodes), limit_nodes=place.limit_nodes)
    try:
        yield str(config)
    finally:
        if ours and not place.keep:
            sandboxes.down(place.sandbox)


def _run_seconds(job: GPUJob) -> int:
    return int(job.spec.template.metadata.annotations.get(names.RUN_SECONDS, "0"))
