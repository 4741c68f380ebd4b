"""HTTP handlers of kube-scheduler's verbs: decode, decide or bind, answer.

kube-scheduler accepts only status 200. Any other status fails the attempt: nothing is placed, nothing is lost, and
kube-scheduler retries the pod after its backoff. The status is 503 while another extender holds the lease or the
caches are not listed yet, 415 for a body that is not declared as JSON, 413 for one that is too large, and 400 for an
unreadable one. A page of another site can send a body without asking the server first only if it does not declare it as
JSON.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from aiohttp import web

from dovetail.logs import get_logger
from dovetail_extender.bind.binder import Binder
from dovetail_extender.decide.filter_score import Decisions, Filtered
from dovetail_extender.decide.preempt import Preempting
from dovetail_extender.decide.unschedulable import Waiting
from dovetail_extender.metrics import Metrics
from dovetail_extender.protocol import (
    BindingResult,
    FilterArgs,
    FilterResult,
    HostPriority,
    PreemptResult,
    WireError,
    read_binding_args,
    read_filter_args,
    read_preempt_args,
)

log = get_logger(__name__)

# kube-scheduler sends a pod and the names of all nodes: 5,000 long names are 300 kB.
MAX_BODY_BYTES: Final = 32 << 20

_JSON: Final = "application/json"
_ENCODER: Final = msgspec.json.Encoder()
Handler = Callable[[bytes], Awaitable[web.Response]]


class Verbs:
    """Answers filter, prioritize, preempt and bind.

    `obstacle` returns why the extender cannot answer now, or an empty string. Each request calls `on_request`, whether
    it is answered or not.
    """

    def __init__(
        self,
        *,
        decisions: Decisions,
        waiting: Waiting,
        binder: Binder,
        preempting: Preempting,
        obstacle: Callable[[], str],
        on_request: Callable[[], None],
        metrics: Metrics,
    ) -> None:
        self._decisions = decisions
        self._waiting = waiting
        self._binder = binder
        self._preempting = preempting
        self._obstacle = obstacle
        self._on_request = on_request
        self._metrics = metrics
        # A metric looks up and locks its labels' values each time; they are few.
        self._nodes_in = cache(metrics.nodes_in.labels)
        self._durations = cache(metrics.duration.labels)
        self._decided = cache(metrics.decisions.labels)
        self._bound = cache(metrics.binds.labels)

    def add_to(self, app: web.Application) -> None:
        """Add a route for each verb, under the verb's name."""
        for handler in (self.filter, self.prioritize, self.preempt, self.bind):
            verb = handler.__name__
            app.router.add_post(f"/{verb}", self._served(verb, handler=handler))

    async def filter(self, body: bytes) -> web.Response:
        """Answer the nodes on which the pod fits. Raises `WireError`."""
        args = self._read(body, verb="filter")
        found = self._decisions.filter(args.pod, nodes=args.nodes)
        self._remember(args.pod.metadata.uid, found=found, nodes=args.nodes)
        self._metrics.nodes_out.observe(len(found.nodes))
        self._count(found, nodes=len(args.nodes))
        return _answer(_wire(found, nodes=args.nodes))

    async def prioritize(self, body: bytes) -> web.Response:
        """Answer a score for each node. Raises `WireError`."""
        args = self._read(body, verb="prioritize")
        scores = self._decisions.prioritize(args.pod, nodes=args.nodes)
        return _answer([HostPriority(host, score) for host, score in zip(args.nodes, scores, strict=True)])

    async def preempt(self, body: bytes) -> web.Response:
        """Answer the victims for each node on which preemption helps. Raises `WireError`."""
        args = read_preempt_args(body)
        self._nodes_in("preempt").observe(len(args.victims))
        return _answer(PreemptResult(victims=self._preempting.preempt(args)))

    async def bind(self, body: bytes) -> web.Response:
        """Bind the pod, or answer why not. Raises `WireError`."""
        args = read_binding_args(body)
        outcome = await self._binder.bind(args)
        self._bound(outcome.result).inc()
        if outcome.error:
            log.warning(
                "not bound",
                namespace=args.pod_namespace,
                pod=args.pod_name,
                node=args.node,
                result=outcome.result,
                error=outcome.error,
            )
        return _answer(BindingResult(outcome.error))

    def _read(self, body: bytes, *, verb: str) -> FilterArgs:
        args = read_filter_args(body)
        self._nodes_in(verb).observe(len(args.nodes))
        return args

    def _remember(self, uid: str, *, found: Filtered, nodes: Sequence[str]) -> None:
        if found.nodes or found.ask is None:
            self._waiting.forget(uid)
        else:
            own, where = ("", nodes) if found.place is None else (found.place.key, [found.place.node])
            self._waiting.refused(uid, ask=found.ask, nodes=where, key=own)

    def _count(self, found: Filtered, *, nodes: int) -> None:
        if found.ask is not None:
            self._decided(found.ask.policy, "fits" if found.nodes else "refused").inc()
        if found.invalid:
            self._metrics.refusals.labels("Invalid").inc(nodes)
        for kind, count in Counter(refusal.kind for refusal in found.refusals.values()).items():
            self._metrics.refusals.labels(kind).inc(count)

    def _served(self, verb: str, *, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def serve(request: web.Request) -> web.Response:
            if request.content_type != _JSON:
                return web.Response(status=415, text=f"Content-Type is {request.content_type}, but must be {_JSON}\n")
            if (size := request.content_length or 0) > MAX_BODY_BYTES:
                response = web.Response(status=413, text=f"the body has {size} bytes, but may have {MAX_BODY_BYTES}\n")
                response.force_close()
                return response
            self._on_request()
            if obstacle := self._obstacle():
                response = web.Response(status=503, text=f"not ready: {obstacle}\n")
                # Behind a Service, the client's next connection reaches the extender that holds the lease.
                response.force_close()
                return response
            body = await request.read()
            started = time.perf_counter()
            try:
                return await handler(body)
            except WireError as error:
                self._metrics.bad_requests.labels(verb).inc()
                log.warning("bad request", verb=verb, error=str(error))
                return web.Response(status=400, text=f"{error}\n")
            finally:
                self._durations(verb).observe(time.perf_counter() - started)

        return serve


def _wire(found: Filtered, *, nodes: Sequence[str]) -> FilterResult:
    if found.invalid:
        return FilterResult(node_names=None, failed_and_unresolvable_nodes=dict.fromkeys(nodes, found.invalid))
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    # Thousands of nodes share a few refusals, so each refusal is read once, not once for each node.
    known: dict[int, tuple[dict[str, str], str]] = {}
    for name, refusal in found.refusals.items():
        place = known.get(id(refusal))
        if place is None:
            place = known[id(refusal)] = (unresolvable if refusal.unresolvable else failed, refusal.text)
        place[0][name] = place[1]
    return FilterResult(node_names=found.nodes or None, failed_nodes=failed, failed_and_unresolvable_nodes=unresolvable)


def _answer(value: Any) -> web.Response:
    return web.Response(body=_ENCODER.encode(value), content_type=_JSON)
