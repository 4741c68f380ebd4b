"""The parts of a pod's spec to which variables, volumes and commands are added. Values only.

To decode a spec as these types once turns an invalid pod into one sentence; later code finds what it expects.
"""

from msgspec import Struct


class _Said(Struct, frozen=True, kw_only=True, rename="camel"):
    """Other fields may have any value."""


class Named(_Said, frozen=True, kw_only=True):
    """A volume, or a variable."""

    name: str = ""


class Mount(_Said, frozen=True, kw_only=True):
    """A mount of a volume in a container."""

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
