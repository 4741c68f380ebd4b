"""The commands that list, explain and submit, from start to end of the process, on a cluster with many GPUJobs.

Everything is real: the jobs are created through the API, the operator queues and starts them. Each command runs as a
process of its own, as a user starts it. With `--other` the same commands of another checkout run in turns with these,
by the same Python, so that the ratio does not depend on what else the machine does. `kubectl get gpujobs` runs in turns
with them: what the API server alone takes. `--only` measures the commands whose first word it names.

    python benchmarks/list_commands.py [--jobs 1000] [--nodes 100] [--rounds 15] [--other CHECKOUT] [--only WORDS]
        [--json FILE]
"""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import plane
import queue_plane
from counts import count
from queue_plane import NAMESPACE

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, ServerFault
from dovetail_sandbox import progress
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate

ROOTS = (
    "core", "operator", "scheduler_extender", "node_agent", "admission_webhook", "cli", "sandbox",
)  # fmt: skip
COMMANDS = (
    ("gqueue",), ("gqueue", "-a"), ("gqueue", "-o", "json"), ("ginfo",), ("ginfo", "--by-job"), ("top",), ("quota",),
    ("gstats",), ("explain", "job", "job-00000"), ("gbatch", "--dry-run", "--gpus", "1", "true"),
    ("gbatch", "--gpus", "1", "true"),
)  # fmt: skip
HELPS = (
    ("gqueue", "--help"),
    ("ginfo", "--help"),
    ("gbatch", "--help"),
    ("gjob", "log", "--help"),
    ("doctor", "--help"),
)
TARGET_SECONDS = 0.5
HELP_TARGET_SECONDS = 0.2
ATTEMPTS = 10


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--jobs", type=count, default=1_000, help="jobs of one GPU each (default: %(default)s)")
    options.add_argument("--nodes", type=count, default=100, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=15, help="runs of each command (default: %(default)s)")
    options.add_argument("--other", type=Path, help="another checkout, whose commands run in turns with these")
    options.add_argument("--only", nargs="+", default=(), help="only commands with these first words (default: all)")
    options.add_argument("--json", type=Path, default=Path("out/list_commands.json"), help="where it is written too")
    args = options.parse_args()
    with queue_plane.sandbox(nodes=queue_plane.gpu_nodes(args.nodes)) as made:
        asyncio.run(fill(made, jobs=args.jobs, running=8 * args.nodes))
        found = measure(made, rounds=args.rounds, other=args.other, only=args.only)
    queue_plane.report({"jobs": args.jobs, "nodes": args.nodes, "rounds": args.rounds, **found}, path=args.json)


async def fill(made: Cluster, *, jobs: int, running: int) -> None:
    """Create the jobs, and wait until as many run as have room and each of the others has its reason."""
    async with plane.client_of(made) as client:
        await plane.each([queue_plane.job(f"job-{at:05d}") for at in range(jobs)], partial(create, client), what="jobs")
        while not await settled(client, jobs=jobs, running=min(jobs, running)):  # noqa: ASYNC110 - it is a poll
            await asyncio.sleep(1.0)


async def create(client: Client, body: dict[str, Any]) -> None:
    """Create a job, again where the API server did not reach the webhook, which many requests at a time bring about."""
    for attempt in range(ATTEMPTS):
        try:
            with suppress(AlreadyExists):
                await client.create(GPUJOBS, body=body, as_type=dict[str, Any], namespace=NAMESPACE)
        except ServerFault:
            if attempt + 1 == ATTEMPTS:
                raise
            await asyncio.sleep(0.5)
        else:
            return


async def settled(client: Client, *, jobs: int, running: int) -> bool:
    """Whether all jobs have a number and a phase, and as many run as have room."""
    found, _ = await client.list(GPUJOBS, as_type=GPUJob, namespace=NAMESPACE)
    seen = sum(job.status.number is not None and job.status.phase is not None for job in found)
    return seen >= jobs and sum(job.status.phase == "Running" for job in found) >= running


def measure(made: Cluster, *, rounds: int, other: Path | None, only: Sequence[str] = ()) -> dict[str, Any]:
    """Wall and CPU seconds of every command, medians over the rounds."""
    here = Path(__file__).resolve().parent.parent
    checkouts = {"this": here} | ({} if other is None else {"other": other.resolve()})
    kubectl = str(locate.resolve(["kubectl"], report=progress.reporter())["kubectl"])
    listing = [kubectl, "get", "gpujobs", "--namespace", NAMESPACE]
    found = {
        " ".join(command): compared(made, command, checkouts=checkouts, rounds=rounds, reference=listing)
        for command in (*COMMANDS, *HELPS)
        if not only or command[0] in only
    }
    return {"target_seconds": TARGET_SECONDS, "help_target_seconds": HELP_TARGET_SECONDS, "commands": found}


def compared(
    made: Cluster, command: Sequence[str], *, checkouts: Mapping[str, Path], rounds: int, reference: Sequence[str]
) -> dict[str, float | str]:
    """One command of each checkout and the reference in turns; one run before the rounds fills the caches."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in (*checkouts, "kubectl")}
    try:
        for at in range(rounds + 1):
            taken = {
                name: timed(program(command), environment=environment(made, checkout=checkout))
                for name, checkout in checkouts.items()
            }
            taken["kubectl"] = timed(reference, environment=environment(made, checkout=checkouts["this"]))
            if at:
                for name, each in taken.items():
                    runs[name].append(each)
    except subprocess.CalledProcessError as error:
        return {"failed": f"exit code {error.returncode}"}
    found = summary(runs)
    print(f"{' '.join(command)}: {found}", flush=True)
    return found


def program(command: Sequence[str]) -> list[str]:
    """The command line of one of ours. Quotas are of the cluster; all others look at one namespace."""
    namespace = [] if command[0] == "quota" or "--help" in command else ["--namespace", NAMESPACE]
    # The words after gbatch's options are the job's command.
    words = [command[0], *namespace, *command[1:]] if command[0] == "gbatch" else [*command, *namespace]
    return [sys.executable, "-m", "dovetail_cli", *words]


def environment(made: Cluster, *, checkout: Path) -> dict[str, str]:
    """The packages of that checkout come before the installed ones. Byte code is kept, as it is for a user."""
    path = os.pathsep.join(str(checkout / root) for root in ROOTS)
    mine = {"PYTHONPATH": path, "KUBECONFIG": str(made.kubeconfig), "PYTHONDONTWRITEBYTECODE": ""}
    return {**os.environ, **mine}


def timed(command: Sequence[str], *, environment: Mapping[str, str]) -> tuple[float, float]:
    """Seconds by the clock, and of CPU in the process itself."""
    began = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as running:
        _, status, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(status)
    if running.returncode != 0:
        raise subprocess.CalledProcessError(running.returncode, list(command))
    return time.monotonic() - began, used.ru_utime + used.ru_stime


def summary(runs: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, float | str]:
    """Medians; with another checkout also how many times faster this one is, as the median of the pairs."""
    found: dict[str, float | str] = {}
    for name, pairs in runs.items():
        found[f"{name}_seconds"] = round(statistics.median(wall for wall, _ in pairs), 3)
        found[f"{name}_cpu_seconds"] = round(statistics.median(cpu for _, cpu in pairs), 3)
    if "other" in runs:
        ratios = [old[0] / new[0] for new, old in zip(runs["this"], runs["other"], strict=True)]
        found["times_faster"] = round(statistics.median(ratios), 2)
    return found


if __name__ == "__main__":
    main()
