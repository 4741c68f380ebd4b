"""The console of one's own machine: it greets with what the machine can do, and asks for no image."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from dovetail import names
from dovetail_gateway.app import Options
from tests.console import browser as browsers
from tests.console.browser import Window, shows
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_job
from tests.gateway.served import serving

pytestmark = pytest.mark.asyncio(loop_scope="session")


def put_machine(api: GatewayApiServer, *, gpus: int) -> None:
    """A node that runs jobs as processes, with 4 CPUs and 8 GiB of memory."""
    host: dict[str, Any] = {"allocatable": {"cpu": "4", "memory": "8Gi"}}
    host |= {"nodeInfo": {"containerRuntimeVersion": names.PROCESSES}}
    api.put("nodes", make_node("laptop", **host))
    api.put("gpunodes", make_gpunode("laptop", gpus=gpus))


@pytest_asyncio.fixture(loop_scope="session")
async def api() -> AsyncIterator[GatewayApiServer]:
    async with GatewayApiServer().running() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="session")
async def window(browser: Browser, api: GatewayApiServer) -> AsyncIterator[Window]:
    async with (
        serving(api, options=Options(rates=None)) as face,
        browsers.window(browser, url=face.url) as made,
    ):
        yield made


async def test_it_greets_with_what_it_can_do_and_a_first_job(window: Window, api: GatewayApiServer) -> None:
    put_machine(api, gpus=2)
    page = await window.sign_in("admin-token")
    card = page.get_by_role("region", name="This machine")
    await expect(card).to_contain_text("CPUs: 4, memory: 8 GiB · 2 × V100, 32 GiB")
    await expect(card.get_by_role("region", name="Your first job")).to_have_text("gbatch --gpus 1 python train.py")
    api.put("gpujobs", make_job("first", namespace="red", user="rita"))
    await expect(card.get_by_text("Your first job")).to_have_count(0)
    await expect(card).to_contain_text("CPUs: 4")


async def test_without_a_gpu_jobs_run_on_its_cpus(window: Window, api: GatewayApiServer) -> None:
    put_machine(api, gpus=0)
    page = await window.sign_in("admin-token")
    card = page.get_by_role("region", name="This machine")
    await shows(page, "No GPU can be used here: jobs run on the CPUs.")
    await expect(card.get_by_role("region", name="Your first job")).to_have_text("gbatch python train.py")


async def test_a_job_there_needs_a_command_and_no_image(window: Window, api: GatewayApiServer) -> None:
    put_machine(api, gpus=1)
    page = await window.sign_in("admin-token", path="submit")
    await page.get_by_label("GPUs for each worker").fill("1")
    await page.get_by_role("button", name="Submit job").click()
    await shows(page, "Say what to run.")
    await expect(page.get_by_label("Command", exact=True)).to_be_focused()
    await browsers.submit(page, name="first", command="python train.py")
    (job,) = api.objects["gpujobs"].values()
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["sh", "-c", "python train.py"]


async def test_a_cluster_does_not_greet(window: Window, api: GatewayApiServer) -> None:
    api.put("nodes", make_node("a"))
    api.put("gpunodes", make_gpunode("a"))
    page = await window.sign_in("admin-token")
    await shows(page, "Promised")
    await shows(page, "Free now")
    await expect(page.get_by_role("region", name="This machine")).to_have_count(0)
