"""v3: lists of jobs from the cache; creating, changing and ending them with the caller's token."""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.answers.jobs import EventList, JobList, Removed, event_rows, job_details, job_row, position_of
from dovetail.answers.node_rows import runs
from dovetail.answers.owners import project_of, user_of
from dovetail.answers.submission import SubmittedJob, answer_of, submitted_job
from dovetail.api.builtin import Event, Node
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.meta import key_of
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import Sentence
from dovetail.api.resources import EVENTS, GPUJOBS
from dovetail.decoding import UnreadableError, decode
from dovetail.formats.timestamps import timestamp
from dovetail.kube.errors import AlreadyExists, NotFound
from dovetail.query.right_sizes import WITHDRAWN, accepted
from dovetail_gateway.access.callers import Caller, Clients
from dovetail_gateway.access.identities import Identity
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.numbers import whole
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.types.jobs import Creation, JobChange, JobFilter, JobPath, NewJob

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
_ENCODER: Final = msgspec.json.Encoder()
# How long an answer waits until the watch shows what the request created. Usually some milliseconds.
_SHOWN_SECONDS: Final = 2.0


class Jobs:
    """The handlers of `/api/v3/jobs`."""

    def __init__(self, cache: ClusterCache, *, clients: Clients, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._clients = clients
        self._now = now

    async def list_jobs(self, call: Call[Nothing, JobFilter, Any]) -> Answer:
        """A page of the jobs that the caller may list, by namespace and name."""
        wanted = call.query
        keys = sorted(key for key, job in self._cache.jobs.items() if _matches(job, wanted=wanted, sees=call.sees))
        chosen, after = page(keys, cursor=wanted.cursor, limit=wanted.limit)
        rows = [job_row(self._cache.jobs[key]) for key in chosen]
        return Answer(value=JobList(items=rows, next=after, total=len(keys)))

    async def get_job(self, call: Call[JobPath, Strictly, Any]) -> Answer:
        """One job."""
        job = self.find(call.path, sees=call.sees)
        return Answer(value=job_details(self._cache.with_figures(job, now=self._now())))

    async def get_position(self, call: Call[JobPath, Strictly, Any]) -> Answer:
        """The job's place in the queue."""
        return Answer(value=position_of(self.find(call.path, sees=call.sees)))

    async def list_events(self, call: Call[JobPath, Strictly, Any]) -> Answer:
        """What happened to the job, as the API server lets the caller read it."""
        job = self.find(call.path, sees=call.sees)
        async with self._clients.client_for(call.caller) as client:
            found = await client.list(
                EVENTS,
                as_type=Event,
                namespace=job.metadata.namespace,
                field_selector=f"involvedObject.uid={job.metadata.uid}",
            )
        return Answer(value=EventList(items=event_rows(found.items)))

    async def create_job(self, call: Call[Nothing, Creation, NewJob]) -> Answer:
        """Create a job as the caller. The same idempotency key gives the same job again."""
        new, key = call.body, call.headers.get(IDEMPOTENCY_KEY, "")
        name = new.name or f"{new.name_prefix}-{_suffix(key, who=call.who, namespace=new.namespace)}"
        digest = hashlib.sha256(_ENCODER.encode(new)).hexdigest()
        annotations = new.annotations | ({names.REQUEST_DIGEST: digest} if key else {})
        manifest = {
            "metadata": {
                "name": name,
                "generateName": f"{new.name or new.name_prefix}-",
                "namespace": new.namespace,
                "labels": new.labels,
                "annotations": annotations,
            },
            "spec": with_images(object_of(new.spec), nodes=self._cache.nodes.values()),
        }
        try:
            async with self._clients.client_for(call.caller) as client:
                job = await client.create(
                    GPUJOBS,
                    body=manifest,
                    as_type=GPUJob,
                    namespace=new.namespace,
                    dry_run=call.query.dry_run,
                    strict=True,
                )
        except AlreadyExists:
            if not key:
                raise
            before = await self._created_before(call.caller, new=new, name=name, digest=digest)
            return Answer(status=200, value=await self._answered(before, seconds=call.query.answer_seconds))
        if call.query.dry_run:
            return Answer(status=201, value=submitted_job(job, answer=None))
        # The next request may ask for it, and is answered from the cache.
        await self._cache.until(key_of(job.metadata), holds=lambda found: found is not None, seconds=_SHOWN_SECONDS)
        return Answer(status=201, value=await self._answered(job, seconds=call.query.answer_seconds))

    async def _answered(self, job: GPUJob, *, seconds: int) -> SubmittedJob:
        """The row of a new job, and the queue's answer if it decides within that time."""
        if not seconds:
            return submitted_job(job, answer=None)

        def decided(found: GPUJob | None) -> bool:
            return found is not None and answer_of(found, now=self._now()) is not None

        seen = await self._cache.until(key_of(job.metadata), holds=decided, seconds=seconds)
        if seen is None or seen.metadata.uid != job.metadata.uid:
            return submitted_job(job, answer=None)
        return submitted_job(seen, answer=answer_of(seen, now=self._now()))

    async def _created_before(self, caller: Caller, *, new: NewJob, name: str, digest: str) -> GPUJob:
        """The job that the same request created. Raises `RequestFailedError` if it was another request."""
        async with self._clients.client_for(caller) as client:
            job = await client.get(GPUJOBS, name=name, as_type=GPUJob, namespace=new.namespace)
        if job.metadata.annotations.get(names.REQUEST_DIGEST) == digest:
            return job
        sentence = says.ANOTHER_CREATED(namespace=new.namespace, job=name)
        raise RequestFailedError(409, reason="AlreadyExists", sentence=sentence)

    async def change_job(self, call: Call[JobPath, Strictly, JobChange]) -> Answer:
        """Hold, release, reprioritize, renew, move or resize a job as the caller, or request moves of others for it."""
        change, spec = call.body, dict[str, Any]()
        if change.held is not None:
            spec["suspend"] = change.held
        if change.priority is not None:
            spec["priority"] = change.priority
        if change.moves is not None:
            spec["moves"] = change.moves
        if change.request_moves is not None:
            spec["moveRequestTime"] = timestamp(self._now()) if change.request_moves else None
        if change.resize is not None:
            spec |= WITHDRAWN if change.resize == "Withdraw" else await self._accepted(call.caller, path=call.path)
        if change.renew:
            spec["reservation"] = {"renewTime": timestamp(self._now())}
        return Answer(value=job_row(await self._patched(call.caller, path=call.path, spec=spec)))

    async def _accepted(self, caller: Caller, *, path: JobPath) -> Mapping[str, str]:
        """The change by which it requests its right size. Raises `RequestFailedError` if it keeps its request."""
        async with self._clients.client_for(caller) as client:
            job = await client.get(GPUJOBS, name=path.name, as_type=GPUJob, namespace=path.namespace)
        now = self._now()
        found = accepted(self._cache.with_figures(job, now=now), now=now)
        if isinstance(found, Sentence):
            raise RequestFailedError(409, reason="Conflict", sentence=found)
        return found

    async def cancel_job(self, call: Call[JobPath, Strictly, Any]) -> Answer:
        """Cancel a job as the caller; it stays, with the phase Cancelled. Idempotent."""
        return Answer(value=job_row(await self._patched(call.caller, path=call.path, spec={"cancel": True})))

    async def delete_job(self, call: Call[JobPath, Strictly, Any]) -> Answer:
        """Delete a job and its pods as the caller. Idempotent."""
        path, found = call.path, True
        async with self._clients.client_for(call.caller) as client:
            try:
                await client.delete(GPUJOBS, name=path.name, namespace=path.namespace)
            except NotFound:
                found = False
        return Answer(value=Removed(namespace=path.namespace, name=path.name, found=found))

    def find(self, path: JobPath, *, sees: Visibility) -> GPUJob:
        """A job that the caller may see. Raises `RequestFailedError`: a hidden job and none look the same."""
        job = self._cache.jobs.get(f"{path.namespace}/{path.name}")
        if job is None or not sees.sees(path.namespace):
            sentence = says.NO_JOB(job=path.name, namespace=path.namespace)
            raise RequestFailedError(404, reason="NotFound", sentence=sentence)
        return job

    async def _patched(self, caller: Caller, *, path: JobPath, spec: dict[str, Any]) -> GPUJob:
        async with self._clients.client_for(caller) as client:
            return await client.patch(
                GPUJOBS, name=path.name, patch={"spec": spec}, as_type=GPUJob, namespace=path.namespace
            )


def _matches(job: GPUJob, *, wanted: JobFilter, sees: Visibility) -> bool:
    if not sees.sees(job.metadata.namespace):
        return False
    if wanted.namespace is not None and job.metadata.namespace != wanted.namespace:
        return False
    if wanted.number not in {None, job.status.number}:
        return False
    phase = job.status.phase or "Queued"
    if (wanted.phase is not None and phase != wanted.phase) or (wanted.unfinished and phase in FINISHED):
        return False
    return wanted.user in {None, user_of(job) or ""} and wanted.project in {None, project_of(job)}


def _suffix(key: str, *, who: Identity, namespace: str) -> str:
    """The end of a name: of an idempotency key always the same for one user and namespace, otherwise random."""
    if not key:
        return secrets.token_hex(4)
    return hashlib.sha256(_ENCODER.encode([who.username, namespace, key])).hexdigest()[:16]


def object_of(spec: msgspec.Raw) -> dict[str, Any]:
    """The object that is passed on as it is. Raises `RequestFailedError`."""
    try:
        found: dict[str, Any] = whole(decode(spec, as_type=dict[str, Any]))
    except UnreadableError as error:
        raise RequestFailedError(422, reason="Invalid", sentence=says.SPEC_NO_OBJECT(problem=error.problem)) from error
    return found


def with_images(spec: dict[str, Any], *, nodes: Iterable[Node]) -> dict[str, Any]:
    """The spec of a GPUJob, complete where no node runs images: all are simulated or run processes.

    Raises `RequestFailedError` for a container without an image elsewhere. What has another shape is left to the API
    server, which says what is wrong with it.
    """
    containers = _containers(spec)
    lacking = [at for at, container in enumerate(containers) if not container.get("image")]
    if not lacking:
        return spec
    if not _run_no_images(nodes):
        field = f"spec.template.spec.containers[{lacking[0]}].image"
        raise RequestFailedError(422, reason="Invalid", sentence=says.IMAGE_MISSING(field=field))
    complete = [{**container, "image": container.get("image") or names.UNUSED_IMAGE} for container in containers]
    template = spec["template"]
    return {**spec, "template": {**template, "spec": {**template["spec"], "containers": complete}}}


def _run_no_images(nodes: Iterable[Node]) -> bool:
    found = list(nodes)
    return bool(found) and all(runs(node) != "Containers" for node in found)


def _containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers; none if anything on the way to them has another shape."""
    place: Any = spec
    for key in ("template", "spec", "containers"):
        place = place.get(key) if isinstance(place, dict) else None
    if not isinstance(place, list) or not all(isinstance(each, dict) for each in place):
        return []
    return place
