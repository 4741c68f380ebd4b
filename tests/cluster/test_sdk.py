"""The SDK, its page and the published scripts in front of a real control plane."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dovetail.sdk import Client
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import PATIENCE_SECONDS
from tests.cluster.test_gateway import token_of

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "scripts"
# A block of Python, and what it prints.
BLOCK = re.compile(r"^```python\n(?P<source>.*?)^```\n\n```text\n(?P<printed>.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = {page: list(BLOCK.finditer((ROOT / "docs" / page).read_text(encoding="utf-8"))) for page in ("sdk.md",)}
CASES = [(page, number) for page, blocks in PAGES.items() for number in range(len(blocks))]


@pytest.fixture
async def environment(sandbox: Cluster, namespace: str) -> Mapping[str, str]:
    """What a user of the whole sandbox has in the shell."""
    known = {"DOVETAIL_GATEWAY": sandbox.status().gateway, "DOVETAIL_TOKEN": await token_of(sandbox)}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, **known, "DOVETAIL_NAMESPACE": namespace, "PATH": path}


async def play(*words: str | Path, environment: Mapping[str, str]) -> str:
    done = await asyncio.to_thread(
        subprocess.run, words, capture_output=True, text=True, check=False, env=dict(environment), timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.parametrize(("page", "number"), CASES)
async def test_a_block_of_the_page_prints_what_the_page_says(
    environment: Mapping[str, str], page: str, number: int
) -> None:
    block = PAGES[page][number]
    printed = await play(sys.executable, "-c", block["source"], environment=environment)
    expected = ".*".join(map(re.escape, block["printed"].split("…")))
    assert re.fullmatch(expected, printed), printed


def test_each_block_of_python_is_followed_by_what_it_prints() -> None:
    for page, blocks in PAGES.items():
        text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        assert len(blocks) == text.count("```python\n") > 0


async def test_v1_by_curl_takes_two_gpus_and_gives_them_back(environment: Mapping[str, str]) -> None:
    printed = await play(SCRIPTS / "v1-allocation.sh", environment=environment)
    assert '"valid":true' in printed
    assert '"success":true' in printed
    assert '"precision":"float16"' in printed
    assert '"precision":"mixed_float16"' in printed
    assert printed.rstrip().endswith('"released":true}')


async def test_v2_by_the_task_client(environment: Mapping[str, str]) -> None:
    printed = await play(SCRIPTS / "v2-tasks.py", environment=environment)
    assert printed.splitlines()[1:] == [
        "training on cuda:0 is running",
        "inference on cuda:1 is running",
        "cuda:0 now takes 2 trainings and 4 inferences",
        "on cuda:0 now: 1 training",
        "training is cancelled",
        "inference is cancelled",
    ]


async def test_the_script_of_the_sdk_submits_a_job_and_holds_a_gpu(environment: Mapping[str, str]) -> None:
    printed = await play(SCRIPTS / "sdk-job.py", environment=environment)
    assert re.fullmatch(
        r"the job is Running\n.*the job is Cancelled\n1 GPU on v100-\d is mine\nand free again\n", printed, re.DOTALL
    )


@pytest.fixture
def sdk(environment: Mapping[str, str]) -> Any:
    """A client of the sandbox's gateway, in the test's namespace."""
    with Client(
        environment["DOVETAIL_GATEWAY"],
        token=environment["DOVETAIL_TOKEN"],
        namespace=environment["DOVETAIL_NAMESPACE"],
    ) as client:
        yield client


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(work)


async def test_an_allocation_is_renewed_and_outlives_its_first_lease(sdk: Client) -> None:
    def hold() -> tuple[str | None, str | None]:
        with sdk.allocation(1, lease_seconds=30, timeout_seconds=60) as gpus:
            job = sdk.job(gpus.name)
            before, renewed = job.row.lease_ends_at, job.renew().lease_ends_at
            return before, renewed

    before, _ = await _in_thread(hold)
    assert before is not None
    # The context's end asks for the release, and the operator carries it out.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while any(job.row.reservation for job in await _in_thread(lambda: list(sdk.jobs(unfinished=True)))):  # noqa: ASYNC110
            await asyncio.sleep(0.2)


async def test_a_job_without_room_explains_itself_with_what_would_help(sdk: Client) -> None:
    def ask() -> tuple[str, str, str]:
        job = sdk.submit(["true"], image="busybox", gpu="64")
        found, html = job.explain(), job._repr_html_()
        job.cancel()
        return str(found), found.reason, html

    text, reason, html = await _in_thread(ask)
    assert reason == "ExceedsCapacity"
    assert "64 GPUs" in text
    assert "<script" not in html
