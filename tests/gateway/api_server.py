"""The tests' API server with what the gateway asks for more: tokens, their rights, and GPUJobs that callers change."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from dovetail.api.gpujob import GPUJob
from dovetail.decoding import UnreadableError, decode
from dovetail_gateway.v3.questions import check_template
from tests.extender.api_server import LISTS, ApiServer, _status

_JOBS = "/apis/dovetail.dev/v1beta1/namespaces/{namespace}/gpujobs"
_QUERIES = "/apis/dovetail.dev/v1beta1/namespaces/{namespace}/historyqueries"
_QUOTAS = "/apis/dovetail.dev/v1beta1/gpuquotas"
_CONFIGMAPS = "/api/v1/namespaces/dovetail-system/configmaps"
_ALL = "*"


@dataclass
class User:
    """A user with verbs on GPUJobs by namespace; `*` stands for all namespaces."""

    name: str
    verbs: dict[str, set[str]] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    extra: dict[str, list[str]] = field(default_factory=dict)

    def may(self, verb: str, namespace: str) -> bool:
        return verb in self.verbs.get(_ALL, set()) or (bool(namespace) and verb in self.verbs.get(namespace, set()))


EDIT = {"get", "list", "watch", "create", "patch", "delete"}


class GatewayApiServer(ApiServer):
    """`users` by token. `reviews` and `requests` are what was asked, with the user's name; `identified` are
    the users of SelfSubjectReviews.

    A log that is followed ends once `log_ends` is set. `log_refusal`: logs get that answer. Those of the pods
    `log_breaks` break off after their first line.
    `events` are those of every object. `answer` is the status of every HistoryQuery, `questions` are their specs.
    Watches show changes `late_seconds` after they happen. The operator comes between the next `quota_writes` reads and
    writes of a quota.
    """

    lists = {
        **LISTS,
        "jobs": "/apis/batch/v1/jobs",
        "configmaps": _CONFIGMAPS,
        "nodepools": "/apis/karpenter.sh/v1/nodepools",
        "rolebindings": "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    }

    def __init__(self) -> None:
        super().__init__()
        self.users = {
            "admin-token": User("admin", {_ALL: EDIT}),
            "red-token": User("rita", {"red": EDIT}),
            "reader-token": User("rob", {"red": {"list", "watch"}}),
            "nobody-token": User("nina"),
        }
        self.reviews: list[tuple[str, str, str]] = []
        self.identified: list[str] = []
        # Reviews are answered while this is set.
        self.reviewing = asyncio.Event()
        self.reviewing.set()
        self.requests: list[tuple[str, str, str]] = []
        self.token_requests = 0
        self.log_queries: list[dict[str, str]] = []
        self.log_ends = asyncio.Event()
        self.questions: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {"answered": True, "records": [], "next": ""}
        self.log_refusal: tuple[int, str] | None = None
        self.log_breaks: set[str] = set()
        self.events: list[dict[str, Any]] = [
            {"metadata": {"name": "e"}, "type": "Normal", "reason": "Queued", "message": "it waits"}
        ]
        self.late_seconds = 0.0
        self.quota_writes = 0
        self._uids = itertools.count(1)

    def _tell(self, kind: str, event: str, subject: dict[str, Any]) -> None:
        if self.late_seconds:
            asyncio.get_running_loop().call_later(self.late_seconds, super()._tell, kind, event, subject)
        else:
            super()._tell(kind, event, subject)

    def add_to(self, app: web.Application) -> None:
        app.router.add_post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", self._review)
        app.router.add_post("/apis/authorization.k8s.io/v1/subjectaccessreviews", self._review_of_another)
        app.router.add_post("/apis/authentication.k8s.io/v1/selfsubjectreviews", self._who)
        app.router.add_post("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", self._token)
        app.router.add_get("/api/v1/namespaces/{namespace}/events", self._events)
        app.router.add_get("/api/v1/namespaces/{namespace}/pods/{name}/log", self._log)
        app.router.add_get(_QUERIES, self._list)
        app.router.add_post(_QUERIES, self._ask)
        app.router.add_get(_QUERIES + "/{name}", self._answer)
        app.router.add_delete(_QUERIES + "/{name}", self._forget)
        app.router.add_get(_JOBS, self._list)
        app.router.add_post(_JOBS, self._create)
        app.router.add_get(_JOBS + "/{name}", self._get)
        app.router.add_patch(_JOBS + "/{name}", self._patch)
        app.router.add_patch("/apis/dovetail.dev/v1beta1/gpunodes/{name}", self._patch_node)
        app.router.add_get(_QUOTAS + "/{name}", self._get_quota)
        app.router.add_patch(_QUOTAS + "/{name}", self._patch_quota)
        app.router.add_delete(_JOBS + "/{name}", self._delete)
        app.middlewares.append(self._of_the_whole_cluster)
        # Last: of two handlers for one path and method the first answers, and the gateway's asks for rights.
        super().add_to(app)

    def bind(self, namespace: str, *, user: str = "", group: str = "", role: str = "r") -> None:
        """A RoleBinding that names the user or the group."""
        subject = {"kind": "User", "name": user} if user else {"kind": "Group", "name": group}
        meta = {"name": role, "namespace": namespace, "uid": f"binding-{namespace}-{role}"}
        self.put("rolebindings", {"metadata": meta, "subjects": [subject]})

    def number(self, *devices: str) -> None:
        """Do what the operator does: number these devices from 0."""
        data = {str(number): device for number, device in enumerate(devices)}
        self.put("configmaps", {"metadata": {"name": "dovetail-device-indexes", "uid": "indexes"}, "data": data})

    def run(self, key: str, *, devices: list[dict[str, Any]]) -> None:
        """Do what the operator does once a job's workers run on these devices."""
        job = self.objects["gpujobs"][key]
        nodes = list(dict.fromkeys(device["node"] for device in devices))
        lease = {"expirationTime": "2100-01-01T00:00:00Z"}
        job["status"] = {"phase": "Running", "number": 1, "nodes": nodes, "devices": devices, "lease": lease}
        self.put("gpujobs", job)

    def _user(self, request: web.Request) -> User | None:
        return self.users.get(request.headers.get("Authorization", "").removeprefix("Bearer "))

    async def _review(self, request: web.Request) -> web.Response:
        user = self._user(request)
        if user is None:
            return _status(401, "Unauthorized", "Unauthorized")
        asked = (await request.json())["spec"]["resourceAttributes"]
        await self.reviewing.wait()
        self.reviews.append((user.name, asked["verb"], asked.get("namespace", "")))
        allowed = user.may(asked["verb"], asked.get("namespace", ""))
        return web.json_response({"status": {"allowed": allowed}}, status=201)

    async def _review_of_another(self, request: web.Request) -> web.Response:
        refused = self._refused_of_all(request, verb="create")
        return refused or web.json_response({"status": {"allowed": True}}, status=201)

    @property
    def _of_the_whole_cluster(self) -> Any:
        @web.middleware
        async def check(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            reads = request.method == "GET" and "namespace" not in request.match_info
            refused = self._refused_of_all(request, verb="list") if reads else None
            return await handler(request) if refused is None else refused

        return check

    def _refused_of_all(self, request: web.Request, *, verb: str) -> web.Response | None:
        """The refusal of a user who may not read all namespaces; the gateway itself is no user."""
        user = self._user(request)
        if user is None or user.may("list", ""):
            return None
        what = request.path.rpartition("/")[2]
        return _status(403, "Forbidden", f'User "{user.name}" cannot {verb} resource "{what}" at the cluster scope')

    async def _list(self, request: web.Request) -> web.Response:
        refused = self._refused(request, "list", "x")
        return refused or web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    async def _who(self, request: web.Request) -> web.Response:
        user = self._user(request)
        if user is None:
            return _status(401, "Unauthorized", "Unauthorized")
        self.identified.append(user.name)
        # As the API server names a service account's token, so that two tokens of one user differ.
        extra = {"authentication.kubernetes.io/credential-id": [f"JTI={next(self._uids)}"]} | user.extra
        info = {"username": user.name, "groups": ["system:authenticated", *user.groups], "extra": extra}
        return web.json_response({"status": {"userInfo": info}}, status=201)

    async def _token(self, request: web.Request) -> web.Response:
        self.token_requests += 1
        return web.json_response({"status": {"token": "red-token"}}, status=201)

    async def _events(self, request: web.Request) -> web.Response:
        refused = self._refused(request, "list", "x")
        return refused or web.json_response({"metadata": {"resourceVersion": "1"}, "items": self.events})

    async def _ask(self, request: web.Request) -> web.Response:
        if refused := self._refused(request, "create", "query"):
            return refused
        self.questions.append((await request.json())["spec"])
        return web.json_response({"metadata": {"name": "ask-1"}, "spec": {}}, status=201)

    async def _answer(self, request: web.Request) -> web.Response:
        return web.json_response({"metadata": {"name": "ask-1"}, "spec": {}, "status": self.answer})

    async def _forget(self, request: web.Request) -> web.Response:
        self.requests.append(("", "forget", request.match_info["name"]))
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        if refused := self._refused(request, "get", request.match_info["name"]):
            return refused
        self.log_queries.append(dict(request.query))
        if self.log_refusal is not None:
            return _status(self.log_refusal[0], "Because", self.log_refusal[1])
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(f"lines of {request.match_info['name']}\n".encode())
        if request.match_info["name"] in self.log_breaks:
            assert request.transport is not None
            request.transport.abort()
            return response
        if request.query.get("follow") == "true":
            await self.log_ends.wait()
            await response.write(b"the last line\n")
        return response

    async def _create(self, request: web.Request) -> web.Response:
        job = await request.json()
        namespace, name = request.match_info["namespace"], job["metadata"]["name"]
        if refused := self._refused(request, "create", name):
            return refused
        if f"{namespace}/{name}" in self.objects["gpujobs"]:
            return _status(409, "AlreadyExists", f'gpujobs.dovetail.dev "{name}" already exists')
        if problem := _problem(job):
            return _status(422, "Invalid", problem)
        job["spec"] = _without_null(job["spec"])
        user = self._user(request)
        assert user is not None
        job["metadata"] |= {"namespace": namespace, "uid": f"made-{next(self._uids)}"}
        job["metadata"].setdefault("annotations", {})["dovetail.dev/user"] = user.name
        job["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
        if request.query.get("dryRun") != "All":
            self.put("gpujobs", job)
        return web.json_response(job, status=201)

    async def _get(self, request: web.Request) -> web.Response:
        refused, job = self._found(request, "get")
        return refused or web.json_response(job)

    async def _patch(self, request: web.Request) -> web.Response:
        refused, job = self._found(request, "patch")
        if refused is not None:
            return refused
        for field_, value in (await request.json())["spec"].items():
            job["spec"][field_] = {**job["spec"].get(field_, {}), **value} if isinstance(value, dict) else value
        if problem := _problem(job):
            job["spec"].pop("reservation", None)
            return _status(422, "Invalid", problem)
        self.put("gpujobs", job)
        return web.json_response(job)

    async def _patch_node(self, request: web.Request) -> web.Response:
        user, name = self._user(request), request.match_info["name"]
        assert user is not None
        self.requests.append((user.name, "patch", f"gpunodes/{name}"))
        if not user.may("patch", ""):
            return _status(403, "Forbidden", f'User "{user.name}" cannot patch resource "gpunodes"')
        node = self.objects["gpunodes"][name]
        limits = node.setdefault("spec", {}).setdefault("tenantLimits", {})
        for uuid, given in (await request.json())["spec"]["tenantLimits"].items():
            limits[uuid] = {**limits.get(uuid, {}), **given}
        self.put("gpunodes", node)
        return web.json_response(node)

    async def _get_quota(self, request: web.Request) -> web.Response:
        refused, quota = self._found_quota(request, "get")
        return refused or web.json_response(quota)

    async def _patch_quota(self, request: web.Request) -> web.Response:
        refused, quota = self._found_quota(request, "patch")
        if refused is not None:
            return refused
        patch = await request.json()
        if self.quota_writes:
            # The operator's status, between the gateway's read and its write.
            self.quota_writes -= 1
            self.put("gpuquotas", quota)
        if patch["metadata"]["resourceVersion"] != quota["metadata"]["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified; please apply your changes to the latest")
        quota["spec"] = merge(quota["spec"], patch["spec"])
        quota["metadata"]["generation"] = quota["metadata"].get("generation", 0) + 1
        self.put("gpuquotas", quota)
        return web.json_response(quota)

    def _found_quota(self, request: web.Request, verb: str) -> tuple[web.Response | None, dict[str, Any]]:
        user, name = self._user(request), request.match_info["name"]
        if user is None:
            return _status(401, "Unauthorized", "Unauthorized"), {}
        self.requests.append((user.name, verb, f"gpuquotas/{name}"))
        if not user.may(verb, ""):
            return _status(403, "Forbidden", f'User "{user.name}" cannot {verb} resource "gpuquotas"'), {}
        quota = self.objects["gpuquotas"].get(name)
        return (
            (_status(404, "NotFound", f'gpuquotas.dovetail.dev "{name}" not found'), {})
            if quota is None
            else (None, quota)
        )

    async def _delete(self, request: web.Request) -> web.Response:
        refused, _ = self._found(request, "delete")
        if refused is not None:
            return refused
        self.delete("gpujobs", "{namespace}/{name}".format(**request.match_info))
        return web.json_response({"kind": "Status", "status": "Success"})

    def _found(self, request: web.Request, verb: str) -> tuple[web.Response | None, dict[str, Any]]:
        name = request.match_info["name"]
        if refused := self._refused(request, verb, name):
            return refused, {}
        job = self.objects["gpujobs"].get("{namespace}/{name}".format(**request.match_info))
        return (
            (_status(404, "NotFound", f'gpujobs.dovetail.dev "{name}" not found'), {}) if job is None else (None, job)
        )

    def _refused(self, request: web.Request, verb: str, name: str) -> web.Response | None:
        user, namespace = self._user(request), request.match_info["namespace"]
        if user is None:
            return _status(401, "Unauthorized", "Unauthorized")
        self.requests.append((user.name, verb, f"{namespace}/{name}"))
        if user.may(verb, namespace):
            return None
        message = f'User "{user.name}" cannot {verb} resource "gpujobs" in the namespace "{namespace}"'
        return _status(403, "Forbidden", message)


def merge(value: Any, patch: Any) -> Any:
    """A merge patch, as the real one applies it."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for key, each in patch.items():
        found[key] = merge(found.get(key), each)
    return {key: each for key, each in found.items() if each is not None}


def _without_null(value: Any) -> Any:
    """The value as the real one stores it: a field that is null is absent."""
    if isinstance(value, dict):
        return {key: _without_null(each) for key, each in value.items() if each is not None}
    return list(map(_without_null, value)) if isinstance(value, list) else value


def _problem(job: dict[str, Any]) -> str:
    """What the CRD's schema and its rule on requests object to; empty if nothing."""
    try:
        check_template(decode(json.dumps(job), as_type=GPUJob))
    except UnreadableError as error:
        return error.problem
    asked = [key for key in ("gpu", "resources") if job["spec"].get(key) is not None]
    return "" if len(asked) == 1 else "spec: exactly one of gpu and resources"
