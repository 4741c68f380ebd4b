"""The headless Service of a gang at the API server: made before the Job, and gone with the GPUJob."""

from typing import Any

from dovetail.api.gpujob import GPUJob, Reason
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import SERVICES
from dovetail.jobs.obstacle import Obstacle
from dovetail.jobs.owner_reference import is_of_an_earlier_one, is_owned
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, StatusError, TooManyRequests, Unauthorized
from dovetail_operator.job.retries import as_users_rules


class Named(Described, frozen=True, kw_only=True):
    """An object of which only the metadata matter."""

    metadata: ObjectMeta = ObjectMeta()


async def ensure(client: Client, job: GPUJob, manifest: dict[str, Any]) -> Obstacle | None:
    """Make the Service, or find the one that was made before; the answer says why it cannot be."""
    name, namespace = job.metadata.name, job.metadata.namespace
    try:
        await client.create(SERVICES, manifest, as_type=Named, namespace=namespace)
    except AlreadyExists:
        found = await client.get(SERVICES, name, as_type=Named, namespace=namespace)
        return None if is_owned(found.metadata, by=job) else in_the_way(found.metadata, kind="Service", of=job)
    except StatusError as error:
        return refusal(error, kind="Service")
    return None


def in_the_way(meta: ObjectMeta, *, kind: str, of: GPUJob) -> Obstacle:
    """What is to be said of an object that has a name which this GPUJob needs."""
    if is_of_an_earlier_one(meta, than=of):
        return Obstacle(reason="Evaluating", message=f"Waiting for the {kind} of an earlier GPUJob of this name to go")
    name = of.metadata.name
    return Obstacle(
        message=f"A {kind} named {name} exists and is not this GPUJob's: delete it, or submit under another name"
    )


def refusal(error: StatusError, *, kind: str) -> Obstacle:
    """What the API server has against an object, in words; raises what may pass by itself."""
    if isinstance(error, (Conflict, TooManyRequests, Unauthorized)) or error.code >= 500:
        raise error
    reason: Reason = "Quota" if "exceeded quota" in error.message else "Invalid"
    return Obstacle(reason=reason, message=f"The API server refuses the {kind}: {as_users_rules(error.message)}")
