"""A client of kubelet's PodResources API, over the socket on kubelet's node.

PodResourcesError   kubelet does not answer or refuses: names the socket and the reason
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from dovetail_agent.devices.assignments import HeldDevice, Holder
from dovetail_agent.kubelet.v1.podresources_pb2 import (
    ContainerResources,
    ListPodResourcesRequest,
    ListPodResourcesResponse,
)

_LIST: Final = "/v1.PodResourcesLister/List"
_TIMEOUT_SECONDS: Final = 5.0


class PodResourcesError(Exception):
    """Kubelet's socket does not answer. The text is one sentence for people."""

    def __init__(self, socket: Path, *, problem: str) -> None:
        super().__init__(f"kubelet's PodResources socket {socket}: {problem}")


async def holders(socket: Path, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> tuple[Holder, ...]:
    """Return the pods that hold devices of any kind, in kubelet's order.

    Raises `PodResourcesError`.
    """
    channel = Channel(path=str(socket))
    try:
        async with asyncio.timeout(timeout_seconds):
            ask = UnaryUnaryMethod(channel, _LIST, ListPodResourcesRequest, ListPodResourcesResponse)
            answer = await ask(ListPodResourcesRequest())
    except TimeoutError as error:
        raise PodResourcesError(socket, problem=f"no answer within {timeout_seconds:g} s") from error
    except OSError as error:
        raise PodResourcesError(socket, problem=error.strerror or str(error)) from error
    except GRPCError as error:
        raise PodResourcesError(socket, problem=f"{error.status.name}: {error.message}") from error
    except (StreamTerminatedError, ProtocolError) as error:
        raise PodResourcesError(socket, problem=str(error) or type(error).__name__) from error
    finally:
        channel.close()
    found = (
        Holder(
            namespace=pod.namespace,
            name=pod.name,
            devices=tuple(sorted({device for each in pod.containers for device in _devices(each)})),
        )
        for pod in answer.pod_resources
    )
    return tuple(holder for holder in found if holder.devices)


def _devices(container: ContainerResources) -> Iterator[HeldDevice]:
    for part in container.devices:
        yield from (HeldDevice(asked_by=part.resource_name, id=name) for name in part.device_ids)
    for claim in container.dynamic_resources:
        for given in claim.claim_resources:
            yield HeldDevice(asked_by=given.driver_name, id=given.device_name)
