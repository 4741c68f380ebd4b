"""A newcomer's way from one command to the sentence why a job waits, in the browser; `pytest -s` prints the seconds."""

import re
import time
from asyncio import to_thread
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from dovetail_gateway.console import build
from tests.console import browser as browsers
from tests.console.browser import CHROMIUM, PATIENCE_MS, shows
from tests.local_node.machine import Machine, empty_machine

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    # As on a machine that has built the console before, like one that has the control plane's programs.
    build.build()
    with empty_machine(tmp_path) as made:
        yield made


async def test_the_demo_ends_with_an_address_that_leads_to_why_a_job_waits(machine: Machine) -> None:
    began = time.monotonic()
    printed = await to_thread(machine, "demo")
    up = time.monotonic()
    sentence = await sentence_of_first_waiting(printed)
    print(f"`dovetail demo`: {up - began:.1f} s; from its address to the sentence: {time.monotonic() - up:.1f} s")
    assert sentence in await to_thread(machine, "gqueue", "-u", "all", "-o", "json")


async def test_gflowd_up_ends_with_an_address_that_leads_to_why_a_job_waits(machine: Machine) -> None:
    printed = await to_thread(machine, "gflowd", "up")
    job = await to_thread(machine.submit, "--gpus", "64", "--wait-for-capacity", "sleep", "600")
    sentence = await sentence_of_first_waiting(printed)
    shown = await to_thread(machine.show, job)
    assert (shown["phase"], shown["message"]) == ("Queued", sentence)


async def sentence_of_first_waiting(printed: str) -> str:
    """What the page of the first waiting job says, opened with the printed address and code; which works only once."""
    found = re.search(r"Console: (http://127\.0\.0\.1:\d+)/console/\nCode: +(\S+)\s*$", printed)
    assert found, printed
    url, code = found.groups()
    async with browsers.chromium() as browser:
        async with browsers.window(browser, url=url) as newcomer:
            page = await newcomer.enter_code(code)
            section = page.locator("section").filter(has=page.get_by_role("heading", name="Starts next"))
            await section.get_by_role("list").get_by_role("link").first.click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("Queued", timeout=PATIENCE_MS)
            sentence = await page.locator("p.sentence").inner_text()
            # Jobs of the commands are this person's own.
            await page.goto(f"{url}/console/jobs?state=all")
            await page.get_by_role("button", name="Mine").click()
            await expect(page.locator("tbody tr td").first).to_be_visible(timeout=PATIENCE_MS)
        async with browsers.window(browser, url=url) as late:
            await shows(await late.enter_code(code), "this code was used already")
    assert sentence
    return sentence
