"""The demo once its sandbox is up: submit jobs, show a live view, then tables and hints."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dovetail.query.jobs.columns import View
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.demo import board, workload
from dovetail_cli.replay import campaign, progress
from dovetail_cli.replay.report import Summary, summarise
from dovetail_cli.replay.tally import Counts, Tally
from dovetail_cli.ui import output, times

if TYPE_CHECKING:
    from rich.console import RenderableType

NAMESPACE: Final = "default"
_TITLE: Final = "Demo"


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

    lines = [*board.grid(tally), "", progress.sentence(tally, standing=standing), *board.waiting_lines(tally)]
    return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


def _ending(tally: Tally, *, summary: Summary, kubeconfig: str) -> str:
    jobs = list(tally.seen.values())
    view = View(now=times.utc_now())
    return "\n".join(
        [
            board.job_table(jobs, view=view),
            "",
            board.node_table(tally.nodes, jobs=jobs),
            "",
            summary.text(title=_TITLE),
            "",
            *hints(kubeconfig=kubeconfig),
        ]
    )


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
