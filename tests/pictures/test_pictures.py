"""Pictures of the console's pages: `make pictures`.

A sandbox of their own has the jobs of three users, quotas, and a week that the gateway's sampler kept under a moved
clock. Those of the documentation are in docs/images; each page must show what its picture is for. All pages in both
themes and languages and at three widths are in build/pictures, to be looked at; they need Chromium and a font with
Chinese characters on this machine. Without the variables of `make pictures`, the pictures are only measured.
"""

import asyncio
import io
import itertools
import os
import re
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal

import pytest
from PIL import Image
from playwright.async_api import Browser, Page, expect

from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, GPUQUOTAS, NAMESPACES
from dovetail.config.settings import Settings
from dovetail.formats.timestamps import timestamp
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail_gateway import local
from dovetail_gateway.console import build
from dovetail_gateway.samples.store import SampleStore
from dovetail_sandbox import access, bringup, cluster
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.localnode import credentials
from dovetail_sandbox.localnode.credentials import Subject
from dovetail_sandbox.progress import reporter
from tests.cluster.jobs import Jobs
from tests.cluster.test_agent import until
from tests.console import browser as browsers
from tests.console.browser import CHROMIUM, PATIENCE_MS, shows
from tests.pictures.past import sample_past

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium"),
]
FOLDER: Final = os.environ.get("DOVETAIL_PICTURES", "")
EVERY_FOLDER: Final = os.environ.get("DOVETAIL_PICTURES_OF_ALL", "")
MOST_BYTES: Final = 150 << 10
COLOURS: Final = 160
VIEWER: Final = "anna"
HOUR: Final = 3600

