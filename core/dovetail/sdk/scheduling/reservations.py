"""Where a scheduler reserves GPUs: at a gateway, or at the API server of the official Kubernetes client."""

import time
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, Protocol

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.decoding import UnreadableError, decode
from dovetail.sdk.blocking.client import Client
from dovetail.sdk.errors import (
    ConflictError,
    InvalidError,
    NotFoundError,
    RefusedError,
    UnexpectedAnswerError,
    UnreachableError,
    WaitTimeoutError,
    refused,
)
from dovetail.sdk.progress import FINISHED

_LOOK_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The node of the reserved GPUs; None, and why, without room."""

    node: str | None
    why: str = ""


class Reservations(Protocol):
    """Makes and ends GPUJobs with `spec.reservation`."""

    def reserve(self, spec: dict[str, Any], *, name: str, namespace: str, key: str, wait_seconds: float) -> Outcome:
        """Reserve GPUs, and withdraw the request without a place in time. The same `key` is the same reservation.

        Raises `DovetailError`.
        """

    def release(self, name: str, *, namespace: str) -> bool:
        """Release the GPUs; false if there are none. Raises `InvalidError` for a job, and `DovetailError`."""


def reservations(client: Any) -> Reservations:
    """The reservations of a `Client` or an official Kubernetes client; of DOVETAIL_GATEWAY's for anything else."""
    if is_official(client):
        return ApiServerReservations(getattr(client, "api_client", client))
    return GatewayReservations(client if isinstance(client, Client) else Client())


def is_official(client: Any) -> bool:
    """Whether this is an API or an ApiClient of the official Kubernetes client."""
    own = getattr(client, "api_client", client)
    return hasattr(own, "call_api") and hasattr(own, "configuration")


class GatewayReservations:
    """Reservations by REST v3."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def reserve(self, spec: dict[str, Any], *, name: str, namespace: str, key: str, wait_seconds: float) -> Outcome:
        """See `Reservations`."""
        job = self._client.submit(spec=spec, name=name, namespace=namespace, key=key)
        placed = False
        try:
            placed = job.wait("Running", timeout_seconds=wait_seconds, progress=False) == "Running"
        except WaitTimeoutError:
            pass
        finally:
            if not placed:
                job.delete()
        return Outcome(node=job.row.nodes[0]) if placed else Outcome(node=None, why=job.row.message or job.phase)

    def release(self, name: str, *, namespace: str) -> bool:
        """See `Reservations`."""
        try:
            job = self._client.job(name, namespace=namespace)
        except NotFoundError:
            return False
        _check_reservation(job.row.reservation, name=name, namespace=namespace)
        job.delete()
        return True


class ApiServerReservations:
    """Reservations as objects of the API server: with the server, the authority and the credentials of the client."""

    def __init__(self, api_client: Any) -> None:
        from kubernetes.client import CustomObjectsApi

        self._objects = CustomObjectsApi(api_client)
        self._server = str(api_client.configuration.host)

    def reserve(self, spec: dict[str, Any], *, name: str, namespace: str, key: str, wait_seconds: float) -> Outcome:
        """See `Reservations`."""
        digest = sha256(key.encode()).hexdigest()
        job = self._created(spec, name=name, namespace=namespace, digest=digest)
        limit, placed = time.monotonic() + wait_seconds, False
        try:
            while not (placed := job.status.phase == "Running" and bool(job.status.nodes)):
                if job.status.phase in FINISHED or time.monotonic() >= limit:
                    break
                time.sleep(_LOOK_SECONDS)
                job = self._get(name, namespace=namespace)
        finally:
            if not placed:
                self._delete(name, namespace=namespace)
        return Outcome(node=job.status.nodes[0]) if placed else Outcome(node=None, why=job.status.message)

    def release(self, name: str, *, namespace: str) -> bool:
        """See `Reservations`."""
        try:
            job = self._get(name, namespace=namespace)
        except NotFoundError:
            return False
        _check_reservation(job.spec.reservation is not None, name=name, namespace=namespace)
        self._delete(name, namespace=namespace)
        return True

    def _created(self, spec: dict[str, Any], *, name: str, namespace: str, digest: str) -> GPUJob:
        meta = {"name": name, "namespace": namespace, "annotations": {names.REQUEST_DIGEST: digest}}
        body = {
            "apiVersion": f"{GPUJOBS.group}/{GPUJOBS.version}",
            "kind": GPUJOBS.kind,
            "metadata": meta,
            "spec": spec,
        }
        try:
            return self._job(self._ask("create", namespace=namespace, body=body))
        except ConflictError:
            job = self._get(name, namespace=namespace)
            if job.metadata.annotations.get(names.REQUEST_DIGEST) != digest:
                raise
            return job

    def _get(self, name: str, *, namespace: str) -> GPUJob:
        return self._job(self._ask("get", namespace=namespace, name=name))

    def _delete(self, name: str, *, namespace: str) -> None:
        try:
            self._ask("delete", namespace=namespace, name=name)
        except NotFoundError:
            return

    def _job(self, found: Any) -> GPUJob:
        try:
            # A GPUJob's template is text, so it is decoded from text.
            return decode(msgspec.json.encode(found), as_type=GPUJob)
        except UnreadableError as error:
            raise UnexpectedAnswerError(self._server, call="GPUJob", problem=error.problem) from error

    def _ask(self, verb: str, *, namespace: str, **options: Any) -> Any:
        """What the API server answers. Raises `RefusedError` and `UnreachableError`."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        ask = getattr(self._objects, f"{verb}_namespaced_custom_object")
        try:
            return ask(
                group=GPUJOBS.group, version=GPUJOBS.version, plural=GPUJOBS.plural, namespace=namespace, **options
            )
        except ApiException as error:
            raise _refused(error) from error
        except HTTPError as error:
            raise UnreachableError(self._server, call=verb, problem=str(error), attempts=1) from error


def _check_reservation(is_one: bool, *, name: str, namespace: str) -> None:
    if not is_one:
        raise InvalidError(f"{namespace}/{name} is a job and no reservation of a pod", status=409)


def _refused(error: Any) -> RefusedError:
    """The refusal of an API server, by its Status object."""
    try:
        status = decode((error.body or "{}").encode(), as_type=dict[str, Any])
    except UnreadableError:
        status = {}
    message = str(status.get("message") or error.reason or error.status)
    return refused(error.status, reason=str(status.get("reason", "")), message=message)
