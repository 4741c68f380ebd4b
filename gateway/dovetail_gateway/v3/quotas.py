"""v3: quotas as far as the caller may see them; changes as the caller, and what they would do first."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace as with_fields

from dovetail import names
from dovetail.answers.quotas import QuotaList
from dovetail.api.access_reviews import Act
from dovetail.api.crd import structural_schema
from dovetail.api.gpuquota import KIND, GPUQuota
from dovetail.api.reasons import problems as says
from dovetail.api.resources import GPUQUOTAS
from dovetail.api.schema_problems import first_problem
from dovetail.decoding import UnreadableError
from dovetail.kube.errors import Conflict
from dovetail.query.quotas.changes import changed, merged, patch_of, problem_of, problem_of_parent
from dovetail.query.quotas.listing import quota_list
from dovetail_gateway.access.callers import Clients
from dovetail_gateway.access.reviews import Reviews
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.cluster.other_names import reader_of
from dovetail_gateway.routing.numbers import whole
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly
from dovetail_gateway.v3.permissions import require
from dovetail_gateway.v3.types.quotas import PlannedQuotaPatch, QuotaPatch, QuotaPath

_CHANGE: Final = Act(verb="patch", resource="gpuquotas")
# The operator writes the status of a quota every few seconds, and each write is another resourceVersion.
_TRIES: Final = 5


class Quotas:
    """The handlers of `/api/v3/quotas`."""

    def __init__(self, cache: ClusterCache, *, answers: Answers, clients: Clients, reviews: Reviews) -> None:
        self._cache = cache
        self._answers = answers
        self._clients = clients
        self._reviews = reviews

    async def list_quotas(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """The quotas that apply to the caller's namespaces, and what is used of them."""
        found = self._seen(call.sees)
        return Answer(value=with_fields(found, may_change=await self._reviews.may(call.caller, act=_CHANGE)))

    async def get_quota_effects(self, call: Call[QuotaPath, Strictly, PlannedQuotaPatch]) -> Answer:
        """What a change to a quota would do to jobs and to the other quotas; nothing is changed."""
        await require(self._reviews, caller=call.caller, act=_CHANGE)
        name, known = call.path.name, self._known()
        if name not in known or all(row.name != name for row in self._seen(call.sees).items):
            raise RequestFailedError(404, reason="NotFound", sentence=says.NO_QUOTA(quota=name))
        _, wanted = _change(known[name], asked=call.body.spec, others=known)
        return Answer(value=await self._answers.quota_plan(wanted, who=call.who, sees=call.sees))

    async def change_quota(self, call: Call[QuotaPath, Strictly, QuotaPatch]) -> Answer:
        """Change the spec of a quota as the caller, unless another one has changed it since it was read."""
        name, known = call.path.name, self._known()
        async with self._clients.client_for(call.caller) as client:
            for _ in range(_TRIES):
                before = await client.get(GPUQUOTAS, name=name, as_type=GPUQuota)
                _check_generation(before, wanted=call.body.generation)
                spec, _ = _change(before, asked=call.body.spec, others=known)
                patch = {"metadata": {"resourceVersion": before.metadata.resource_version}, "spec": spec}
                try:
                    after = await client.patch(GPUQUOTAS, name=name, patch=patch, as_type=GPUQuota)
                except Conflict:
                    continue
                # The API server gave the whole object to the caller.
                rows = quota_list({**known, name: after}.values()).items
                return Answer(value=next(row for row in rows if row.name == name))
        raise RequestFailedError(409, reason="Conflict", sentence=says.QUOTA_WRITTEN_OFTEN(quota=name))

    def _seen(self, sees: Visibility) -> QuotaList:
        return quota_list(self._cache.quotas, jobs=self._cache.jobs.values(), reader=reader_of(sees))

    def _known(self) -> dict[str, GPUQuota]:
        return {each.metadata.name: each for each in self._cache.quotas}


def _check_generation(quota: GPUQuota, *, wanted: int | None) -> None:
    now = quota.metadata.generation
    if wanted is not None and wanted != now:
        sentence = says.QUOTA_HAS_CHANGED(quota=quota.metadata.name, now=str(now), read=wanted)
        raise RequestFailedError(409, reason="Conflict", sentence=sentence)


def _change(
    before: GPUQuota, *, asked: Mapping[str, Any], others: Mapping[str, GPUQuota]
) -> tuple[dict[str, Any], GPUQuota]:
    """The patch of the spec, and the quota after it. Raises `RequestFailedError` for one that cannot be."""
    name, patch = before.metadata.name, patch_of(before, changes=whole(dict(asked)))
    document = {"apiVersion": names.API_VERSION, "kind": KIND, "metadata": {"name": name}}
    problem = first_problem({**document, "spec": merged(before, patch=patch)}, schema=structural_schema(GPUQuota))
    if not problem:
        try:
            after = changed(name, before=before, patch=patch)
        except UnreadableError as error:
            problem = error.problem
        else:
            problem = problem_of(after)
            if not problem and (of_parent := problem_of_parent(after, others=others)):
                problem = f"spec.parent {of_parent}"
    if problem:
        raise RequestFailedError(422, reason="Invalid", sentence=says.VALUE_REFUSED(problem=problem))
    return patch, with_fields(after, metadata=before.metadata, status=before.status)
