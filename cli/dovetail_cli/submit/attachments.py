"""ConfigMaps that a job is submitted with: the file of --config, and its directory.

They are created before the job, so that no job waits for a file that never comes. The job becomes their owner once it
exists. If gbatch is killed between the two, a labelled ConfigMap without an owner remains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.api.meta import Described, ObjectMeta, OwnerReference
from dovetail.api.resources import CONFIGMAPS, GPUJOBS
from dovetail.kube.errors import KubeError, NotFound
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import create
from dovetail_cli.ui.errors import CommandError

# The pod's volumes that such ConfigMaps are, by purpose.
VOLUMES: Final[Mapping[str, str]] = {"config": "dovetail-config", "directory": "dovetail-directory"}


class Attachment(Protocol):
    """Something that goes along with a job, as a ConfigMap."""

    purpose: ClassVar[str]
    """One of `VOLUMES`."""

    @property
    def content(self) -> Mapping[str, Mapping[str, str]]:
        """The ConfigMap's `data` or `binaryData`."""

    def mounted(self, job: GPUJob, *, config_map: str) -> GPUJob:
        """The job with the ConfigMap where it belongs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A job, and what must be created with it."""

    job: GPUJob
    attached: tuple[Attachment, ...] = ()


class ConfigMap(Described, frozen=True, kw_only=True):
    """What is read of a ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()


async def create_with(cluster: Cluster, *, job: GPUJob, attached: Sequence[Attachment]) -> GPUJob:
    """Create the job with what goes along. Of a job that is refused nothing stays."""
    made: list[str] = []
    try:
        for each in attached:
            config_map = await _copy_in(cluster, job=job, attachment=each)
            made.append(config_map)
            job = each.mounted(job, config_map=config_map)
        created = await create.create(cluster, job=job)
    except (KubeError, CommandError):
        for config_map in made:
            await cluster.client.delete(CONFIGMAPS, name=config_map, namespace=cluster.namespace)
        raise
    for config_map in made:
        await give(cluster, config_map=config_map, to=created)
    return created


def preview(job: GPUJob, *, attached: Sequence[Attachment]) -> GPUJob:
    """The job as `create_with` would create it, with likely names of ConfigMaps."""
    for each in attached:
        job = each.mounted(job, config_map=f"{job.metadata.name}-{each.purpose}")
    return job


def config_maps_of(job: GPUJob) -> list[str]:
    """The ConfigMaps that the job was submitted with."""
    ours = [
        volume.get("configMap") or {}
        for volume in spec_of(job.spec.template).get("volumes") or ()
        if volume.get("name") in VOLUMES.values()
    ]
    return [str(each["name"]) for each in ours if each.get("name")]


async def find(cluster: Cluster, *, config_map: str) -> ConfigMap:
    """Read the ConfigMap of an existing job. Raises `CommandError` if it has been deleted."""
    try:
        return await cluster.client.get(CONFIGMAPS, name=config_map, as_type=ConfigMap, namespace=cluster.namespace)
    except NotFound as error:
        raise CommandError(f"what the job was submitted with is gone (ConfigMap {config_map})") from error


async def give(cluster: Cluster, *, config_map: str, to: GPUJob) -> None:
    """Make the job an owner of the ConfigMap, which is deleted with the last of its owners."""
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


async def _copy_in(cluster: Cluster, *, job: GPUJob, attachment: Attachment) -> str:
    """Create the ConfigMap for a job that does not exist yet; its name."""
    body: dict[str, Any] = {
        "metadata": {
            "generateName": f"{job.metadata.name}-{attachment.purpose}-",
            "labels": {names.LABEL_CONFIG: "true"},
        },
        **attachment.content,
        "immutable": True,
    }
    made = await cluster.client.create(CONFIGMAPS, body=body, as_type=ConfigMap, namespace=cluster.namespace)
    return made.metadata.name
