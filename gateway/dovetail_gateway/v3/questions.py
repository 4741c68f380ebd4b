"""v3: dry run, explain, moves, audit, doctor and overview: true for every caller, without hidden names."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from dovetail import names
from dovetail.api.access_reviews import Act
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import wire_name
from dovetail.api.reasons import problems as says
from dovetail.decoding import UnreadableError, decode
from dovetail.kube.queries.disruption_budgets import list_disruption_budgets
from dovetail_gateway.access.callers import Caller, Clients
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.routing.numbers import decode_request
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly
from dovetail_gateway.v3.jobs import Jobs
from dovetail_gateway.v3.times import check_time
from dovetail_gateway.v3.types.jobs import JobPath
from dovetail_gateway.v3.types.questions import DoctorQuery, MovesQuery, NewRequest


class Questions:
    """The handlers of dry run, explain, moves, audit, doctor and overview."""

    def __init__(self, answers: Answers, *, jobs: Jobs, reviews: Reviews, clients: Clients) -> None:
        self._answers = answers
        self._clients = clients
        self._reviews = reviews
        self._jobs = jobs

    async def dry_run(self, call: Call[Nothing, Strictly, NewRequest]) -> Answer:
        """Where and when a job would start if the caller submitted it now."""
        await self._permit(call.caller, namespace=call.body.namespace)
        try:
            asked = _asked_job(call.body, user=call.who.username)
            found = await self._answers.dry_run(
                asked, who=call.who, sees=call.sees, in_place_of=self._replaced(call.body, sees=call.sees)
            )
        except ValueError as error:
            # The schema's CEL rules, which would have refused it, are the API server's.
            raise RequestFailedError(422, reason="Invalid", sentence=says.SPEC_UNUSABLE(problem=str(error))) from error
        return Answer(value=found)

    def _replaced(self, new: NewRequest, *, sees: Visibility) -> str:
        """The UID of the job that the request replaces; empty for none. Raises `RequestFailedError`."""
        if new.in_place_of is None:
            return ""
        path = JobPath(namespace=new.namespace, name=new.in_place_of)
        return self._jobs.find(path, sees=sees).metadata.uid

    async def _permit(self, caller: Caller, *, namespace: str) -> None:
        """Raise `RequestFailedError` for a namespace that the caller may not see: its limits would show."""
        if not await self._reviews.may(caller, act=Act(verb="list", namespace=namespace)):
            sentence = says.MAY_NOT(verb="list", resource="gpujobs.dovetail.dev") + says.IN_NAMESPACE(
                namespace=namespace
            )
            raise RequestFailedError(403, reason="Forbidden", sentence=sentence)

    async def explain_job(self, call: Call[JobPath, Strictly, Any]) -> Answer:
        """Why a job waits, or where it is, and what would help."""
        job = self._jobs.find(call.path, sees=call.sees)
        found = await self._answers.explain(job, who=call.who, sees=call.sees)
        return Answer(value=found)

    async def diagnose(self, call: Call[Nothing, DoctorQuery, Any]) -> Answer:
        """What is wrong with the installation or a node, as far as the caller may look."""
        wanted = call.query
        async with self._clients.client_for(call.caller) as client:
            found = await self._answers.diagnosis(client, namespace=wanted.namespace, node=wanted.node, who=call.who)
        if found is None:
            raise RequestFailedError(404, reason="NotFound", sentence=says.NO_SUCH_NODE(node=str(wanted.node)))
        return Answer(value=found)

    async def get_overview(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """All devices with their sums, and how many jobs run and wait."""
        return Answer(encoded=await self._answers.overview(who=call.who, sees=call.sees))

    async def get_moves(self, call: Call[Nothing, MovesQuery, Any]) -> Answer:
        """Which running jobs would have to restart elsewhere so that jobs start; nothing is changed."""
        jobs = [self._jobs.find(path, sees=call.sees) for path in call.query.paths]
        budgets = None
        if call.sees.everything:
            # Where namespaces are hidden, the pods of their budgets are unknown.
            async with self._clients.client_for(call.caller) as client:
                budgets = await list_disruption_budgets(client)
        found = await self._answers.moves(
            jobs, budgets=budgets, to_apply=call.query.willing, who=call.who, sees=call.sees
        )
        return Answer(value=found)

    async def get_audit(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """Whether any device is promised beyond its capacity."""
        return Answer(value=await self._answers.audit(who=call.who, sees=call.sees))


class _Container(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(max_length=63)]
    image: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename=wire_name):
    """What the CRD's schema says of a pod's spec."""

    restart_policy: Annotated[str, Meta(max_length=16)] = ""
    containers: Annotated[list[_Container], Meta(max_length=32)] = []


def _asked_job(new: NewRequest, *, user: str) -> GPUJob:
    """The job of a dry run as the caller would submit it, checked as the API server would check it.

    Raises `RequestFailedError`.
    """
    metadata = {"name": "asked", "namespace": new.namespace, "annotations": {names.USER: user}}
    try:
        job = decode_request(msgspec.json.encode({"metadata": metadata, "spec": new.spec}), as_type=GPUJob)
        check_template(job)
    except UnreadableError as error:
        raise RequestFailedError(422, reason="Invalid", sentence=says.SPEC_UNREADABLE(problem=error.problem)) from error
    check_time("spec.beginTime", text=job.spec.begin_time)
    check_time("spec.moveRequestTime", text=job.spec.move_request_time)
    if job.spec.reservation is not None:
        check_time("spec.reservation.renewTime", text=job.spec.reservation.renew_time)
    return job


def check_template(job: GPUJob) -> None:
    """Raise `UnreadableError` for a pod's spec that the CRD's schema refuses."""
    try:
        decode(job.spec.template.spec, as_type=_PodSpec)
    except UnreadableError as error:
        raise UnreadableError(f"template.spec: {error.problem}") from error
