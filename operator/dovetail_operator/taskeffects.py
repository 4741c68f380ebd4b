"""The tasks of an array at the API server: made, and told what becomes of all of them."""

from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, StatusError
from dovetail.kube.resources import GPUJOBS
from dovetail_operator import services
from dovetail_operator.actions import ChangeTask, CreateTask
from dovetail_operator.observed import Obstacle
from dovetail_operator.ownership import is_owned


async def create(client: Client, parent: GPUJob, action: CreateTask) -> GPUJob | Obstacle:
    """The GPUJob of a task, made now or found as one that was made before; or why it cannot be."""
    name, namespace = action.manifest["metadata"]["name"], parent.metadata.namespace
    try:
        return await client.create(GPUJOBS, action.manifest, as_type=GPUJob, namespace=namespace)
    except AlreadyExists:
        found = await client.get(GPUJOBS, name, as_type=GPUJob, namespace=namespace)
    except StatusError as error:
        return services.refusal(error, kind=f"task {name}")
    if is_owned(found.metadata, by=parent):
        return found
    if any(owner.name == parent.metadata.name for owner in found.metadata.owner_references):
        return Obstacle(reason="Evaluating", message=f"Waiting for task {name} of an earlier job of this name to go")
    return Obstacle(message=f"A GPUJob named {name} exists and is no task of this job: delete it, or rename this one")


async def change(client: Client, action: ChangeTask) -> GPUJob:
    """The task with those fields changed; only this very one. Raises `Conflict` and `NotFound`."""
    meta = action.task.metadata
    patch = {"metadata": {"uid": meta.uid, "annotations": dict(action.annotations)}, "spec": dict(action.spec)}
    return await client.patch(GPUJOBS, meta.name, patch, as_type=GPUJob, namespace=meta.namespace)
