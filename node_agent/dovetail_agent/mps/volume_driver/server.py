"""A volume driver's gRPC services on one socket: CSI Identity and Node, registration.

RegistrationError   kubelet has not registered the driver: names the reason
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Protocol

from grpclib.const import Cardinality, Handler
from grpclib.server import Server, Stream

from dovetail.logs import get_logger
from dovetail_agent.kubelet.v1 import csi_pb2 as csi
from dovetail_agent.kubelet.v1 import pluginregistration_pb2 as registration

log = get_logger(__name__)

_CSI_VERSION: Final = "1.0.0"
_CLOSE_SECONDS: Final = 5.0


class RegistrationError(Exception):
    """Kubelet has not registered the driver. The text is one sentence for people."""


class Volumes(Protocol):
    """A driver's volumes. Both methods are idempotent and raise `GRPCError`."""

    async def publish(self, target_path: str, *, context: Mapping[str, str]) -> None:
        """Mount the volume at `target_path`.

        `context` has the volume's attributes, and the pod's as kubelet adds them.
        """

    async def unpublish(self, target_path: str) -> None:
        """Unmount the volume."""


class CsiServer:
    """The services of the driver `name` on the node `node`, at `socket`."""

    def __init__(self, volumes: Volumes, *, name: str, node: str, socket: Path) -> None:
        self._volumes = volumes
        self._name = name
        self._node = node
        self._socket = socket
        self._answered = asyncio.Event()
        self._problem = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Serve on the socket while in the context; only root can connect.

        Kubelet finds the socket by its folder.
        """
        server = Server([self])
        before = os.umask(0o177)
        try:
            await server.start(path=str(self._socket))  # replaces the socket of a killed process
        finally:
            os.umask(before)
        try:
            yield
        finally:
            self._socket.unlink(missing_ok=True)
            server.close()
            async with asyncio.timeout(_CLOSE_SECONDS):
                await server.wait_closed()

    async def stay_registered(self, *, within_seconds: float) -> None:
        """Run until kubelet rejects the driver or misses the deadline. Raises `RegistrationError`."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._answered.wait()
        except TimeoutError as error:
            problem = f"kubelet has not asked {self._socket} in {within_seconds:g} s: is --kubelet its folder?"
            raise RegistrationError(problem) from error
        while not self._problem:
            log.info("driver registered", driver=self._name, socket=str(self._socket))
            self._answered.clear()
            await self._answered.wait()  # set again when kubelet restarts
        raise RegistrationError(f"kubelet does not take the driver {self._name}: {self._problem}")

    def __mapping__(self) -> dict[str, Handler]:
        """The handlers for grpclib. Other methods get UNIMPLEMENTED."""
        identity, node, plugin = "/csi.v1.Identity", "/csi.v1.Node", "/pluginregistration.Registration"
        info = csi.GetPluginInfoResponse(name=self._name, vendor_version=version("dovetail-gpu"))
        here = csi.NodeGetInfoResponse(node_id=self._node)
        offer = registration.PluginInfo(
            type="CSIPlugin", name=self._name, endpoint=str(self._socket), supported_versions=[_CSI_VERSION]
        )
        return {
            f"{identity}/GetPluginInfo": _constant(csi.GetPluginInfoRequest, answer=info),
            f"{identity}/GetPluginCapabilities": _constant(
                csi.GetPluginCapabilitiesRequest, answer=csi.GetPluginCapabilitiesResponse()
            ),
            f"{identity}/Probe": _constant(csi.ProbeRequest, answer=csi.ProbeResponse()),
            f"{node}/NodeGetInfo": _constant(csi.NodeGetInfoRequest, answer=here),
            f"{node}/NodeGetCapabilities": _constant(
                csi.NodeGetCapabilitiesRequest, answer=csi.NodeGetCapabilitiesResponse()
            ),
            f"{node}/NodePublishVolume": _unary(
                csi.NodePublishVolumeRequest, answer=self._publish, reply=csi.NodePublishVolumeResponse
            ),
            f"{node}/NodeUnpublishVolume": _unary(
                csi.NodeUnpublishVolumeRequest, answer=self._unpublish, reply=csi.NodeUnpublishVolumeResponse
            ),
            f"{plugin}/GetInfo": _constant(registration.InfoRequest, answer=offer),
            f"{plugin}/NotifyRegistrationStatus": _unary(
                registration.RegistrationStatus,
                answer=self._registration_status,
                reply=registration.RegistrationStatusResponse,
            ),
        }

    async def _publish(self, request: csi.NodePublishVolumeRequest) -> csi.NodePublishVolumeResponse:
        await self._volumes.publish(request.target_path, context=request.volume_context)
        return csi.NodePublishVolumeResponse()

    async def _unpublish(self, request: csi.NodeUnpublishVolumeRequest) -> csi.NodeUnpublishVolumeResponse:
        await self._volumes.unpublish(request.target_path)
        return csi.NodeUnpublishVolumeResponse()

    async def _registration_status(
        self, status: registration.RegistrationStatus
    ) -> registration.RegistrationStatusResponse:
        self._problem = "" if status.plugin_registered else status.error or "it does not say why"
        self._answered.set()
        return registration.RegistrationStatusResponse()


def _constant(request: type[Any], *, answer: Any) -> Handler:
    async def say(_request: Any) -> Any:
        return answer

    return _unary(request, answer=say, reply=type(answer))


def _unary(request: type[Any], *, answer: Callable[[Any], Awaitable[Any]], reply: type[Any]) -> Handler:
    async def serve(stream: Stream[Any, Any]) -> None:
        received = await stream.recv_message()
        if received is not None:
            await stream.send_message(await answer(received))

    return Handler(serve, Cardinality.UNARY_UNARY, request, reply)
