"""The doctor's round: looks, then judges, the worst last where a person reads it first."""

from pathlib import Path

import yaml
from pydantic import ValidationError

from dovetail.config.settings import Settings
from dovetail_cli.cluster.connection import work
from dovetail_cli.doctor import control_plane, host, nodes, pod_security
from dovetail_cli.doctor.findings import Finding, Unseen
from dovetail_cli.doctor.reads import Picture, look
from dovetail_cli.ui.errors import MissingError, UsageError


def cluster(*, node: str | None, kubeconfig: str | None, context: str | None) -> list[Finding]:
    """What is found of the cluster that the options name, or of one node of it. Raises `MissingError` for no node."""
    picture = work(look, kubeconfig=kubeconfig, context=context)
    if node is not None and not isinstance(picture.nodes, Unseen):
        known = {each.metadata.name for each in picture.nodes}
        if node not in known:
            raise MissingError(f'no node "{node}" in this cluster')
    return judge(picture, node=node)


def judge(picture: Picture, *, node: str | None = None) -> list[Finding]:
    """Everything that the picture tells."""
    settings = _settings(picture)
    return [
        *control_plane.judge(picture),
        *pod_security.judge(picture, settings=settings),
        *nodes.judge(picture, settings=settings, only=node),
    ]


def machine(root: Path) -> list[Finding]:
    """What is found of the machine whose files are below `root`. Raises `UsageError` for no such folder."""
    if not root.is_dir():
        raise UsageError(f'--root "{root}": there is no such folder')
    return list(host.judge(root))


def _settings(picture: Picture) -> Settings:
    """The cluster's configuration; the defaults where it cannot be seen or is refused."""
    if isinstance(picture.config, Unseen):
        return Settings()
    try:
        return Settings.model_validate(yaml.safe_load(picture.config.data.get("gpu_config.yaml", "")) or {})
    except (ValidationError, yaml.YAMLError):
        return Settings()
