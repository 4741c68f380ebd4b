"""A newcomer's way from one command to the sentence why a job waits, in the browser; `pytest -s` prints the seconds."""

import time
from asyncio import to_thread
from collections.abc import Iterator
from pathlib import Path

import pytest

from dovetail_gateway.console import build
from tests.console.browser import CHROMIUM
from tests.local_node.console import sentence_of_first_waiting
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
