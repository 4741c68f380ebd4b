"""The console in a real browser on a real control plane: rights, actions, idle GPUs, and a gateway that is killed.

What needs no control plane is tried in tests/console. `pytest -s` prints the seconds to the idle GPUs.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, Page, expect

from dovetail.answers.owners import user_of
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import GPUQUOTAS
from dovetail.kube.client import Client
from dovetail_gateway.console import build
from dovetail_sandbox import credential
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import Jobs
from tests.cluster.killing import paused
from tests.cluster.notebooks import DEVICES, node_of_notebooks
from tests.cluster.tenants import CANARY, token_of
from tests.console import browser as browsers
from tests.console.browser import CHROMIUM, PATIENCE_MS, Window, shows, submit, until

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")]
PAGES = ("overview", "jobs?state=all", "submit?gpu=8", "nodes", "plan?hours=24", "map", "waste", "settings")


@pytest.fixture(scope="module", autouse=True)
def assets() -> None:
    """The console, built from this checkout, for the sandbox's gateway too."""
    build.build()


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with browsers.chromium() as started:
        yield started


@pytest.fixture
async def editor(browser: Browser, sandbox: Cluster) -> AsyncIterator[Window]:
    """A browser for a user with the role `edit` in one namespace."""
    async with browsers.window(browser, url=sandbox.status().gateway) as made:
        yield made


async def test_two_users_at_once_see_what_is_theirs_and_no_byte_names_another_tenant(
    browser: Browser, editor: Window, sandbox: Cluster, client: Client, jobs: Jobs, namespace: str, canary: str
) -> None:
    theirs = Jobs(client, namespace=canary)
    await theirs.submit(f"{CANARY}-job", gpu=1)
    await theirs.phase("Running", f"{CANARY}-job")
    await jobs.submit("mine", gpu=64)
    await jobs.phase("Queued", "mine")
    async with browsers.window(browser, url=sandbox.status().gateway) as administrator:
        everything = await administrator.sign_in(await token_of(sandbox), path="jobs?state=all")
        own = await editor.sign_in(await token_of(sandbox, namespace=namespace), path="jobs?state=all")
        await shows(everything, f"{CANARY}-job")
        await shows(own, "mine")
        # What one user does, the other sees without a reload; what happens elsewhere reaches neither page nor stream.
        await theirs.change(f"{CANARY}-job", priority=7)
        await jobs.change("mine", suspend=True)
        await shows(own, "Held")
        await shows(everything, "Held")
        for path in (*PAGES, f"job/{namespace}/mine"):
            await own.goto(f"{editor.url}/console/{path}")
            await shows(own, "live")
            await settled(own)
            assert CANARY not in await own.content(), path
    assert [text for text in await editor.all_received() if CANARY in text] == []
    await theirs.clear()


async def test_each_action_changes_the_job_on_the_api_server(
    editor: Window, sandbox: Cluster, jobs: Jobs, namespace: str
) -> None:
    # A namespace without jobs is not among those that a caller sees.
    await jobs.submit("waits", gpu=64)
    await jobs.phase("Queued", "waits")
    page = await editor.sign_in(await token_of(sandbox, namespace=namespace), path="submit")
    await page.get_by_label("GPUs for each worker").fill("64")
    await shows(page, "Can never start here.")
    await page.get_by_label("GPUs for each worker").fill("1(A100)")
    await shows(page, "Starts now on")
    await submit(page, name="asked", image="busybox", command="sleep 600")
    await jobs.phase("Running", "asked")
    await page.goto(f"{editor.url}/console/job/{namespace}/waits")
    await act(page, "Hold", says="Held: ")
    await jobs.phase("Held", "waits")
    await act(page, "Release", says="Released: ")
    await jobs.phase("Queued", "waits")
    await page.get_by_role("button", name="Change priority").click()
    await page.get_by_role("dialog").get_by_label("Priority").fill("200")
    await page.get_by_role("button", name="Apply").click()
    await shows(page, "Priority changed: ")
    assert (await jobs.spec("waits"))["priority"] == 200
    await act(page, "Cancel", says="Cancelled: ")
    await jobs.phase("Cancelled", "waits")
    await page.goto(f"{editor.url}/console/job/{namespace}/asked")
    await page.get_by_role("link", name="Clone").click()
    await submit(page, name="again")
    assert (await jobs.spec("again"))["template"] == (await jobs.spec("asked"))["template"]


async def test_two_administrators_change_a_quota_and_the_job_that_waited_for_it_starts(
    browser: Browser, sandbox: Cluster, client: Client, jobs: Jobs, namespace: str
) -> None:
    quota = {"metadata": {"name": namespace}, "spec": {"namespaces": [namespace], "limit": {"gpus": 1}}}
    await client.create(GPUQUOTAS, body=quota, as_type=GPUQuota)
    for name in ("first", "second"):
        await jobs.submit(name, gpu="1(V100)")
    await jobs.phase("Running", "first")
    await jobs.phase("Queued", "second")
    token = await token_of(sandbox)
    async with browsers.window(browser, url=sandbox.status().gateway) as administrator:
        mine = await administrator.sign_in(token, path="quotas")
        theirs = await administrator.tab("quotas")
        for page in (mine, theirs):
            await page.get_by_role("button", name=f"Change {namespace}").click()
        await mine.get_by_label("GPUs at most").fill("2")
        effects = mine.get_by_role("region", name="What it would do now")
        await expect(effects.get_by_role("link", name="second")).to_be_visible(timeout=PATIENCE_MS)
        assert (await client.get(GPUQUOTAS, name=namespace, as_type=GPUQuota)).spec.limits.gpus == 1
        await mine.get_by_role("button", name="Save").click()
        await shows(mine, f"Saved: {namespace}")
        await jobs.phase("Running", "second")
        await theirs.get_by_label("GPUs at most").fill("0")
        await theirs.get_by_role("button", name="Save").click()
        await shows(theirs, f"Someone else has changed {namespace} since you opened it")
        assert (await client.get(GPUQUOTAS, name=namespace, as_type=GPUQuota)).spec.limits.gpus == 2
    await jobs.clear()
    await client.delete(GPUQUOTAS, name=namespace)


