"""What makes a container a client of its node's MPS: the daemon's pipe, and shared memory.

Pure.

Only containers with a share of a device get it. A container in turns has the device to itself while it runs, and with
MPS it could not be frozen alone.

Both are ephemeral volumes of our driver on the node, which Pod Security `baseline` and `restricted` admit. The driver
mounts them only for pods with an allocation, whatever their spec says.
"""

from typing import Any, Final

from dovetail import names

Manifest = dict[str, Any]

_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - the kernel's, which CUDA uses
_PIPE_VOLUME: Final = names.mps_volume(names.MPS_PIPE_FOLDER)
_SHM_VOLUME: Final = names.mps_volume(names.MPS_SHM_FOLDER)
_FOLDERS: Final = {_PIPE_VOLUME: names.MPS_PIPE_FOLDER, _SHM_VOLUME: names.MPS_SHM_FOLDER}
_KINDS: Final = ("containers", "initContainers")


def with_mps(spec: Manifest, *, directory: str) -> Manifest:
    """A completed pod spec whose containers with shares reach the MPS daemon in `directory`.

    Without a directory, or without such a container, the spec stays the same. To do it twice changes nothing.
    """
    if not directory or not any(_shares(each) for kind in _KINDS for each in spec.get(kind) or ()):
        return spec
    whole = dict(spec)
    for kind in _KINDS:
        if containers := spec.get(kind):
            whole[kind] = [_client(each, pipe=f"{directory}/pipe") if _shares(each) else each for each in containers]
    theirs = [volume for volume in spec.get("volumes") or () if volume.get("name") not in _FOLDERS]
    ours = [_volume(name, folder=folder) for name, folder in _FOLDERS.items()]
    return {**whole, "volumes": [*theirs, *ours]}


def job_with_mps(job: Manifest, *, directory: str) -> Manifest:
    """A batch Job with such pods."""
    if not directory:
        return job
    template = job["spec"]["template"]
    spec = with_mps(template["spec"], directory=directory)
    return {**job, "spec": {**job["spec"], "template": {**template, "spec": spec}}}


def _volume(name: str, *, folder: str) -> Manifest:
    """The driver decides whether it is read-only, for all pods of a node."""
    return {"name": name, "csi": {"driver": names.MPS_DRIVER, "volumeAttributes": {names.MPS_FOLDER_ATTRIBUTE: folder}}}


def _shares(container: Manifest) -> bool:
    limits = (container.get("resources") or {}).get("limits") or {}
    environment = container.get("env") or ()
    return names.GPU_TURN not in limits and any(
        entry.get("name") == names.ENV_MPS_MEMORY and "valueFrom" in entry for entry in environment
    )


def _client(container: Manifest, *, pipe: str) -> Manifest:
    theirs = [entry for entry in container.get("env") or () if entry.get("name") != names.ENV_MPS_PIPE]
    mounts = [
        each for each in container.get("volumeMounts") or () if each.get("mountPath") not in {pipe, _SHARED_MEMORY}
    ]
    return {
        **container,
        "env": [{"name": names.ENV_MPS_PIPE, "value": pipe}, *theirs],
        "volumeMounts": [
            *mounts,
            {"name": _PIPE_VOLUME, "mountPath": pipe},
            {"name": _SHM_VOLUME, "mountPath": _SHARED_MEMORY},
        ],
    }
