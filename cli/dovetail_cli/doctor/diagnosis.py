"""The doctor's round: looks, then judges, the worst last where a person reads it first.

A module of its own: it loads the API client and the engine, which the options in `command` do not wait for.
"""

import os
import shutil
from pathlib import Path

from dovetail.answers.doctor import Diagnosis
from dovetail.cluster.picture import Picture
from dovetail.kube.queries.picture import read_picture
from dovetail.query.doctor.diagnosis import CRDS, has_node, judge
from dovetail.query.doctor.findings import diagnosis_of
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.doctor import host
from dovetail_cli.ui.errors import MissingError, UsageError
from dovetail_cli.ui.times import utc_now


def cluster(*, node: str | None, kubeconfig: str | None, context: str | None) -> Diagnosis:
    """What is wrong with the cluster that the options name, or with one of its nodes.

    Raises `MissingError` if there is no such node.
    """
    picture = work(_read, kubeconfig=kubeconfig, context=context)
    if node is not None and not has_node(picture, node=node):
        raise MissingError(f'no node "{node}" in this cluster')
    return diagnosis_of(judge(picture, node=node))


async def _read(cluster: Cluster) -> Picture:
    release = await release_namespace(cluster)
    return await read_picture(cluster.client, release=release, namespace=cluster.namespace, crds=CRDS, now=utc_now)


def machine(root: Path) -> Diagnosis:
    """What is wrong with the machine whose files are below `root`.

    Raises `UsageError` if there is no such folder.
    """
    if not root.is_dir():
        raise UsageError(f'--root "{root}": there is no such folder')
    return diagnosis_of(list(host.judge(root, prefixes=_environments() if root == Path("/") else ())))


def _environments() -> list[Path]:
    """The user's Python environments: the active ones, that of `python`, and `~/.local`."""
    active = [os.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    programs = [shutil.which(name) for name in ("python", "python3")]
    # The link itself is in the environment, the program that it leads to is not.
    prefixes = [*map(Path, filter(None, active)), *(Path(each).parent.parent for each in programs if each)]
    return [*dict.fromkeys(prefixes), Path.home() / ".local"]