async def test_an_administrator_finds_who_holds_idle_gpus(
    browser: Browser, sandbox: Cluster, client: Client, jobs: Jobs, mallory: Client, namespace: str
) -> None:
    async with node_of_notebooks(client) as model:
        await jobs.submit("works", gpu="1(V100)")
        left_open = await Jobs(mallory, namespace=namespace).submit("left-open", gpu=f"{DEVICES}({model})")
        await jobs.phase("Running", "works")
        number = (await jobs.phase("Running", "left-open")).number
        token = await token_of(sandbox)
        async with browsers.window(browser, url=sandbox.status().gateway) as administrator:
            began = time.monotonic()
            page = await administrator.sign_in(token)
            await page.get_by_role("link", name="Waste").click()
            holders_of_idle = page.locator("table").first.locator("tbody tr")
            idle = holders_of_idle.filter(has_text="left-open").locator("td").nth(3)
            await expect(idle).to_have_text(f"{DEVICES}", timeout=PATIENCE_MS)
            holders = {"job": f"{number} left-open", "user": user_of(left_open) or "", "namespace": namespace}
            for by, name in holders.items():
                await page.get_by_role("combobox", name="By", exact=True).select_option(by)
                # Users and namespaces are in the order of a week, in which other tests ran.
                row = holders_of_idle.first if by == "job" else holders_of_idle.filter(has_text=name).first
                # A job's idle hours are those of whole minutes: one that began first may be first for that long.
                await expect(row.locator("td").first).to_have_text(name, timeout=4 * PATIENCE_MS)
            print(f"from opening the console to who holds idle GPUs: {time.monotonic() - began:.1f} s")
        await jobs.clear()


async def test_a_killed_gateway_is_said_within_5_s_in_each_of_seven_tabs_and_all_comes_back(
    editor: Window, sandbox: Cluster, jobs: Jobs, namespace: str
) -> None:
    await jobs.submit("waits", gpu=64)
    await jobs.phase("Queued", "waits")
    token = await token_of(sandbox, namespace=namespace)
    tabs = [await editor.sign_in(token, path="jobs?search=waits")]
    tabs += [await editor.tab("jobs?search=waits") for _ in range(6)]
    for page in tabs:
        await shows(page, "live")
    # The streams of the tabs that are gone, and of other tests' windows, end when the gateway notices.
    await until(lambda: open_streams(sandbox) == 1)
    # The page keeps what it has while a gateway is stuck, and goes on when it answers, with the same session.
    gateway = sandbox.pid("gateway")
    async with paused(gateway):
        for page in tabs:
            await expect(page.get_by_text("The gateway does not answer.")).to_be_visible(timeout=5_000)
        await expect(tabs[0].get_by_role("link", name="waits")).to_be_visible()
        await jobs.change("waits", suspend=True)
    for page in tabs:
        await shows(page, "Held")
    # Sessions end with the gateway. The address keeps the filters over the sign-in.
    os.kill(gateway, signal.SIGKILL)
    await asyncio.to_thread(sandbox.stop, "gateway")
    await expect(tabs[0].get_by_text("The gateway does not answer.")).to_be_visible(timeout=5_000)
    await jobs.change("waits", suspend=False)
    await asyncio.to_thread(sandbox.start, "gateway")
    await expect(tabs[0].get_by_role("heading", name="Sign in")).to_be_visible(timeout=PATIENCE_MS)
    await tabs[0].get_by_label("Token").fill(token)
    await tabs[0].get_by_role("button", name="Sign in", exact=True).click()
    for page in tabs:
        await shows(page, "Queued")
        assert page.url.endswith("/console/jobs?search=waits")


def open_streams(sandbox: Cluster) -> int:
    port = sandbox.state().ports["gateway.metricsPort"]
    lines = credential.read(f"https://127.0.0.1:{port}/metrics", folder=sandbox.credential).splitlines()
    return int(float(next(line for line in lines if line.startswith("dovetail_gateway_streams ")).split()[1]))


async def act(page: Page, action: str, *, says: str) -> None:
    """Press the action's button, and then that of the dialog that says what it does."""
    await page.get_by_role("button", name=action, exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name=f"{action} the job").click()
    await shows(page, says)


async def settled(page: Page) -> None:
    """Wait until no part of the page is still loading."""
    await expect(page.get_by_text("asking the scheduler …")).to_have_count(0, timeout=PATIENCE_MS)
    await expect(page.get_by_text("Computing …")).to_have_count(0, timeout=PATIENCE_MS)
