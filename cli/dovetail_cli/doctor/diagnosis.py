"""The doctor's round: looks, then judges, the worst last where a person reads it first."""

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
    return list(host.judge(root))
