"""The webhook over HTTP: `POST /mutate` takes the API server's reviews."""

from collections.abc import Callable
from typing import Final, Literal

from aiohttp import web

from dovetail import logs
from dovetail.api.gpujob import KIND, Policy
from dovetail.requests import RequestError
from dovetail.tasks import TasksError
from dovetail.vendor import Vendors
from dovetail_webhook import mutation, review
from dovetail_webhook.metrics import Metrics
from dovetail_webhook.review import Request, ReviewError

# Objects in etcd are smaller; a review of an update would have two.
MAX_BODY_BYTES: Final = 8 << 20
Outcome = Literal["patched", "unchanged", "denied"]
log = logs.get_logger("dovetail.webhook")


def application(*, policy: Policy, vendors: Vendors, metrics: Metrics, mps_directory: str = "") -> web.Application:
    """The application that serves `/mutate`. `mps_directory` is where pods find MPS on their node; empty: nowhere."""
    mutations: dict[str, Callable[[Request], mutation.Patch]] = {
        "Pod": lambda request: mutation.patch_of_pod(
            request.object,
            subresource=request.sub_resource,
            policy=policy,
            vendors=vendors,
            mps_directory=mps_directory,
        ),
        KIND: lambda request: mutation.patch_of_job(
            request.object, user=request.user_info.username if request.operation == "CREATE" else None
        ),
    }

    async def mutate(http: web.Request) -> web.Response:
        body = await http.read()
        with metrics.duration.time():
            try:
                request = review.read(body, kinds=mutations)
            except ReviewError as error:
                log.warning("bad request", error=str(error))
                return web.Response(status=400, text=f"{error}\n")
            answer, outcome = _answer(request, mutate=mutations[request.kind.kind])
        metrics.reviews.labels(request.kind.kind, outcome).inc()
        return web.Response(body=answer, content_type="application/json")

    app = web.Application(client_max_size=MAX_BODY_BYTES)
    app.add_routes([web.post("/mutate", mutate)])
    return app


def _answer(request: Request, *, mutate: Callable[[Request], mutation.Patch]) -> tuple[bytes, Outcome]:
    try:
        patch = mutate(request)
    except (RequestError, TasksError) as error:
        log.info("denied", kind=request.kind.kind, error=str(error))
        return review.denied(request, message=str(error)), "denied"
    return review.allowed(request, patch=patch), "patched" if patch else "unchanged"
