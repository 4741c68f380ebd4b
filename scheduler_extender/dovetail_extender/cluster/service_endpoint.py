"""The endpoint of the extender's Service: the address of the extender that holds the lease, and no other.

Readiness cannot say which one it is: a standby that is not ready would keep rollouts, drains and `helm --wait` from
ending. So the Service selects no pods, and the holder writes its EndpointSlice.
"""

import asyncio
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import SERVICES, Resource
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail.logs import get_logger

log = get_logger(__name__)

ENDPOINTSLICES: Final = Resource(group="discovery.k8s.io", plural="endpointslices", kind="EndpointSlice")
MANAGER: Final = "dovetail-extender"
PORT_NAME: Final = "extender"
_POLL_SECONDS: Final = 0.2
# Someone may delete or change it.
_REPEAT_SECONDS: Final = 10.0


class _Service(Described, frozen=True, kw_only=True):
    metadata: ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One address of a Service.

    service    the Service's name, and that of its EndpointSlice
    namespace  the namespace of both
    address    the pod's IP address
    port       the port on which the pod serves
    """

    service: str
    namespace: str
    address: str
    port: int


class ServiceEndpoint:
    """Keeps the EndpointSlice of a Service. `guard` raises `KubeError` unless the lease is held."""

    def __init__(self, client: Client, *, endpoint: Endpoint, guard: Callable[[], None]) -> None:
        self._client = client
        self._endpoint = endpoint
        self._guard = guard

    async def run(self, *, obstacle: Callable[[], str]) -> None:
        """Publish the address once nothing prevents answers, and again every 10 s, until cancelled."""
        while obstacle():  # noqa: ASYNC110 - several causes, which have no common event
            await asyncio.sleep(_POLL_SECONDS)
        log.info("serving", service=self._endpoint.service, address=self._endpoint.address)
        while True:
            try:
                self._guard()
                await self._apply([self._endpoint.address])
            except KubeError as error:
                log.warning("the endpoint is not published", service=self._endpoint.service, error=str(error))
            await asyncio.sleep(_REPEAT_SECONDS)

    async def withdraw(self) -> None:
        """Leave the Service without an endpoint, so that clients fail at once until the next holder serves."""
        try:
            self._guard()
            await self._apply([])
        except KubeError as error:
            log.warning("the endpoint is not withdrawn", service=self._endpoint.service, error=str(error))

    async def _apply(self, addresses: list[str]) -> None:
        endpoint = self._endpoint
        service = await self._client.get(
            SERVICES, name=endpoint.service, as_type=_Service, namespace=endpoint.namespace
        )
        await self._client.apply(
            ENDPOINTSLICES,
            name=endpoint.service,
            body=manifest(endpoint, addresses=addresses, service_uid=service.metadata.uid),
            as_type=dict[str, Any],
            field_manager=MANAGER,
            force=True,
            namespace=endpoint.namespace,
        )


def manifest(endpoint: Endpoint, *, addresses: list[str], service_uid: str) -> dict[str, Any]:
    """The EndpointSlice with these addresses; it is deleted with its Service."""
    version = ipaddress.ip_address(endpoint.address).version
    owner = {"apiVersion": "v1", "kind": "Service", "name": endpoint.service, "uid": service_uid}
    labels = {
        "kubernetes.io/service-name": endpoint.service,
        "endpointslice.kubernetes.io/managed-by": MANAGER,
    }
    return {
        "metadata": {
            "name": endpoint.service, "namespace": endpoint.namespace, "labels": labels, "ownerReferences": [owner],
        },
        "addressType": f"IPv{version}",
        "ports": [{"name": PORT_NAME, "port": endpoint.port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [each], "conditions": {"ready": True}} for each in addresses],
    }  # fmt: skip
