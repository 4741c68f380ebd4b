"""The demo once its sandbox is up: submit jobs, show a live view, then tables and hints."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import Device
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.query.jobs.columns import View
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.demo import workload
from dovetail_cli.jobs import job_rows
from dovetail_cli.replay import campaign, progress
from dovetail_cli.replay.device_holders import Held, held_devices
from dovetail_cli.replay.report import Summary, summarise
from dovetail_cli.replay.tally import Counts, Tally, is_waiting
from dovetail_cli.ui import output, times

if TYPE_CHECKING:
    from rich.console import RenderableType

NAMESPACE: Final = "default"
_JOB_FIELDS: Final = ("JOBID", "NAME", "ST", "TIME", "GPUS", "NODELIST(REASON)")
_TITLE: Final = "Demo"
_FREE, _PART, _FULL = "□", "◧", "■"
_MOST_WAITING: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the demo prints at its end, and whether it went as it should."""

    text: str
    good: bool


def show(*, count: int, kubeconfig: str) -> Shown:
    """Submit the mix, and watch until each job has run or has a reason why it never can."""
    jobs = workload.jobs(count=count, namespace=NAMESPACE)
    with _view() as watcher:

        async def go(cluster: Cluster) -> campaign.Ended:
            return await campaign.run(cluster, jobs=jobs, watcher=watcher, over=_all_placed)

        ended = work(go, kubeconfig=kubeconfig, context=None, namespace=NAMESPACE)
    summary = summarise(ended)
    good = not (summary.problem or summary.failed or summary.findings)
    return Shown(text=_ending(ended.tally, summary=summary, kubeconfig=kubeconfig), good=good)


def _all_placed(tally: Tally, standing: Counts) -> bool:
    return standing.submitted == tally.jobs and len(tally.placed_at) + standing.hopeless >= tally.jobs


@contextmanager
def _view() -> Iterator[campaign.Watcher]:
    if not sys.stderr.isatty():
        with progress.progress(title=_TITLE) as watcher:
            yield watcher
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as screen:
        yield lambda tally, standing: screen.update(_frame(tally, standing=standing))


def _frame(tally: Tally, *, standing: Counts) -> "RenderableType":
    from rich.text import Text

    lines = [*grid(tally), "", progress.sentence(tally, standing=standing), *waiting_lines(tally)]
    return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


def grid(tally: Tally) -> list[str]:
    """A line a node: a sign a device, free, partly or wholly held."""
    held = held_devices(tally.seen.values())
    width = max(map(len, tally.nodes), default=0)
    return [
        f"{node:<{width}}  {''.join(_sign(held, node=node, device=device) for device in devices)}  {devices[0].model}"
        for node, devices in tally.nodes.items()
    ]


def _sign(held: Held, *, node: str, device: Device) -> str:
    share = sum(share for _, share in held.get((node, device.index), ()))
    return _FREE if share == 0 else _FULL if share >= WHOLE_MILLI else _PART


def waiting_lines(tally: Tally) -> list[str]:
    """The first jobs that wait, each with its reason."""
    waiting = [job for job in tally.seen.values() if is_waiting(job) and job.status.reason]
    waiting.sort(key=lambda job: (job.status.number is None, job.status.number))
    lines = [f"{job.metadata.name}: {job.status.reason}: {job.status.message}" for job in waiting[:_MOST_WAITING]]
    return [*lines, f"and {len(waiting) - _MOST_WAITING} more"] if len(waiting) > _MOST_WAITING else lines


def _ending(tally: Tally, *, summary: Summary, kubeconfig: str) -> str:
    jobs = list(tally.seen.values())
    view = View(now=times.utc_now())
    return "\n".join(
        [
            job_table(jobs, view=view),
            "",
            node_table(tally.nodes, jobs=jobs),
            "",
            summary.text(title=_TITLE),
            "",
            *hints(kubeconfig=kubeconfig),
        ]
    )


def job_table(jobs: Sequence[GPUJob], *, view: View) -> str:
    """All jobs by number."""
    ordered = sorted(jobs, key=lambda job: (job.status.number is None, job.status.number))
    rows = [job_rows.row(job, fields=_JOB_FIELDS, view=view) for job in ordered]
    return output.render(rows, columns=_JOB_FIELDS, form="table")


def node_table(nodes: Mapping[str, Sequence[Device]], *, jobs: Iterable[GPUJob]) -> str:
    """The nodes with their devices: who holds each, with the share where it is a part."""
    held = held_devices(jobs)
    rows = [
        {
            "NODE": node,
            "MODEL": devices[0].model,
            "GPUS": len(devices),
            "FREE": sum((node, device.index) not in held for device in devices),
            "DEVICES": _holders(held, node=node, devices=devices),
        }
        for node, devices in nodes.items()
    ]
    return output.render(rows, columns=("NODE", "MODEL", "GPUS", "FREE", "DEVICES"), form="table")


def _holders(held: Held, *, node: str, devices: Sequence[Device]) -> str:
    parts = []
    for device in devices:
        holders = held.get((node, device.index), ())
        if holders:
            parts.append(
                f"{device.index}: {', '.join(_holder(number, share_milli=share) for number, share in holders)}"
            )
    return "; ".join(parts)


def _holder(number: int, *, share_milli: int) -> str:
    return f"job {number}" if share_milli == WHOLE_MILLI else f"job {number} ({share_milli / WHOLE_MILLI:g})"


def hints(*, kubeconfig: str) -> list[str]:
    """What to try next, with the paths that this shell lacks."""
    lacking = [folder for folder in (_folder_of_programs(), _folder_of_kubectl()) if folder]
    paths = [f"  export PATH={':'.join([*lacking, '$PATH'])}"] if lacking else []
    return [
        output.bold("The sandbox stays up. Look around:"),
        f"  export KUBECONFIG={kubeconfig}",
        *paths,
        "  kubectl get gpujobs            # kubectl get gj -o wide tells more",
        "  kubectl describe gj NAME       # with what happened to it",
        "  kubectl get gpunodes",
        "  gqueue -a                      # every job, finished ones too",
        "  ginfo                          # every device and who uses it",
        "  gbatch --gpus 1 sleep 30       # one more",
        "  dovetail audit                 # nothing is promised twice",
        "End it with `make demo-down` (or `dovetail demo --down`).",
    ]


def _folder_of_programs() -> str:
    return "" if shutil.which("gqueue") else str(Path(sys.argv[0]).resolve().parent)


def _folder_of_kubectl() -> str:
    """Where the sandbox keeps its kubectl, where the shell has none."""
    if shutil.which("kubectl"):
        return ""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dovetail" / "bin"
    return next((str(found.parent) for found in sorted(cache.glob("kubectl-*/kubectl"), reverse=True)), "")
