"""The tasks of an array at the API server: made, and told what becomes of all of them."""

from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.owner_reference import is_owned
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, StatusError
from dovetail_operator.arrays.task_index import obstacle_of
from dovetail_operator.job.actions import ChangeTask, CreateTask
from dovetail_operator.writes import services


async def create(client: Client, parent: GPUJob, action: CreateTask) -> GPUJob | Obstacle:
    """The GPUJob of a task, made now or found as one that was made before; or why it cannot be."""
    name, namespace = action.manifest["metadata"]["name"], parent.metadata.namespace
    try:
        return await client.create(GPUJOBS, action.manifest, as_type=GPUJob, namespace=namespace)
    except AlreadyExists:
        found = await client.get(GPUJOBS, name, as_type=GPUJob, namespace=namespace)
    except StatusError as error:
        return services.refusal(error, kind=f"task {name}")
    return found if is_owned(found.metadata, by=parent) else obstacle_of(found.metadata, parent=parent)


async def change(client: Client, action: ChangeTask) -> GPUJob:
    """The task with those fields changed; only this very one. Raises `Conflict` and `NotFound`."""
    meta = action.task.metadata
    patch = {"metadata": {"uid": meta.uid, "annotations": dict(action.annotations)}, "spec": dict(action.spec)}
    return await client.patch(GPUJOBS, meta.name, patch, as_type=GPUJob, namespace=meta.namespace)
