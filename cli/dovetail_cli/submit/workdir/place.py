"""Where a job's directory is in its container. Pure."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dovetail.api.gpujob import GPUJob, spec_of
from dovetail_cli.ui.errors import UsageError

# In the pod's own storage, for jobs whose profile has no `workdir`: it is gone with the pod.
SCRATCH_FOLDER: Final = "/dovetail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A job's directory in its container.

    above   the folder in which each job gets its directory
    name    the directory's name there
    mount   the mount of the volume that it is on; None for the pod's own storage
    """

    above: str
    name: str
    mount: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        """The directory."""
        return posixpath.join(self.above, self.name)


def choose(job: GPUJob, *, workdir: str | None, token: str) -> Place:
    """The place for a job that is submitted; `token` tells it from other jobs of that name.

    Raises `UsageError` for a folder on a volume that is mounted to read only.
    """
    above = workdir or SCRATCH_FOLDER
    mount = mount_of(above, job=job)
    if mount is not None and mount.get("readOnly"):
        raise UsageError(
            f'workdir "{above}" is on a volume that is mounted to read only at {mount["mountPath"]}: choose a folder '
            "that the job may write to, such as `dovetail config set workdir /data/runs`"
        )
    return Place(above=above, name=f"{job.metadata.name[:50]}-{token}", mount=mount)


def mount_of(path: str, *, job: GPUJob) -> Mapping[str, Any] | None:
    """The mount of the PersistentVolumeClaim that a path of the job's first container is on."""
    spec = spec_of(job.spec.template)
    claims = {each["name"] for each in spec.get("volumes") or () if each.get("persistentVolumeClaim")}
    mounts = [
        each for each in spec["containers"][0].get("volumeMounts") or () if _is_in(path, folder=each["mountPath"])
    ]
    innermost = max(mounts, key=lambda each: len(each["mountPath"]), default=None)
    return innermost if innermost is not None and innermost["name"] in claims else None


def _is_in(path: str, *, folder: str) -> bool:
    return posixpath.commonpath([path, folder]) == folder.rstrip("/")
