"""gbatch's --config: a text file submitted with a job, as a ConfigMap that the job owns.

The ConfigMap is created before the job, so that no job waits for a file that never comes. The job becomes its owner
once it exists. If gbatch is killed between the two, a labelled ConfigMap without an owner remains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob, spec_of, template_of
from dovetail.api.meta import Described, ObjectMeta, OwnerReference
from dovetail.api.resources import CONFIGMAPS, GPUJOBS
from dovetail.kube.errors import NotFound
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui.errors import CommandError, MissingError, UsageError

# What the API server takes as the data of a ConfigMap.
MAX_BYTES: Final = 1024 * 1024
FOLDER: Final = "/etc/dovetail-config"
VOLUME: Final = "dovetail-config"
_KEY: Final = "config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A text file, and what it is called in the container."""

    name: str
    text: str

    @property
    def path(self) -> str:
        """Where it is in the container."""
        return f"{FOLDER}/{self.name}"


class ConfigMap(Described, frozen=True, kw_only=True):
    """What is read of a ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()


def read(text: str) -> ConfigFile:
    """Read the file that --config names.

    Raises `MissingError`, or `UsageError` if it is unusable.
    """
    path = Path(text)
    try:
        # A device or a pipe may have no end.
        if path.exists() and not path.is_file():
            raise UsageError(f"--config {text} is no file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise MissingError(f"--config {text}: there is no such file") from error
    except OSError as error:
        raise UsageError(f"--config {text}: {error.strerror}") from error
    return ConfigFile(name=_name(path, said=text), text=_text(data, said=text))


def _name(path: Path, *, said: str) -> str:
    # Kubernetes takes no path with "..", and a volume keeps names like ..data for itself.
    if path.name.startswith("..") or not path.name.isprintable():
        raise UsageError(f'--config {said!r}: a file that goes along has a plain name that does not begin with ".."')
    return path.name


def _text(data: bytes, *, said: str) -> str:
    if len(data) > MAX_BYTES:
        raise UsageError(f"--config {said} is too large: allowed are at most {MAX_BYTES} bytes (1 MiB)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"--config {said} is no text in UTF-8: what is binary belongs into the image or on a volume")
    return text


def arguments(file: ConfigFile | None, *, words: Sequence[str]) -> list[str]:
    """The arguments that follow the command's own; none if it uses the variable itself."""
    if file is None or any(names.ENV_CONFIG in word for word in words):
        return []
    return ["--config", file.path]


def mounted(job: GPUJob, *, file: ConfigFile, config_map: str) -> GPUJob:
    """The job with the file in its first container."""
    spec = spec_of(job.spec.template)
    first, *others = spec["containers"]
    volume = {"name": VOLUME, "configMap": {"name": config_map, "items": [{"key": _KEY, "path": file.name}]}}
    first = {
        **first,
        "env": [*(first.get("env") or ()), {"name": names.ENV_CONFIG, "value": file.path}],
        "volumeMounts": [
            *(first.get("volumeMounts") or ()),
            {"name": VOLUME, "mountPath": FOLDER, "readOnly": True},
        ],
    }
    spec |= {"containers": [first, *others], "volumes": [*(spec.get("volumes") or ()), volume]}
    template = template_of(spec, metadata=job.spec.template.metadata)
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template))


def config_map_of(job: GPUJob) -> str | None:
    """The ConfigMap with the file that the job was submitted with."""
    for volume in spec_of(job.spec.template).get("volumes") or ():
        if volume.get("name") == VOLUME:
            return str((volume.get("configMap") or {}).get("name") or "") or None
    return None


async def copy_in(cluster: Cluster, *, job: GPUJob, file: ConfigFile) -> str:
    """Make the ConfigMap for a job that is not there yet; its name."""
    body = {
        "metadata": {"generateName": f"{job.metadata.name}-config-", "labels": {names.LABEL_CONFIG: "true"}},
        "data": {_KEY: file.text},
        "immutable": True,
    }
    made = await cluster.client.create(CONFIGMAPS, body=body, as_type=ConfigMap, namespace=cluster.namespace)
    return made.metadata.name


async def find(cluster: Cluster, *, config_map: str) -> ConfigMap:
    """Read the ConfigMap of an existing job. Raises `CommandError` if it has been deleted."""
    try:
        return await cluster.client.get(CONFIGMAPS, name=config_map, as_type=ConfigMap, namespace=cluster.namespace)
    except NotFound as error:
        raise CommandError(f"the file that the job was submitted with is gone (ConfigMap {config_map})") from error


async def give(cluster: Cluster, *, config_map: str, to: GPUJob) -> None:
    """Make the job an owner of the ConfigMap, which goes with the last of its owners."""
    owner = OwnerReference(api_version=names.API_VERSION, kind=GPUJOBS.kind, name=to.metadata.name, uid=to.metadata.uid)
    found = await find(cluster, config_map=config_map)
    meta = found.metadata
    owners = [*meta.owner_references, owner]
    patch = {
        "metadata": {
            "resourceVersion": meta.resource_version,
            "ownerReferences": [msgspec.to_builtins(each) for each in owners],
        }
    }
    await cluster.client.patch(CONFIGMAPS, name=config_map, patch=patch, as_type=ConfigMap, namespace=cluster.namespace)


async def drop(cluster: Cluster, *, config_map: str) -> None:
    """Delete the ConfigMap of a job that did not come to be."""
    await cluster.client.delete(CONFIGMAPS, name=config_map, namespace=cluster.namespace)