# By user and namespace, in the order of submission; those of FILLING run before the others come.
FILLING: Final[list[tuple[str, str, str, dict[str, Any]]]] = [
    ("anna", "nlp", "pretrain", {"gpu": "8(A100)", "workers": 2, "activeDeadlineSeconds": 8 * HOUR}),
    ("anna", "vision", "resnet-sweep", {"gpu": "4(V100)", "workers": 3, "activeDeadlineSeconds": 4 * HOUR}),
    ("ben", "vision", "detector", {"gpu": "8(V100)", "activeDeadlineSeconds": 2 * HOUR}),
    ("carla", "speech", "asr-train", {"gpu": "6(V100)", "activeDeadlineSeconds": HOUR}),
    ("ben", "speech", "notebook", {"gpu": "4G,0.25(T4)", "workers": 3, "activeDeadlineSeconds": 9 * HOUR}),
    ("carla", "nlp", "serve", {"gpu": "8G,0.5(T4)", "workers": 2}),
]
WAITING: Final[list[tuple[str, str, str, dict[str, Any]]]] = [
    ("anna", "vision", "segment", {"gpu": "8(V100)", "workers": 2, "activeDeadlineSeconds": 3 * HOUR}),
    ("carla", "nlp", "evaluate", {"gpu": "8(A100)", "activeDeadlineSeconds": 2 * HOUR}),
    ("ben", "vision", "distill", {"gpu": "6(V100)", "activeDeadlineSeconds": 5 * HOUR}),
    ("carla", "speech", "quick-check", {"gpu": "2(V100)", "activeDeadlineSeconds": HOUR // 2}),
    ("anna", "nlp", "report", {"gpu": 1, "dependencies": [{"name": "pretrain"}]}),
    ("ben", "speech", "draft", {"gpu": "4(V100)", "suspend": True}),
]
RUNS_AT_ONCE: Final = "quick-check"
# Name of the picture, path, what the page must show, and whether it is of the dark theme.
PICTURES: Final = [
    ("overview", "overview", "segment", False),
    ("overview-dark", "overview", "segment", True),
    ("jobs", "jobs", "distill", False),
    ("job", "job/vision/segment", "Why it waits", False),
    ("submit", "submit?gpu=4(V100)&limit=2h&command=python train.py", "Starts now", False),
    ("nodes", "nodes", "v100-0", False),
    ("plan", "plan?hours=12", "segment", False),
    ("map", "map", "v100-0", False),
    ("waste", "waste", "resnet-sweep", False),
    ("quotas", "quotas", "speech", False),
    ("usage", "usage", "vision", False),
]
PAGES: Final = {
    "overview": "overview?range=1w", "jobs": "jobs", "job": "job/vision/segment", "job-run": "job/nlp/pretrain",
    "submit": "submit?gpu=4(V100)&limit=2h&command=python train.py", "nodes": "nodes", "node": "node/v100-0?range=1w",
    "map": "map", "map-then": "map?colour=load&range=1w&at={yesterday}", "plan": "plan?hours=12", "quotas": "quotas",
    "usage": "usage", "waste": "waste", "settings": "settings", "design": "design",
}  # fmt: skip
WIDTHS: Final = (390, 1440, 2560)
# By name: GPUs that are guaranteed, and the parent. Nothing that waits is within a guarantee, so no job is ended.
QUOTAS: Final = {"lab": (44, None), "nlp": (16, "lab"), "vision": (20, "lab"), "speech": (8, "lab")}
# So many English words in a row are no names.
SENTENCE: Final = re.compile(r"(?:\b[A-Za-z]{2,}\b[ ,]+){4,}[A-Za-z]{2,}")
# What the page says in the language of the person: not what is quoted, typed or named.
SAID: Final = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const said = [];
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!element.closest('[lang="en"], pre, code, script, style, [role="log"]')) said.push(walker.currentNode.data);
  }
  return said;
}"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Cluster]:
    build.build()
    own = cluster.get(f"pictures-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    try:
        yield bringup.up(own.name, report=reporter())
    finally:
        own.down()


@pytest.fixture(autouse=True)
def fonts() -> None:
    """A machine whose pictures in Chinese would have boxes instead of characters takes none."""
    if EVERY_FOLDER and not subprocess.run(["fc-list", ":lang=zh"], capture_output=True, check=True).stdout:
        pytest.fail("no font has Chinese characters: apt-get install fonts-noto-cjk")


async def test_each_page_shows_what_its_picture_is_for(sandbox: Cluster, tmp_path: Path) -> None:
    await seed(sandbox, folder=tmp_path)
    folder = Path(FOLDER) if FOLDER else tmp_path
    kubeconfig = kubeconfig_of(VIEWER, sandbox=sandbox, folder=tmp_path)
    await sample_past(load_connection(kubeconfig), file=tmp_path / "past.db")
    async with (
        opened(kubeconfig, past=tmp_path / "past.db") as (address, code),
        browsers.chromium() as started,
    ):
        url = address.removesuffix("/console/")
        async with browsers.window(started, url=url, reduced_motion="reduce") as person:
            page = await person.enter_code(code)
            await shows(page, "live")
            for name, path, text, dark in PICTURES:
                await page.emulate_media(color_scheme="dark" if dark else "light")
                await page.goto(f"{url}/console/{path}")
                await shows(page, "live")
                await shows(page, text)
                await settled(page)
                picture = small(await page.screenshot(full_page=False))
                assert len(picture) <= MOST_BYTES, f"{name} has {len(picture) >> 10} KiB"
                await asyncio.to_thread((folder / f"console-{name}.png").write_bytes, picture)
            state = await page.context.storage_state()
        wide, foreign = await every_page(started, url=url, state=state, folder=Path(EVERY_FOLDER or tmp_path))
        assert wide == [], "they scroll sideways"
        assert not foreign, "English in Chinese:\n" + "\n".join(foreign)


async def every_page(browser: Browser, *, url: str, state: Any, folder: Path) -> tuple[list[str], list[str]]:
    """Take all pages in both themes and languages at each width. Returns what is too wide, and what is English."""
    wide, foreign = list[str](), dict[str, str]()
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    yesterday = timestamp(datetime.now(UTC) - timedelta(hours=20))
    for language, dark in itertools.product(("en-GB", "zh-CN"), (False, True)):
        scheme: Literal["dark", "light"] = "dark" if dark else "light"
        context = await browser.new_context(
            locale=language, color_scheme=scheme, reduced_motion="reduce", storage_state=state
        )
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        for (name, path), width in itertools.product(PAGES.items(), WIDTHS):
            await page.set_viewport_size({"width": width, "height": 1440 if width > 390 else 844})
            await page.goto(f"{url}/console/{path.format(yesterday=yesterday)}")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            # The sheet of parts shows how a part loads, with texts that are samples.
            if name != "design":
                await settled(page)
            what = f"{name}-{language[:2]}-{scheme}-{width}"
            if await page.evaluate("document.documentElement.scrollWidth") > width:
                wide.append(what)
            if language == "zh-CN" and name != "design":
                said = [text.strip() for text in await page.evaluate(SAID) if SENTENCE.search(text)]
                foreign |= {text: f"{what}: {text}" for text in said if text not in foreign}
            picture = await page.screenshot(full_page=True)
            await asyncio.to_thread((folder / f"{what}.png").write_bytes, picture)
        await context.close()
    return wide, list(foreign.values())


async def seed(sandbox: Cluster, *, folder: Path) -> None:
    """Submit the jobs as their users, and wait until the queue has judged them."""
    async with Client(load_connection(sandbox.kubeconfig)) as client:
        for namespace in sorted({namespace for _, namespace, _, _ in FILLING}):
            await client.create(NAMESPACES, body={"metadata": {"name": namespace}}, as_type=dict[str, Any])
        for name, (gpus, parent) in QUOTAS.items():
            spec = {"guaranteed": {"gpus": gpus}} | ({} if parent is None else {"parent": parent, "namespaces": [name]})
            await client.create(GPUQUOTAS, body={"metadata": {"name": name}, "spec": spec}, as_type=dict[str, Any])
        for jobs in (FILLING, WAITING):
            for user, namespace, name, spec in jobs:
                path = kubeconfig_of(user, sandbox=sandbox, folder=folder)
                async with Client(load_connection(path)) as own:
                    await Jobs(own, namespace=namespace).submit(name, **spec)
            for _, namespace, name, _ in jobs:
                if jobs is FILLING or name == RUNS_AT_ONCE:
                    await Jobs(client, namespace=namespace).phase("Running", name)
        # The estimates of all that wait for room.
        for name, namespace in (("segment", "vision"), ("evaluate", "nlp"), ("distill", "vision")):
            await Jobs(client, namespace=namespace).until(
                name, lambda status: status.queue is not None and status.queue.estimated_start is not None
            )
        # The load of what runs.
        await until(lambda: idle_devices(client), lambda idle: idle == 0)


async def idle_devices(client: Client) -> int:
    """How many devices of the nodes of `FILLING`'s whole GPUs no report has seen at work; some stay free."""
    nodes = (await client.list(GPUNODES, as_type=GPUNode)).items
    full = ("a100-0", "a100-1", "v100-0")
    return sum(not device.utilization for node in nodes if node.metadata.name in full for device in node.status.devices)


def kubeconfig_of(user: str, *, sandbox: Cluster, folder: Path) -> Path:
    """The kubeconfig of a person, by a certificate; all of them administer this cluster."""
    certificate, key, path = folder / f"{user}.crt", folder / f"{user}.key", folder / f"{user}.yaml"
    if not path.exists():
        credentials.sign(Subject(user=user, group="system:masters"), pki=sandbox.pki, certificate=certificate, key=key)
        access.write_certificate_kubeconfig(
            path,
            context=user,
            ca=sandbox.pki / "ca.crt",
            certificate=certificate,
            key=key,
            port=sandbox.state().ports["kube-apiserver"],
        )
    return path


@asynccontextmanager
async def opened(kubeconfig: Path, *, past: Path) -> AsyncIterator[tuple[str, str]]:
    """The address and the code of `dovetail console` with this kubeconfig, and what was sampled before."""
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(
        local.serve(
            load_connection(kubeconfig),
            settings=Settings(gpu_hour_prices={"A100": 3.5, "V100": 1.8}, currency="EUR"),
            store=SampleStore(f"sqlite:///{past}"),
            port=0,
            opened=lambda url, code: address.set_result((url, code)),
            delayed=lambda _: None,
            stop=stop,
        )
    )
    try:
        yield await address
    finally:
        stop.set()
        await serving


async def settled(page: Page) -> None:
    """Wait until no part of the page is loading, and the last change is painted."""
    for text in ("asking the scheduler …", "Computing …", "Loading …", "计算中……", "加载中……"):
        await expect(page.get_by_text(text)).to_have_count(0, timeout=PATIENCE_MS)
    await page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def small(picture: bytes) -> bytes:
    """The picture with few colours, as PNG."""
    out = io.BytesIO()
    Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
        out, format="PNG", optimize=True
    )
    return out.getvalue()
