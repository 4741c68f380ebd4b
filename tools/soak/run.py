"""One soak, from its start to its record."""

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dovetail.api.resources import GPUQUOTAS, NAMESPACES
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail_sandbox import bringup, progress
from dovetail_sandbox.cluster import Cluster
from tools.soak import controllers, disturb, measure
from tools.soak.disturb import Disturber
from tools.soak.job_kinds import GUARANTEED, SHARED
from tools.soak.load import Load
from tools.soak.record import Disturbed, Record
from tools.soak.schedule import Disturbance, Kind, plan

_SANDBOX: Final = "soak"
_NODES: Final = Path(__file__).with_name("nodes.yaml")
# Jobs that have not ended: about twice as many as the nodes of the sandbox take at once.
_MOST_UNFINISHED: Final = 120
_SAYS_SECONDS: Final = 60.0
_OVERRIDES: Final = (
    "config.preemption.priority_gap=100",
    "config.preemption.min_run=2",
    "config.preemption.grace=2",
    # Jobs that end for a guarantee end at once.
    "config.preemption.reclaim_grace=0",
    "config.preemption.per_hour=100000",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a soak runs.

    seconds        how long jobs come
    every_seconds  mean time between disturbances
    end_seconds    how long what waits may take to end after that
    seed           of jobs and disturbances
    per_second     mean number of jobs
    """

    seconds: float
    every_seconds: float
    end_seconds: float
    seed: int
    per_second: float

    @property
    def sample_seconds(self) -> float:
        """Time between two samples of memory: some two hundred for each program."""
        return max(1.0, self.seconds / 200)


def soak(options: Options, *, say: Callable[[str], None]) -> Record:
    """Run a soak on a sandbox of its own, and remove the sandbox.

    Raises `SandboxError` if that does not come up.
    """
    with tempfile.TemporaryDirectory(prefix="dovetail-soak-") as folder:
        clock = Path(folder) / "clock"
        environment = disturb.clock_environment(clock)
        disturb.inherit(environment)
        sandbox = bringup.up(
            _SANDBOX, report=progress.reporter(), overrides=_OVERRIDES, nodes_file=_NODES, with_=controllers.NEIGHBOURS
        )
        record = Record(
            seconds=options.seconds,
            seed=options.seed,
            nodes=sandbox.state().nodes,
            date=datetime.now(UTC).date().isoformat(),
            left_out=[] if environment else ["steps of the clock: libfaketime is not installed"],
        )
        disturber = Disturber(sandbox=sandbox, clock=clock)
        try:
            asyncio.run(
                _run(sandbox, options=options, record=record, disturber=disturber, say=say, folder=Path(folder))
            )
        finally:
            disturber.close()
            sandbox.down()
    return record


async def _run(
    sandbox: Cluster,
    *,
    options: Options,
    record: Record,
    disturber: Disturber,
    say: Callable[[str], None],
    folder: Path,
) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(disturber.open())
        client = await stack.enter_async_context(Client(load_connection(sandbox.kubeconfig)))
        await _make_teams(client)
        await stack.enter_async_context(controllers.running(client, sandbox=sandbox, namespace=SHARED, folder=folder))
        began = time.monotonic()

        def now() -> float:
            return time.monotonic() - began

        load = Load(client, seed=options.seed, now=now)
        leave_out: tuple[Kind, ...] = ("clock",) if record.left_out else ()
        disturbances = plan(
            total_seconds=options.seconds, every_seconds=options.every_seconds, seed=options.seed, leave_out=leave_out
        )
        background = [
            asyncio.create_task(each)
            for each in (
                load.follow(),
                measure.sample(sandbox, record=record, now=now, every_seconds=options.sample_seconds),
                measure.audit_all_along(sandbox, record=record, now=now, say=say),
                _say(load, record=record, say=say, now=now),
            )
        ]
        try:
            await asyncio.gather(
                load.submit(seconds=options.seconds, per_second=options.per_second, most=_MOST_UNFINISHED),
                _disturb(disturber, disturbances=disturbances, record=record, now=now, say=say),
            )
            say(f"No more jobs come; {load.unfinished} may end within {options.end_seconds:.0f} s.")
            await load.wait_ended(seconds=options.end_seconds)
            await measure.audit_once(sandbox, record=record, at=now())
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            record.jobs = list(load.records.values())


async def _make_teams(client: Client) -> None:
    for name, gpus in GUARANTEED.items():
        await client.create(NAMESPACES, body={"metadata": {"name": name}}, as_type=dict[str, Any])
        quota = {
            "apiVersion": GPUQUOTAS.api_version,
            "kind": GPUQUOTAS.kind,
            "metadata": {"name": name},
            "spec": {"namespaces": [name], "guaranteed": {"gpus": gpus}},
        }
        await client.create(GPUQUOTAS, body=quota, as_type=dict[str, Any])


async def _disturb(
    disturber: Disturber,
    *,
    disturbances: list[Disturbance],
    record: Record,
    now: Callable[[], float],
    say: Callable[[str], None],
) -> None:
    for each in disturbances:
        await asyncio.sleep(max(0.0, each.at - now()))
        at = now()
        say(f"{at:5.0f} s  {said(each)}")
        await disturber.carry_out(each)
        record.disturbances.append(
            Disturbed(at=at, said=said(each), kind=each.kind, target=each.target, seconds=now() - at)
        )


def said(disturbance: Disturbance) -> str:
    """The disturbance in few words."""
    seconds = f"{disturbance.seconds:.0f} s"
    match disturbance.kind:
        case "kill":
            return f"kill {disturbance.target}"
        case "pause":
            return f"pause {disturbance.target} for {seconds}"
        case "delay":
            return f"delay what {disturbance.target} and the API server send for {seconds}"
        case "drop":
            return f"close the connections of {disturbance.target} for {seconds}"
        case "stall":
            return f"pass nothing on between {disturbance.target} and the API server for {seconds}"
        case "api-server":
            return "kill the API server and start it again"
        case "clock":
            return f"move the clock of Dovetail's programs by {disturbance.step:+.0f} s for {seconds}"
        case "certificate":
            return "delete the webhook's certificate"


async def _say(load: Load, *, record: Record, say: Callable[[str], None], now: Callable[[], float]) -> None:
    while True:
        await asyncio.sleep(_SAYS_SECONDS)
        jobs, found = len(load.records), sum(len(audit.findings) for audit in record.audits)
        wrong = sum(bool(job.wrong) for job in load.records.values())
        say(f"{now():5.0f} s  {jobs} jobs, {jobs - load.unfinished} ended, {wrong} wrong, {found} findings of audits")
