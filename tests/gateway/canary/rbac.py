"""An API server that decides by Roles, as the real one's authorizer does: what no rule allows is refused.

It can fail a caller's requests in the ways in which API servers fail.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from aiohttp import web

from dovetail.names import GROUP
from tests.extender.api_server import _status
from tests.gateway.api_server import GatewayApiServer, User

Fault = Literal["429", "500", "503", "409", "gone", "silent", "garbage", "cut off"]
_PATH: Final = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/[^/]+(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?"
)
_VERBS: Final = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
# What the gateway asks about its callers: the caller needs no right for it.
_OF_ONESELF: Final = frozenset({"selfsubjectaccessreviews", "selfsubjectreviews"})


class Act(NamedTuple):
    """What a request does, as an authorizer sees it; `resource` has its subresource, such as `pods/log`."""

    verb: str
    group: str
    resource: str
    namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of a Role."""

    verbs: frozenset[str]
    group: str
    resources: frozenset[str]

    def allows(self, act: Act) -> bool:
        return act.verb in self.verbs and act.group == self.group and act.resource in self.resources


def rule(verbs: str, resources: str, *, group: str = GROUP) -> Rule:
    """A rule from words."""
    return Rule(verbs=frozenset(verbs.split()), group=group, resources=frozenset(resources.split()))


