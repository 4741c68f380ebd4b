"""The doctor's round: looks, then judges, the worst last where a person reads it first."""

import os
import shutil
from pathlib import Path

from dovetail.query.doctor.diagnosis import judge
from dovetail.query.doctor.findings import Finding, Unseen
from dovetail_cli.cluster.connection import work
from dovetail_cli.doctor import host
from dovetail_cli.doctor.reads import read_all
from dovetail_cli.ui.errors import MissingError, UsageError


def cluster(*, node: str | None, kubeconfig: str | None, context: str | None) -> list[Finding]:
    """The findings of the cluster that the options name, or of one of its nodes.

    Raises `MissingError` if there is no such node.
    """
    picture = work(read_all, kubeconfig=kubeconfig, context=context)
    if node is not None and not isinstance(picture.nodes, Unseen):
        known = {each.metadata.name for each in picture.nodes}
        if node not in known:
            raise MissingError(f'no node "{node}" in this cluster')
    return judge(picture, node=node)


def machine(root: Path) -> list[Finding]:
    """The findings of the machine whose files are below `root`.

    Raises `UsageError` if there is no such folder.
    """
    if not root.is_dir():
        raise UsageError(f'--root "{root}": there is no such folder')
    return list(host.judge(root, prefixes=_environments() if root == Path("/") else ()))


def _environments() -> list[Path]:
    """The user's Python environments: the active ones, that of `python`, and `~/.local`."""
    active = [os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    programs = [shutil.which(name) for name in ("python", "python3")]
    # The link itself is in the environment, the program that it leads to is not.
    prefixes = [*map(Path, filter(None, active)), *(Path(each).parent.parent for each in programs if each)]
    return [*dict.fromkeys(prefixes), Path.home() / ".local"]
