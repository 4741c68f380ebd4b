"""Writes a gang's headless Service: created before the batch Job, deleted with the GPUJob."""

from typing import Any

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.reasons.start import API_QUOTA, API_REFUSES, EARLIER_OBJECT, NAME_TAKEN
from dovetail.api.resources import SERVICES
from dovetail.jobs.batch_job import is_of_an_earlier_one, is_owned
from dovetail.jobs.obstacle import Obstacle
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, Conflict, StatusError, TooManyRequests, Unauthorized
from dovetail_operator.job.failure_policy import as_users_rules


class Named(Described, frozen=True, kw_only=True):
    """An object of which only the metadata are read."""

    metadata: ObjectMeta = ObjectMeta()


async def ensure(client: Client, *, job: GPUJob, manifest: dict[str, Any]) -> Obstacle | None:
    """Create the Service, or find the one that was created before. Returns why it cannot exist."""
    name, namespace = job.metadata.name, job.metadata.namespace
    try:
        await client.create(SERVICES, body=manifest, as_type=Named, namespace=namespace)
    except AlreadyExists:
        found = await client.get(SERVICES, name=name, as_type=Named, namespace=namespace)
        return None if is_owned(found.metadata, by=job) else in_the_way(found.metadata, kind="Service", of=job)
    except StatusError as error:
        return refusal(error, kind="Service")
    return None


def in_the_way(meta: ObjectMeta, *, kind: str, of: GPUJob) -> Obstacle:
    """The obstacle for a GPUJob that needs a name which this object has."""
    if is_of_an_earlier_one(meta, than=of):
        return Obstacle.of(EARLIER_OBJECT(kind=kind))
    return Obstacle.of(NAME_TAKEN(kind=kind, name=of.metadata.name))


def refusal(error: StatusError, *, kind: str) -> Obstacle:
    """The API server's refusal of an object as an obstacle.

    Raises an error that may pass by itself.
    """
    if isinstance(error, (Conflict, TooManyRequests, Unauthorized)) or error.code >= 500:
        raise error
    refused = API_QUOTA if "exceeded quota" in error.message else API_REFUSES
    return Obstacle.of(refused(kind=kind, message=as_users_rules(error.message)))
