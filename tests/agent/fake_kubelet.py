"""A kubelet's PodResources socket that says what a test wants: real gRPC on a real socket."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from dovetail_agent.kubelet.v1 import podresources_pb2 as v1

Pods = Mapping[str, Mapping[str, Iterable[str]]]


class Kubelet:
    """`pods`: ids by resource, by "namespace/name". `refusing` is said in the place of an answer."""

    def __init__(self, pods: Pods | None = None) -> None:
        self.pods: Pods = pods or {}
        self.claims: dict[str, dict[str, Iterable[str]]] = {}
        self.refusing = ""
        self.asked = 0

    def __mapping__(self) -> dict[str, Handler]:
        lister = Handler(self._list, Cardinality.UNARY_UNARY, v1.ListPodResourcesRequest, v1.ListPodResourcesResponse)
        return {"/v1.PodResourcesLister/List": lister}

    async def _list(self, stream: Any) -> None:
        await stream.recv_message()
        self.asked += 1
        if self.refusing:
            raise GRPCError(Status.RESOURCE_EXHAUSTED, self.refusing)
        pods = [_pod(name, devices=devices) for name, devices in self.pods.items()]
        pods += [_pod(name, claims=claims) for name, claims in self.claims.items()]
        await stream.send_message(v1.ListPodResourcesResponse(pod_resources=pods))

    @asynccontextmanager
    async def listening(self, socket: Path) -> AsyncIterator[None]:
        server = Server([self])
        await server.start(path=str(socket))
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()


def _pod(name: str, *, devices: Any = None, claims: Any = None) -> v1.PodResources:
    namespace, _, name = name.partition("/")
    container = v1.ContainerResources(
        name="main",
        devices=[v1.ContainerDevices(resource_name=key, device_ids=ids) for key, ids in (devices or {}).items()],
        dynamic_resources=[
            v1.DynamicResource(
                claim_name="gpu", claim_resources=[v1.ClaimResource(driver_name=key, device_name=each) for each in ids]
            )
            for key, ids in (claims or {}).items()
        ],
    )
    return v1.PodResources(namespace=namespace, name=name, containers=[container])
