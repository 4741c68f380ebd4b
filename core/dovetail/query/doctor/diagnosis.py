"""All checks of a cluster together. Pure."""

from typing import Final

from pydantic import ValidationError

from dovetail.answers.doctor import CheckResult
from dovetail.cluster.picture import Picture, Unseen
from dovetail.config.settings import Settings
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.query.doctor import (
    control_plane,
    frameworks,
    guests,
    neighbours,
    nodes,
    pod_security,
    presets,
    requests,
    rollouts,
)

# The CRDs of neighbours and of guests' kinds, for the picture.
CRDS: Final = (*(each.crd for each in neighbours.NEIGHBOURS), *guests.CRDS)


def judge(picture: Picture, *, node: str | None = None) -> list[CheckResult]:
    """Everything that the picture tells."""
    settings = _settings(picture)
    return [
        *control_plane.judge(picture),
        *rollouts.judge(picture),
        *pod_security.judge(picture, settings=settings),
        *(requests.judge(picture, settings=settings) if node is None else ()),
        *frameworks.judge(picture, only=node),
        *nodes.judge(picture, settings=settings, only=node),
        *(neighbours.judge(picture, settings=settings) if node is None else ()),
        *(guests.judge(picture) if node is None else ()),
        *(presets.judge(picture, settings=settings) if node is None else ()),
    ]


def has_node(picture: Picture, *, node: str) -> bool:
    """Whether the cluster has this node, as far as the picture tells."""
    return isinstance(picture.nodes, Unseen) or any(each.metadata.name == node for each in picture.nodes)


def _settings(picture: Picture) -> Settings:
    """The cluster's configuration; the defaults where it cannot be seen or is refused."""
    if isinstance(picture.config, Unseen):
        return Settings()
    try:
        return Settings.model_validate(load_yaml(picture.config.data.get("gpu_config.yaml", "")) or {})
    except (ValidationError, YAMLTextError):
        return Settings()
