"""GPUs that a `with` block holds: they are renewed, released on every exit, and not a forked child's business."""

import asyncio
import logging
import os
import threading
from typing import Any, Final

import pytest

from dovetail.sdk import AsyncClient, Client, errors
from tests.faults import at_each_await
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face
from tests.sdk.conftest import Side, reservations, until

# Python 3.12 warns of a fork while threads run, which is what these tests are about.
FORKS: Final = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")


@pytest.mark.usefixtures("scheduling")
async def test_gpus_are_held_inside_the_block(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client, side.inside(client.allocation("2(V100)")) as allocation:
        (key,) = reservations(api)
        spec = api.objects["gpujobs"][key]["spec"]
        assert (spec["gpu"], spec["reservation"]) == ("2(V100)", {"durationSeconds": 600})
        assert (allocation.nodes, allocation.visible_devices) == (["b"], "b-0,b-1")
        allocation.check()
    assert reservations(api) == []


@pytest.mark.usefixtures("scheduling")
async def test_an_error_in_the_block_releases_and_comes_through(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        with pytest.raises(ZeroDivisionError):
            async with side.inside(client.allocation()):
                raise ZeroDivisionError
    assert reservations(api) == []


@pytest.mark.usefixtures("scheduling")
async def test_a_cancelled_task_releases(api: GatewayApiServer, side: Side) -> None:
    entered = asyncio.Event()

    async def hold() -> None:
        async with side.inside(side.client()) as client, side.inside(client.allocation()):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert reservations(api) == []


async def test_without_a_place_in_time_the_request_is_withdrawn(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client:
        with pytest.raises(errors.WaitTimeoutError, match=r"no GPUs for 2 within 0 s"):
            async with side.inside(client.allocation(2, timeout_seconds=0)):
                raise AssertionError
    assert reservations(api) == []


async def test_a_request_that_ends_before_it_runs_is_an_error(api: GatewayApiServer, side: Side) -> None:
    async def cancel() -> None:
        await until(lambda: reservations(api))
        job = api.objects["gpujobs"][reservations(api)[0]]
        job["status"] = {"phase": "Cancelled", "message": "gcancel by rita"}
        api.put("gpujobs", job)

    ending = asyncio.create_task(cancel())
    async with side.inside(side.client()) as client:
        with pytest.raises(errors.AllocationLostError, match="no longer holds its GPUs: gcancel by rita"):
            async with side.inside(client.allocation()):
                raise AssertionError
    await ending
    assert reservations(api) == []


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew at once: the shortest lease takes 10 s until the first renewal."""
    for module in ("dovetail.sdk.aio.runtime", "dovetail.sdk.blocking.runtime"):
        start = __import__(module, fromlist=["Periodic"]).Periodic.start

        def soon(self: Any, *, after_seconds: float, start: Any = start) -> None:
            assert after_seconds == 10
            start(self, after_seconds=0.01)

        monkeypatch.setattr(f"{module}.Periodic.start", soon)


@pytest.mark.usefixtures("scheduling", "soon")
async def test_the_lease_is_renewed(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client, side.inside(client.allocation(lease_seconds=30)):
        (key,) = reservations(api)
        await until(lambda: "renewTime" in api.objects["gpujobs"][key]["spec"]["reservation"])
    assert reservations(api) == []
    assert [thread for thread in threading.enumerate() if thread.name == "dovetail-periodic"] == []


@pytest.mark.usefixtures("scheduling")
async def test_a_reservation_that_another_process_finds_is_renewed_as_of_now(api: GatewayApiServer, side: Side) -> None:
    async with side.inside(side.client()) as client, side.inside(client.allocation(lease_seconds=30)) as allocation:
        job = await side.call(client.job, allocation.name)
        await side.call(job.renew)
        assert "renewTime" in api.objects["gpujobs"][f"red/{allocation.name}"]["spec"]["reservation"]


@pytest.mark.usefixtures("scheduling", "soon")
async def test_an_allocation_that_someone_deletes_is_lost(
    api: GatewayApiServer, side: Side, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="dovetail.sdk"):
        async with side.inside(side.client()) as client:
            allocation = client.allocation(lease_seconds=30)
            (key,) = [f"red/{allocation.name}"]
            async with side.inside(allocation):
                api.delete("gpujobs", key)
                await until(lambda: "it was deleted" in caplog.text)
                with pytest.raises(errors.AllocationLostError, match="it was deleted"):
                    allocation.check()


async def test_a_lease_that_is_too_short_is_refused(side: Side) -> None:
    async with side.inside(side.client()) as client:
        with pytest.raises(errors.InvalidError, match="lease_seconds 1: 30 to"):
            client.allocation(lease_seconds=1)


@FORKS
@pytest.mark.usefixtures("scheduling")
async def test_a_forked_child_neither_releases_nor_ends_the_parents_allocation(
    api: GatewayApiServer, side: Side
) -> None:
    async with side.inside(Client(side.url, token="red-token", namespace="red")) as client:
        async with side.inside(client.allocation()) as allocation:
            assert await asyncio.to_thread(_in_child, lambda: allocation.__exit__(None, None, None)) == 0
            assert reservations(api) == [f"red/{allocation.name}"]
        assert reservations(api) == []


@FORKS
@pytest.mark.usefixtures("scheduling")
async def test_a_forked_child_asks_with_connections_of_its_own(side: Side) -> None:
    async with side.inside(Client(side.url, token="red-token", namespace="red")) as client:
        await asyncio.to_thread(client.me)
        assert await asyncio.to_thread(_in_child, client.me) == 0
        assert (await asyncio.to_thread(client.me)).username == "rita"


def _in_child(work: Any) -> int:
    """The exit code of a forked child that does this."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 - the parent asserts the code
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.usefixtures("scheduling")
async def test_a_task_that_is_cancelled_at_any_await_holds_nothing_afterwards(
    api: GatewayApiServer, gateway: Face
) -> None:
    """Also where the request was on its way, or the GPUs were just being released."""

    async def make() -> AsyncClient:
        return AsyncClient(gateway.url, token="red-token", namespace="red")

    async def journey(client: AsyncClient) -> None:
        async with client, client.allocation(1):
            await asyncio.sleep(0)

    async def end(_client: AsyncClient) -> list[str]:
        await until(lambda: not reservations(api))
        return reservations(api)

    assert await at_each_await(make, journey=journey, end=end) > 3
