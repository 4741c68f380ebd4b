"""A device plugin as small as kubelet lets it be: it has devices of some ids, and says to a container which it got."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from grpc_tools import protoc
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Cardinality, Handler
from grpclib.server import Server

RESOURCE = "nvidia.com/gpu"
_ENDPOINT = "dovetail-test.sock"


def _messages() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "set"
        here = Path(__file__).parent
        assert protoc.main(["protoc", f"-I{here}", f"--descriptor_set_out={made}", "deviceplugin.proto"]) == 0
        described = FileDescriptorSet.FromString(made.read_bytes())
    return message_factory.GetMessages(described.file)


class DevicePlugin:
    """Offers these ids as `nvidia.com/gpu`. `allocated` is what it was told to give, container by container."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.allocated: list[list[str]] = []
        self._ids = ids
        self._messages = {name.rpartition(".")[2]: kind for name, kind in _messages().items()}
        self._ended = asyncio.Event()

    def __mapping__(self) -> dict[str, Handler]:
        of, one = self._messages, Cardinality.UNARY_UNARY
        prefix = "/v1beta1.DevicePlugin"
        return {
            f"{prefix}/GetDevicePluginOptions": Handler(self._options, one, of["Empty"], of["DevicePluginOptions"]),
            f"{prefix}/ListAndWatch": Handler(
                self._watch, Cardinality.UNARY_STREAM, of["Empty"], of["ListAndWatchResponse"]
            ),
            f"{prefix}/Allocate": Handler(self._allocate, one, of["AllocateRequest"], of["AllocateResponse"]),
        }

    async def _options(self, stream: Any) -> None:
        await stream.recv_message()
        await stream.send_message(self._messages["DevicePluginOptions"]())

    async def _watch(self, stream: Any) -> None:
        await stream.recv_message()
        device, answer = self._messages["Device"], self._messages["ListAndWatchResponse"]
        await stream.send_message(answer(devices=[device(ID=each, health="Healthy") for each in self._ids]))
        await self._ended.wait()

    async def _allocate(self, stream: Any) -> None:
        request = await stream.recv_message()
        given = [list(each.devices_ids) for each in request.container_requests]
        self.allocated += given
        one, answer = self._messages["ContainerAllocateResponse"], self._messages["AllocateResponse"]
        told = [one(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(ids)}) for ids in given]
        await stream.send_message(answer(container_responses=told))

    async def serve(self, folder: Path, *, ready: threading.Event, ended: threading.Event) -> None:
        """Listen in kubelet's folder of device plugins, register there, and stay until it is ended."""
        server = Server([self])
        await server.start(path=str(folder / _ENDPOINT))
        async with Channel(path=str(folder / "kubelet.sock")) as kubelet:
            of = self._messages
            register = UnaryUnaryMethod(kubelet, "/v1beta1.Registration/Register", of["RegisterRequest"], of["Empty"])
            await register(of["RegisterRequest"](version="v1beta1", endpoint=_ENDPOINT, resource_name=RESOURCE))
        ready.set()
        await asyncio.to_thread(ended.wait)
        self._ended.set()
        server.close()
        await server.wait_closed()


@contextmanager
def plugged_in(folder: Path, *, ids: Sequence[str]) -> Iterator[DevicePlugin]:
    """The plugin at work in a thread of its own: kubelet asks while a test waits for kubectl."""
    plugin, ready, ended = DevicePlugin(ids), threading.Event(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(plugin.serve(folder, ready=ready, ended=ended)))
    thread.start()
    try:
        assert ready.wait(60), "kubelet does not take the plugin in"
        yield plugin
    finally:
        ended.set()
        thread.join()
