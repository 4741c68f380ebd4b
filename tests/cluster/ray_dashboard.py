"""A stand-in for the dashboard of Ray's head, to which KubeRay asks how a job is: simulated nodes run no Ray.

KubeRay reaches it as a proxy (`HTTP_PROXY`), because the names of Services mean nothing outside of a cluster's pods.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from aiohttp import web


@dataclass(slots=True)
class RayDashboard:
    """What it answers for every job: `status` as Ray names it."""

    status: str = "RUNNING"
    url: str = ""

    async def answer(self, request: web.BaseRequest) -> web.Response:
        """`GET /api/jobs/ID`; a proxy sees the whole address."""
        path = urlsplit(request.raw_path).path
        return web.json_response({"status": self.status, "job_id": path.rsplit("/", 1)[-1], "type": "SUBMISSION"})


@asynccontextmanager
async def serving() -> AsyncIterator[RayDashboard]:
    """It listens on a loopback port while the context lasts."""
    dashboard = RayDashboard()
    server = web.Server(dashboard.answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        _, port, *_ = runner.addresses[0]
        dashboard.url = f"http://127.0.0.1:{port}"
        yield dashboard
    finally:
        await runner.cleanup()
