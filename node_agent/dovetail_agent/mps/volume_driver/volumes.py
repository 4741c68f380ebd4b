"""MPS's folders as volumes of pods: which folder, for which pod, and where it is mounted.

A pod gets a folder only if the node's supervisor lists it with a share of a device. A pod that names the driver without
such an allocation does not start, and its events say why.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from grpclib.const import Status
from grpclib.exceptions import GRPCError

from dovetail import names
from dovetail.logs import get_logger
from dovetail_agent.mps import pod_modes
from dovetail_agent.mps.volume_driver.mounts import BindMounts, MountError

log = get_logger(__name__)

# Kubelet's own attributes, which overwrite the pod author's (CSIDriver.spec.podInfoOnMount).
_UID: Final = "csi.storage.k8s.io/pod.uid"
_NAME: Final = "csi.storage.k8s.io/pod.name"
_NAMESPACE: Final = "csi.storage.k8s.io/pod.namespace"
_EPHEMERAL: Final = "csi.storage.k8s.io/ephemeral"
_PATH: Final = re.compile(
    r"(?P<uid>[0-9A-Za-z-]{1,64})/volumes/kubernetes\.io~csi/(?P<volume>[0-9a-z][0-9a-z.~-]{0,252})/mount"
)
_LONGEST_QUOTE: Final = 200
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where kubelet wants a volume: `path` is relative to its folder of pods."""

    uid: str
    volume: str
    path: PurePosixPath


class MpsVolumes:
    """Volumes from MPS's folder `directory`, with `clients`, `shm` and the list of tenants.

    `pods` is kubelet's folder of pods. The supervisor learns of a pod a little later than kubelet, so a pod that is not
    listed yet has `wait_seconds`. Kubelet would retry after 0.5 s, then 1 s, 2 s … up to 2 minutes.
    """

    def __init__(
        self,
        mounts: BindMounts,
        *,
        directory: Path,
        pods: Path,
        pipe_read_only: bool,
        wait_seconds: float,
    ) -> None:
        self._mounts = mounts
        self._pods = pods
        self._tenants = pod_modes.path_in(directory)
        self._wait_seconds = wait_seconds
        self._folders = {
            names.MPS_PIPE_FOLDER: (directory / "clients", pipe_read_only),
            names.MPS_SHM_FOLDER: (directory / "shm", False),
        }
        self._alone = asyncio.Lock()

    async def publish(self, target_path: str, *, context: Mapping[str, str]) -> None:
        """Mount the folder that `context` names for its pod. Raises `GRPCError`."""
        target = self._target(target_path)
        source, read_only = self._source(context, volume=target.volume)
        pod = f"{context.get(_NAMESPACE, '')}/{context.get(_NAME, '')}"
        if context.get(_UID) != target.uid:
            raise _refused(f"pod {pod} has the UID {context.get(_UID, '')!r}, but the volume is for {target.uid}")
        await self._entitled(target.uid, pod=pod)
        async with self._alone:
            await self._done(self._mounts.bind, source, target=target.path, read_only=read_only)
        log.info("MPS folder mounted", pod=pod, folder=source.name, read_only=read_only)

    async def unpublish(self, target_path: str) -> None:
        """Unmount it for any pod. Raises `GRPCError`."""
        target = self._target(target_path)
        async with self._alone:
            await self._done(self._mounts.unbind, target.path)

    def _target(self, text: str) -> Target:
        prefix = f"{self._pods}/"
        found = _PATH.fullmatch(text.removeprefix(prefix)) if text.startswith(prefix) else None
        if found is None:
            problem = f"target_path {_quoted(text)} is not {prefix}UID/volumes/kubernetes.io~csi/NAME/mount"
            raise GRPCError(Status.INVALID_ARGUMENT, problem)
        return Target(uid=found["uid"], volume=found["volume"], path=PurePosixPath(text.removeprefix(prefix)))

    def _source(self, context: Mapping[str, str], *, volume: str) -> tuple[Path, bool]:
        wanted = context.get(names.MPS_FOLDER_ATTRIBUTE, "")
        if wanted not in self._folders:
            allowed = " or ".join(self._folders)
            problem = f"volumeAttributes.{names.MPS_FOLDER_ATTRIBUTE} is {_quoted(wanted)}, and must be {allowed}"
            raise GRPCError(Status.INVALID_ARGUMENT, problem)
        if volume != names.mps_volume(wanted):  # a pod has each folder once, and cannot fill the node's mount table
            problem = (
                f"volume {_quoted(volume)} has the folder {wanted}, so its name must be {names.mps_volume(wanted)}"
            )
            raise GRPCError(Status.INVALID_ARGUMENT, problem)
        if context.get(_EPHEMERAL) != "true":
            raise _refused(f"{names.MPS_DRIVER} has ephemeral volumes only, no persistent ones")
        return self._folders[wanted]

    async def _entitled(self, uid: str, *, pod: str) -> None:
        """Wait up to `wait_seconds` until the pod is listed.

        Raises `GRPCError` unless the pod has a share of a device.
        """
        end = asyncio.get_running_loop().time() + self._wait_seconds
        while True:
            listed = pod_modes.read(self._tenants)
            known = None if listed is None else listed.get(uid)
            if known is not None and known.shares:
                return
            if known is not None:
                what = f"its devices are {known.mode}" if known.mode else "it was given no device"
                raise _refused(f"pod {pod} has no share of a device on this node: {what}; MPS serves Fractional pods")
            if asyncio.get_running_loop().time() >= end:
                break
            await asyncio.sleep(_POLL_SECONDS)
        if listed is None:
            raise GRPCError(Status.UNAVAILABLE, "dovetail-mps of this node has not listed its tenants yet")
        raise _refused(f"pod {pod} has no share of a device on this node: dovetail-mps does not know it")

    async def _done(self, step: Callable[..., None], *args: object, **options: object) -> None:
        try:
            await asyncio.to_thread(step, *args, **options)
        except MountError as error:
            log.warning("mount failed", problem=str(error))
            raise GRPCError(Status.INTERNAL, str(error)) from error


def _refused(problem: str) -> GRPCError:
    log.warning("MPS volume refused", problem=problem)
    return GRPCError(Status.PERMISSION_DENIED, problem)


def _quoted(text: str) -> str:
    return repr(text[:_LONGEST_QUOTE])
