"""A packed directory as an attachment: ConfigMap and unpacking init container. Pure."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from dovetail.api.gpujob import GPUJob, spec_of
from dovetail_cli.submit.attachments import VOLUMES
from dovetail_cli.submit.manifest import with_spec
from dovetail_cli.submit.workdir import unpack
from dovetail_cli.submit.workdir.archive import MAX_UNPACKED_BYTES
from dovetail_cli.submit.workdir.place import Place

INIT_CONTAINER: Final = "dovetail-unpack"
_KEY: Final = "directory.tar.gz"
_ARCHIVE_FOLDER: Final = "/dovetail-directory"
_SCRATCH_VOLUME: Final = "dovetail-workdir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """The archive of a directory, and where it goes: an `Attachment`."""

    archive: bytes
    place: Place
    purpose: ClassVar[str] = "directory"

    @property
    def content(self) -> Mapping[str, Mapping[str, str]]:
        """The ConfigMap's data."""
        return {"binaryData": {_KEY: base64.b64encode(self.archive).decode()}}

    def mounted(self, job: GPUJob, *, config_map: str) -> GPUJob:
        """The job that unpacks the directory, and runs in it."""
        spec = spec_of(job.spec.template)
        first, *others = spec["containers"]
        volumes = [*(spec.get("volumes") or ()), {"name": VOLUMES[self.purpose], "configMap": {"name": config_map}}]
        mount = self.place.mount
        if mount is None:
            volumes.append({"name": _SCRATCH_VOLUME, "emptyDir": {}})
            mount = {"name": _SCRATCH_VOLUME, "mountPath": self.place.above}
            first = {**first, "volumeMounts": [*(first.get("volumeMounts") or ()), mount]}
        spec |= {
            "initContainers": [*(spec.get("initContainers") or ()), self._unpacking(first, mount=mount)],
            "containers": [{**first, "workingDir": self.place.path}, *others],
            "volumes": volumes,
        }
        return with_spec(job, spec=spec)

    def _unpacking(self, first: Mapping[str, Any], *, mount: Mapping[str, Any]) -> dict[str, Any]:
        words = unpack.arguments(
            archive=f"{_ARCHIVE_FOLDER}/{_KEY}",
            target=self.place.path,
            above=self.place.above,
            most_bytes=MAX_UNPACKED_BYTES,
        )
        return {
            "name": INIT_CONTAINER,
            "image": first["image"],
            # A namespace's quota may demand them. A pod's request is the larger of both, so that this one is free.
            **({"resources": first["resources"]} if "resources" in first else {}),
            "command": ["sh", "-c", unpack.SCRIPT, INIT_CONTAINER, *words],
            "volumeMounts": [mount, {"name": VOLUMES[self.purpose], "mountPath": _ARCHIVE_FOLDER, "readOnly": True}],
        }


def running_in(job: GPUJob, *, path: str) -> GPUJob:
    """The job with that working directory, which is already there."""
    spec = spec_of(job.spec.template)
    first, *others = spec["containers"]
    return with_spec(job, spec={**spec, "containers": [{**first, "workingDir": path}, *others]})


def moved(job: GPUJob, *, token: str) -> GPUJob:
    """The job in a directory of its own, if it unpacks one.

    Another run must not find the first one's results.
    """
    spec = spec_of(job.spec.template)
    first, *others = spec["containers"]
    unpacking = next((each for each in spec.get("initContainers") or () if each.get("name") == INIT_CONTAINER), None)
    before = first.get("workingDir", "")
    if unpacking is None or before not in unpacking["command"]:
        return job
    after = f"{before.rpartition('-')[0]}-{token}"
    command = [after if word == before else word for word in unpacking["command"]]
    containers = [{**first, "workingDir": after}, *others]
    init_containers = [{**each, "command": command} if each is unpacking else each for each in spec["initContainers"]]
    return with_spec(job, spec={**spec, "containers": containers, "initContainers": init_containers})
