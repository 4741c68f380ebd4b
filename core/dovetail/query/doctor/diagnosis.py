"""All checks of a cluster together. Pure."""

from pydantic import ValidationError

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
from dovetail.query.doctor.findings import Finding, Unseen
from dovetail.query.doctor.picture import Picture


def judge(picture: Picture, *, node: str | None = None) -> list[Finding]:
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


def _settings(picture: Picture) -> Settings:
    """The cluster's configuration; the defaults where it cannot be seen or is refused."""
    if isinstance(picture.config, Unseen):
        return Settings()
    try:
        return Settings.model_validate(load_yaml(picture.config.data.get("gpu_config.yaml", "")) or {})
    except (ValidationError, YAMLTextError):
        return Settings()
