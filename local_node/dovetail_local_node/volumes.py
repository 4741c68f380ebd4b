"""The volumes of a pod as folders of this machine. Pure.

A process has no file system of its own, so a volume cannot be at its mount path. The job finds its folder in a
variable, `DOVETAIL_VOLUME_<NAME>`; where the container's words and variables name the mount path, the folder takes its
place.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dovetail.api.resources import CONFIGMAPS, Resource
from dovetail_local_node.pod_object import ConfigMapFiles, FilesOf, Item, LocalPod, Mount, SecretFiles, Volume
from dovetail_local_node.variables import field_of

# The API server mounts it into every pod. A job of one's own machine has its user's kubeconfig instead.
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_VARIABLE: Final = "DOVETAIL_VOLUME_"
# As kubelet makes them without a mode.
_MODE: Final = 0o644
SECRETS: Final = Resource(plural="secrets", kind="Secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An object of the API, in `resource`, whose keys are the files of a volume."""

    volume: str
    resource: Resource
    files: FilesOf
    as_type: type[ConfigMapFiles] | type[SecretFiles]

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.object_name}"

    @property
    def object_name(self) -> str:
        """The name of the object."""
        return self.files.name or self.files.secret_name


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of a volume."""

    path: str
    data: bytes
    mode: int


def mounted(pod: LocalPod) -> Iterator[tuple[Mount, Volume]]:
    """What the pod's container mounts, without the service account's token."""
    volumes = {volume.name: volume for volume in pod.spec.volumes}
    for mount in pod.spec.containers[0].volume_mounts:
        if mount.mount_path != _ACCOUNT:
            yield mount, volumes.get(mount.name, Volume(name=mount.name))


def problem(pod: LocalPod) -> str:
    """Why a volume of the pod cannot be a folder; empty if all can."""
    for mount, volume in mounted(pod):
        if volume.downward_api is not None and any(item.field_ref is None for item in volume.downward_api.items):
            return f"Volume {volume.name} has a file of resourceFieldRef, which the local node cannot do."
        if volume.empty_dir is None and volume.downward_api is None and source_of(volume) is None:
            return (
                f"Volume {volume.name} is no emptyDir, configMap, secret or downwardAPI: the local node has no others. "
                "A process finds the files of this machine at their own paths."
            )
        if mount.sub_path_expr or not mount.mount_path.strip("/"):
            return f"Volume {volume.name} is mounted with subPathExpr or at /, which the local node cannot do."
    return ""


def source_of(volume: Volume) -> Source | None:
    """Where the files of a volume come from; None for an empty one."""
    if volume.config_map is not None:
        return Source(volume=volume.name, resource=CONFIGMAPS, files=volume.config_map, as_type=ConfigMapFiles)
    if volume.secret is not None:
        return Source(volume=volume.name, resource=SECRETS, files=volume.secret, as_type=SecretFiles)
    return None


def sources(pod: LocalPod) -> list[Source]:
    """The objects that hold files of the pod's volumes, each once."""
    found = {volume.name: source_of(volume) for _, volume in mounted(pod)}
    return [source for source in found.values() if source is not None]


def files_of(source: Source, *, contents: Mapping[str, bytes]) -> list[File]:
    """The files of a volume: all keys, or those that its items name. Raises `KeyError`."""
    usual = source.files.default_mode
    items = source.files.items or [Item(key=key, path=key) for key in contents]
    return [File(path=item.path, data=contents[item.key], mode=_mode(item.mode, usual=usual)) for item in items]


def fields(pod: LocalPod, *, address: str) -> dict[str, list[File]]:
    """The files, by volume, that show fields of the pod as it is now. The machine has this address."""
    return {
        volume.name: [
            File(
                path=item.path,
                data=field_of(pod, path=item.field_ref.field_path, address=address).encode(),
                mode=_mode(item.mode, usual=volume.downward_api.default_mode),
            )
            for item in volume.downward_api.items
            if item.field_ref is not None
        ]
        for _, volume in mounted(pod)
        if volume.downward_api is not None
    }


def _mode(own: int | None, *, usual: int | None) -> int:
    return next((mode for mode in (own, usual) if mode is not None), _MODE)


def places(pod: LocalPod, *, folder: Path) -> dict[str, Path]:
    """The folder or file of this machine for each mount path; volumes are subfolders of `folder`."""
    return {
        mount.mount_path.rstrip("/"): folder / volume.name / mount.sub_path.lstrip("/")
        for mount, volume in mounted(pod)
    }


def variables(pod: LocalPod, *, folder: Path) -> dict[str, str]:
    """The variables by which a job finds its volumes."""
    return {_VARIABLE + volume.name.upper().replace("-", "_"): str(folder / volume.name) for _, volume in mounted(pod)}


def at_home(text: str, *, mounts: Mapping[str, Path]) -> str:
    """The text with the folders of this machine in place of mount paths; of two that match, the longer one counts."""
    if not mounts:
        return text
    paths = "|".join(re.escape(path) for path in sorted(mounts, key=len, reverse=True))
    return re.sub(rf"(?<![\w./-])({paths})(?![\w.-])", lambda match: str(mounts[match[1]]), text)
