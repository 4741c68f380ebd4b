"""What kubelet says over its socket, and what the agent makes of it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from socket import AF_UNIX
from socket import socket as unix_socket

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import Assignment, GPUNode, GPUNodeStatus
from dovetail.api.meta import ObjectMeta, find_condition
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_agent.devices.assignments import HeldDevice, Holder
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.kubelet.feature import KubeletDevices, PodResourcesError, holders
from tests.agent.builders import NOON, make_node
from tests.agent.devices.test_assignments import asking
from tests.agent.fake_kubelet import Kubelet

NODE = make_node()
CARDS = [device_uuid("v100-0", index=index) for index in range(2)]
SEEN = Seen(node=NODE, now=NOON, inventory=SimulatedProvider().inventory(NODE), tenants=(asking(1, uid="a"),))


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


@pytest.fixture
async def kubelet(socket: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet()
    async with kubelet.listening(socket):
        yield kubelet


def watching(socket: Path, *, every_seconds: float = 30.0) -> KubeletDevices:
    return KubeletDevices(node="v100-0", socket=socket, every_seconds=every_seconds, vendors=DEFAULT_VENDORS)


async def asked(feature: KubeletDevices) -> None:
    """Let it ask kubelet until it has news."""
    news = asyncio.Event()
    task = asyncio.create_task(feature.run(news.set))
    async with asyncio.timeout(60):
        await news.wait()
    task.cancel()


async def looked(feature: KubeletDevices) -> None:
    """Let it ask kubelet with the pods of a look in mind."""
    await asked(feature)
    feature.assignments(SEEN)
    await asked(feature)


async def test_who_holds_devices_of_plugins_and_claims_is_told(kubelet: Kubelet, socket: Path) -> None:
    kubelet.pods = {"ml/a": {"nvidia.com/gpu": ["GPU-2", "GPU-1"]}, "ml/none": {}}
    kubelet.claims = {"ml/b": {"gpu.nvidia.com": ["gpu-0"]}}
    assert await holders(socket) == (
        Holder(
            namespace="ml",
            name="a",
            devices=(
                HeldDevice(asked_by="nvidia.com/gpu", id="GPU-1"),
                HeldDevice(asked_by="nvidia.com/gpu", id="GPU-2"),
            ),
        ),
        Holder(namespace="ml", name="b", devices=(HeldDevice(asked_by="gpu.nvidia.com", id="gpu-0"),)),
    )


async def test_a_node_with_a_thousand_pods_is_told_whole(kubelet: Kubelet, socket: Path) -> None:
    kubelet.pods = {f"ml/pod-{at}": {"nvidia.com/gpu": [f"GPU-{at:036d}"]} for at in range(1000)}
    assert len(await holders(socket)) == 1000


async def test_a_kubelet_that_is_not_there_is_named_with_its_socket(socket: Path) -> None:
    with pytest.raises(PodResourcesError, match=f"{socket}: No such file or directory"):
        await holders(socket)


async def test_a_kubelet_that_refuses_is_quoted(kubelet: Kubelet, socket: Path) -> None:
    kubelet.refusing = "rejected by rate limit"
    with pytest.raises(PodResourcesError, match="RESOURCE_EXHAUSTED: rejected by rate limit"):
        await holders(socket)


async def test_a_socket_that_never_answers_is_given_up(socket: Path) -> None:
    with unix_socket(AF_UNIX) as listening:
        listening.bind(str(socket))
        listening.listen()
        with pytest.raises(PodResourcesError, match=r"no answer within 0.1 s"):
            await holders(socket, timeout_seconds=0.1)


async def test_a_socket_that_speaks_otherwise_is_a_problem_and_no_crash(socket: Path) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_unix_server(speak, path=socket):
        with pytest.raises(PodResourcesError, match=str(socket)):
            await holders(socket, timeout_seconds=5)


async def test_what_kubelet_gave_is_assigned_by_the_pods_uid(kubelet: Kubelet, socket: Path) -> None:
    kubelet.pods = {"ml/pod-a": {"nvidia.com/gpu": [CARDS[1]]}}
    feature = watching(socket)
    await looked(feature)
    assert feature.assignments(SEEN) == [Assignment(uid="a", namespace="ml", name="pod-a", devices=[CARDS[1]])]


async def test_a_pod_whose_devices_are_not_known_yet_is_asked_for_soon(kubelet: Kubelet, socket: Path) -> None:
    feature, known = watching(socket, every_seconds=3600), asyncio.Event()
    task = asyncio.create_task(feature.run(known.set))
    async with asyncio.timeout(60):
        await known.wait()
        known.clear()
        assert feature.assignments(SEEN) == []
        await known.wait()
        known.clear()
        kubelet.pods = {"ml/pod-a": {"nvidia.com/gpu": [CARDS[0]]}}
        await known.wait()
    task.cancel()
    assert [each.devices for each in feature.assignments(SEEN) or ()] == [[CARDS[0]]]


async def test_a_new_pod_does_not_inherit_what_its_name_had(kubelet: Kubelet, socket: Path) -> None:
    kubelet.pods = {"ml/pod-a": {"nvidia.com/gpu": [CARDS[0]]}}
    feature = watching(socket)
    await looked(feature)
    again = replace(SEEN, tenants=(with_fields(asking(1, uid="again"), name="pod-a"),))
    assert feature.assignments(again) == []
    kubelet.pods = {"ml/pod-a": {"nvidia.com/gpu": [CARDS[1]]}}
    await asked(feature)
    assert feature.assignments(again) == [Assignment(uid="again", namespace="ml", name="pod-a", devices=[CARDS[1]])]


async def test_before_kubelets_first_answer_what_was_reported_of_present_pods_stands(socket: Path) -> None:
    kept = Assignment(uid="a", namespace="ml", name="pod-a", devices=[CARDS[0]])
    gone = Assignment(uid="gone", namespace="ml", name="pod-b", devices=[CARDS[1]])
    reported = GPUNode(metadata=ObjectMeta(name="v100-0"), status=GPUNodeStatus(assignments=[kept, gone]))
    seen = Seen(node=NODE, now=NOON, gpunode=reported, inventory=SEEN.inventory, tenants=SEEN.tenants)
    assert watching(socket).assignments(seen) == [kept]


async def test_what_was_known_stays_while_kubelet_is_away_and_the_report_says_so(socket: Path) -> None:
    feature, kubelet = watching(socket, every_seconds=0.01), Kubelet({"ml/pod-a": {"nvidia.com/gpu": [CARDS[0]]}})
    async with kubelet.listening(socket):
        await looked(feature)
    await asked(feature)
    assert [each.uid for each in feature.assignments(SEEN) or ()] == ["a"]
    told = find_condition(feature.amend(GPUNodeStatus(), seen=SEEN).conditions, type="PodResources")
    assert told is not None
    assert (told.status, told.reason) == ("False", "KubeletSilent")


async def test_of_another_node_this_kubelet_knows_nothing(socket: Path) -> None:
    other = Seen(node=make_node("v100-1"), now=NOON, inventory=SEEN.inventory)
    assert watching(socket).assignments(other) is None
    assert watching(socket).amend(GPUNodeStatus(), seen=other) == GPUNodeStatus()
