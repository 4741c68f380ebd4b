"""The endpoint of the extender's Service: published by the holder of the lease, and withdrawn at its end."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from aiohttp import web

from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail_extender.cluster import service_endpoint
from dovetail_extender.cluster.service_endpoint import Endpoint, ServiceEndpoint, manifest
from tests.background import eventually, running
from tests.loopback import client_of

ENDPOINT = Endpoint(service="dovetail-extender", namespace="dovetail-system", address="10.1.2.3", port=8443)
SLICE = "/apis/discovery.k8s.io/v1/namespaces/dovetail-system/endpointslices/dovetail-extender"
SERVICE = "/api/v1/namespaces/dovetail-system/services/dovetail-extender"


class Api:
    """The Service and its EndpointSlice on loopback."""

    def __init__(self) -> None:
        self.slices: list[dict[str, Any]] = []
        self.has_service = True

    def running(self) -> AbstractAsyncContextManager[Client]:
        return client_of([web.get(SERVICE, self._service), web.patch(SLICE, self._apply)])

    @property
    def addresses(self) -> list[list[str]]:
        return [[address for each in found["endpoints"] for address in each["addresses"]] for found in self.slices]

    async def _service(self, _request: web.Request) -> web.Response:
        if not self.has_service:
            return web.json_response({"kind": "Status", "code": 404, "message": "no"}, status=404)
        return web.json_response({"metadata": {"name": "dovetail-extender", "uid": "u1"}})

    async def _apply(self, request: web.Request) -> web.Response:
        assert request.query == {"fieldManager": "dovetail-extender", "force": "true"}
        body = await request.json()
        self.slices.append(body)
        return web.json_response(body)


class Lease:
    """Held until told otherwise."""

    held = True
    asked = 0

    def guard(self) -> None:
        self.asked += 1
        if not self.held:
            raise KubeError("the lease is not held")


async def test_it_is_published_once_requests_can_be_answered_and_withdrawn_at_the_end() -> None:
    api, obstacle = Api(), ["caches are not listed"]
    async with api.running() as client:
        endpoint = ServiceEndpoint(client, endpoint=ENDPOINT, guard=Lease().guard)
        async with running(endpoint.run(obstacle=lambda: "".join(obstacle))):
            await asyncio.sleep(0.3)
            assert api.slices == []
            obstacle.clear()
            await eventually(lambda: api.addresses == [["10.1.2.3"]])
        await endpoint.withdraw()
    assert api.addresses == [["10.1.2.3"], []]


async def test_without_the_lease_nothing_is_written() -> None:
    api, lease = Api(), Lease()
    lease.held = False
    async with api.running() as client:
        endpoint = ServiceEndpoint(client, endpoint=ENDPOINT, guard=lease.guard)
        async with running(endpoint.run(obstacle=lambda: "")):
            await eventually(lambda: lease.asked)
        await endpoint.withdraw()
    assert (lease.asked, api.slices) == (2, [])


async def test_a_service_that_is_missing_ends_nothing() -> None:
    api = Api()
    api.has_service = False
    async with api.running() as client:
        await ServiceEndpoint(client, endpoint=ENDPOINT, guard=Lease().guard).withdraw()
    assert api.slices == []


@pytest.mark.parametrize(("address", "kind"), [("10.1.2.3", "IPv4"), ("fd00::7", "IPv6")])
def test_the_slice_belongs_to_its_service_and_goes_with_it(address: str, kind: str) -> None:
    endpoint = Endpoint(service="s", namespace="n", address=address, port=1)
    made = manifest(endpoint, addresses=[address], service_uid="u1")
    assert made["addressType"] == kind
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == "s"
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Service", "s", "u1")


async def test_the_endpoint_is_published_again_whatever_became_of_the_last_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_endpoint, "_REPEAT_SECONDS", 0.01)
    api, lease = Api(), Lease()
    async with api.running() as client:
        endpoint = ServiceEndpoint(client, endpoint=ENDPOINT, guard=lease.guard)
        async with running(endpoint.run(obstacle=lambda: "")):
            await eventually(lambda: len(api.slices) >= 2)
            lease.held, asked = False, lease.asked
            await eventually(lambda: lease.asked >= asked + 2)
            lease.held, written = True, len(api.slices)
            await eventually(lambda: len(api.slices) > written)
    assert {tuple(each) for each in api.addresses} == {("10.1.2.3",)}
