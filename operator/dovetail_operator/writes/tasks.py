"""Writes the tasks of an array: creates them and changes their spec."""

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.jobs.batch_job import is_owned
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, StatusError
from dovetail_operator.arrays.task_index import obstacle_of
from dovetail_operator.job.actions import ChangeTask, CreateTask
from dovetail_operator.writes import services


async def create(client: Client, *, parent: GPUJob, action: CreateTask) -> GPUJob | Obstacle:
    """Create the GPUJob of a task, or return the one that was created before.

    Returns why it cannot exist.
    """
    name, namespace = action.manifest["metadata"]["name"], parent.metadata.namespace
    try:
        return await client.create(GPUJOBS, body=action.manifest, as_type=GPUJob, namespace=namespace)
    except AlreadyExists:
        found = await client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=namespace)
    except StatusError as error:
        return services.refusal(error, kind=f"task {name}")
    return found if is_owned(found.metadata, by=parent) else obstacle_of(found.metadata, parent=parent)


async def change(client: Client, *, action: ChangeTask) -> GPUJob:
    """Change fields of exactly this task. Raises `Conflict` and `NotFound`."""
    meta = action.task.metadata
    patch = {"metadata": {"uid": meta.uid, "annotations": dict(action.annotations)}, "spec": dict(action.spec)}
    return await client.patch(GPUJOBS, name=meta.name, patch=patch, as_type=GPUJob, namespace=meta.namespace)
