"""What a local node's sandbox keeps when its processes end: the queue, the history, and the runs of jobs.

In the sandbox's folder, the next `up` finds:

    state.json              its ports, the format of all this, and `kept`
    queue/etcd/             every API object: jobs, their states and numbers, quotas
    kwok/clusters/kwok/pki  the certificates, so that tokens stay valid
    local-node/runs/        the runs of jobs, by which processes are found again
    volumes/                the history

Everything else is made again, from the programs and the chart of the Dovetail that starts.
"""

import shutil
from pathlib import Path
from typing import Final

from dovetail_sandbox.errors import KeptQueueError
from dovetail_sandbox.programs import catalog
from dovetail_sandbox.state import FORMAT, Kept, State

_PKI: Final = "pki"


def etcd_data(folder: Path) -> Path:
    """The folder of etcd's data. It lies outside kwokctl's folder, which kwokctl removes when it fails."""
    return folder / "queue" / "etcd"


def is_kept(folder: Path, *, known: State | None) -> bool:
    """Whether there is a queue in a sandbox's folder, usable or not. One that was never ready is none."""
    return etcd_data(folder).exists() and (known is None or known.kept is not None)


def current() -> Kept:
    """What this Dovetail writes."""
    return Kept(kubernetes=_kubernetes())


def check(folder: Path, *, known: State | None) -> None:
    """Raise `KeptQueueError` if this Dovetail cannot continue the queue in the folder."""
    name = known.name if known else folder.name
    if problem := _problem(folder, known=known):
        raise KeptQueueError(name, folder=folder, problem=problem)


def _problem(folder: Path, *, known: State | None) -> str:
    if known is None:
        return "its state.json is missing or unreadable"
    kept = known.kept
    if known.format != FORMAT:
        return "another version of Dovetail wrote it"
    if kept is not None and _minor(kept.kubernetes) > _minor(_kubernetes()):
        return f"Kubernetes {kept.kubernetes} wrote it, and this Dovetail has {_kubernetes()}: use a newer one"
    if not (etcd_data(folder) / "member").is_dir():
        return f"etcd's data are missing in {etcd_data(folder)}"
    return ""


def prepare(folder: Path, *, control_plane: Path) -> None:
    """Remove what `up` makes again. `control_plane` is kwokctl's folder."""
    again = [folder / "logs", folder / "kubeconfigs", folder / "desired.json", folder / "observed.json"]
    again += [path for path in control_plane.glob("*") if path.name != _PKI]
    for path in again:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _kubernetes() -> str:
    return catalog.tool("kube-apiserver").version


def _minor(version: str) -> tuple[int, ...]:
    """The first two numbers of a version such as v1.36.3; of anything else, none."""
    numbers = version.removeprefix("v").split(".")[:2]
    return tuple(int(number) for number in numbers if number.isascii() and number.isdigit())