_LOGS: Final = rule("get", "pods/log", group="")
_EVENTS: Final = rule("list", "events", group="")
_HISTORY: Final = rule("create get delete", "historyqueries")
ROLES: Final = {
    "editor": [rule("get list watch create patch delete", "gpujobs"), _LOGS, _EVENTS, _HISTORY],
    "reader": [rule("get list watch", "gpujobs"), _EVENTS],
    "lister": [rule("list", "gpujobs")],
    "writer": [rule("get create patch delete", "gpujobs")],
    "node-admin": [rule("patch", "gpunodes")],
    # Asks what a change would do; the API server refuses to read the quota for the change itself.
    "quota-planner": [rule("patch", "gpuquotas")],
}


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A role in a namespace, or in all of them, for a user or a group such as `group:staff`."""

    role: str
    subject: str
    namespace: str = ""

    def allows(self, act: Act, *, user: User) -> bool:
        names = {user.name, *(f"group:{each}" for each in user.groups)}
        if self.subject not in names or (self.namespace and self.namespace != act.namespace):
            return False
        return any(each.allows(act) for each in ROLES[self.role])


class _Authenticated(User):
    """The Roles have decided already when the API server of the other tests asks."""

    def may(self, verb: str, namespace: str) -> bool:
        return True


class RbacApiServer(GatewayApiServer):
    """`bindings_of_roles` say who may do what. `fault(act)` says how a caller's request fails, if it does.

    `speaks` ends the silence of requests that get no answer. Logs and events name the namespace that they are of.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, User] = {}
        self.bindings_of_roles: set[Binding] = set()
        self.fault: Callable[[Act], Fault | None] = lambda _act: None
        self.speaks = asyncio.Event()
        self.line_of: Callable[[str, str], str] = lambda namespace, pod: f"{namespace}/{pod}"

    def add_user(self, token: str, name: str, *, groups: tuple[str, ...] = ()) -> None:
        self.users[token] = _Authenticated(name, groups=list(groups))

    def grant(self, role: str, subject: str, *, namespace: str = "") -> None:
        """Bind a role; the gateway sees a RoleBinding and no ClusterRoleBinding."""
        self.bindings_of_roles.add(Binding(role=role, subject=subject, namespace=namespace))
        if namespace:
            kind, _, name = subject.rpartition(":")
            subjects = [{"kind": "Group" if kind else "User", "name": name}]
            meta = {"name": f"{role}-{name}", "namespace": namespace, "uid": f"binding-{namespace}-{role}-{name}"}
            self.put("rolebindings", {"metadata": meta, "subjects": subjects})

    def revoke(self, role: str, subject: str, *, namespace: str = "") -> None:
        self.bindings_of_roles.discard(Binding(role=role, subject=subject, namespace=namespace))
        if namespace:
            self.delete("rolebindings", f"{namespace}/{role}-{subject.rpartition(':')[2]}")

    def allows(self, user: User, act: Act) -> bool:
        return any(each.allows(act, user=user) for each in self.bindings_of_roles)

    def visible_to(self, token: str, namespaces: Iterator[str] | list[str]) -> frozenset[str] | None:
        """The namespaces whose GPUJobs the bearer may list; None for all."""
        user = self.users[token]
        if self.allows(user, Act("list", GROUP, "gpujobs")):
            return None
        return frozenset(each for each in namespaces if self.allows(user, Act("list", GROUP, "gpujobs", each)))

    def add_to(self, app: web.Application) -> None:
        app.middlewares.append(self._authorizing)
        super().add_to(app)

    @property
    def _authorizing(self) -> Any:
        @web.middleware
        async def decide(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            user, act = self._user(request), act_of(request)
            if user is None or act is None:
                return await handler(request)
            if (fault := self.fault(act)) is not None:
                return await self._failing(request, fault=fault)
            if act.resource in _OF_ONESELF or self.allows(user, act):
                return await handler(request)
            where = f' in the namespace "{act.namespace}"' if act.namespace else " at the cluster scope"
            words = f'User "{user.name}" cannot {act.verb} resource "{act.resource}" in API group "{act.group}"{where}'
            return _status(403, "Forbidden", words)

        return decide

    async def _failing(self, request: web.Request, *, fault: Fault) -> web.StreamResponse:
        assert request.transport is not None
        match fault:
            case "gone":
                request.transport.abort()
            case "silent":
                await self.speaks.wait()
            case "garbage":
                return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
            case "cut off":
                response = web.StreamResponse(headers={"Content-Length": "1000"})
                await response.prepare(request)
                await response.write(b'{"metadata": {')
                request.transport.abort()
            case "429":
                refused = _status(429, "TooManyRequests", "the API server is busy")
                refused.headers["Retry-After"] = "0"
                return refused
            case _:
                return _status(int(fault), "Because", f"refused with {fault}")
        return web.Response(status=500)

    async def _review(self, request: web.Request) -> web.Response:
        user = self._user(request)
        if user is None:
            return _status(401, "Unauthorized", "Unauthorized")
        asked = (await request.json())["spec"]["resourceAttributes"]
        await self.reviewing.wait()
        sub = asked.get("subresource", "")
        resource = f"{asked['resource']}/{sub}" if sub else asked["resource"]
        act = Act(asked["verb"], asked.get("group", ""), resource, asked.get("namespace", ""))
        self.reviews.append((user.name, act.verb, act.namespace))
        return web.json_response({"status": {"allowed": self.allows(user, act)}}, status=201)

    async def _events(self, request: web.Request) -> web.Response:
        line = self.line_of(request.match_info["namespace"], "event")
        event = {"metadata": {"name": "e"}, "type": "Normal", "reason": "Queued", "message": line}
        refused = self._refused(request, "list", "x")
        return refused or web.json_response({"metadata": {"resourceVersion": "1"}, "items": [event]})

    async def _log(self, request: web.Request) -> web.StreamResponse:
        if refused := self._refused(request, "get", request.match_info["name"]):
            return refused
        line = self.line_of(request.match_info["namespace"], request.match_info["name"])
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(f"{line}\n".encode())
        if request.query.get("follow") == "true":
            await self.log_ends.wait()
        return response


def act_of(request: web.Request) -> Act | None:
    """What a request does; None for a path that is no resource."""
    found = _PATH.fullmatch(request.path)
    if found is None:
        return None
    verb = _VERBS.get(request.method) or ("get" if found["name"] else "list")
    resource = f"{found['resource']}/{found['sub']}" if found["sub"] else found["resource"]
    return Act(verb, found["group"] or "", resource, found["namespace"] or "")
