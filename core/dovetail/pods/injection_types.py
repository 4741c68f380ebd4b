"""What a pod's spec has where variables, volumes and commands are added to it, as far as we look at it. Values only.

Read as this once, what is no pod is refused in a sentence, and whatever is added later finds what it expects.
"""

from msgspec import Struct


class _Said(Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields that are not named here are whatever they are."""


class Named(_Said, frozen=True, kw_only=True):
    """A volume, or a variable."""

    name: str = ""


class Mount(_Said, frozen=True, kw_only=True):
    """A volume in a container."""

    name: str = ""
    mount_path: str = ""


class ContainerAddedTo(_Said, frozen=True, kw_only=True):
    """A container."""

    command: list[str] = []
    args: list[str] = []
    env: list[Named] = []
    volume_mounts: list[Mount] = []


class PodAddedTo(_Said, frozen=True, kw_only=True):
    """A pod's spec."""

    containers: list[ContainerAddedTo] = []
    init_containers: list[ContainerAddedTo] = []
    volumes: list[Named] = []
    termination_grace_period_seconds: int | None = None
