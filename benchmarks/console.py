"""Measure the console's pages in a real browser: first paint, scrolling, changes, streams and memory.

The cluster comes from the tests' API server in a separate process: nodes of 8 V100, jobs of which most run on them, in
20 namespaces. The gateway is its own program on one core, and keeps them in its usual caches. The browser is Debian's
Chromium without a GPU. Times of the main thread are CPU times from Chromium's trace (`tdur`), which other load on the
machine hardly changes; wall times are there too.

The end of the output says which targets are met. The exit code is 1 if one is missed.

    python benchmarks/console.py [--nodes 1000] [--jobs 10000] [--minutes 25] [--memory | --pages] [--json FILE]
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final, Literal, TypeVar

import aiohttp
from playwright.async_api import Browser, CDPSession, Page

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.console_targets import (
    STREAMS,
    Changes,
    Measured,
    Memory,
    Paint,
    Scrolling,
    judged,
    judged_memory,
    judged_pages,
)
from benchmarks.counts import count
from benchmarks.gateway import HEADERS, PORT, follow, own_process, program, until_synced, write
from dovetail.formats.timestamps import timestamp
from dovetail_gateway.console import build
from dovetail_gateway.samples.rings import STEP_SECONDS
from tests.console.browser import chromium
from tests.extender.builders import make_gpunode, make_node
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job

DEVICES: Final = 8
NAMESPACES: Final = 20
CHANGES_PER_SECOND: Final = 50
R = TypeVar("R")
URL: Final = f"http://127.0.0.1:{PORT}"
FAR: Final = "2100-01-01T00:00:00Z"
SNAPSHOT: Final = "/api/v3/snapshot"
PATIENCE_MS: Final = 120_000
# How often each page is opened.
ROUNDS: Final = 3
# The job whose changes are timed: the first one of the queue.
FIRST: Final = "ns-0/job-0"
# The map of a moment that was sampled; at first of now.
NOW: Final = "now"
PAST: Final = f"map?colour=load&at={NOW}"
Part = Literal["all", "memory", "pages"]
# The outermost events of these names are script and layout.
WORK: Final = frozenset(
    {"FunctionCall", "FireAnimationFrame", "TimerFire", "EventDispatch", "EvaluateScript", "RunMicrotasks",
     "UpdateLayoutTree", "Layout", "V8.GCScavenger", "MinorGC", "MajorGC"}
)  # fmt: skip
# Scrolls by a fixed way in each frame, turning round at the ends, for so many milliseconds.
SCROLL: Final = """([pixels, milliseconds]) => new Promise((done) => {
  const box = document.querySelector('.scroll');
  const ends = performance.now() + milliseconds;
  let way = pixels;
  const step = () => {
    const before = box.scrollTop;
    box.scrollTop += way;
    if (box.scrollTop === before) way = -way;
    if (performance.now() < ends) requestAnimationFrame(step); else done(box.scrollHeight);
  };
  requestAnimationFrame(step);
})"""
# Notes when something of the page's data is first drawn, by the clock of the machine. Playwright's own wait looks after
# 20, 50, 100, 100 and then 500 ms, which would round each time up to one of those.
FIRST_SHOWN: Final = """window.firstShown = new Promise((done) => {
  const selector = %s;
  const look = () => {
    if (![...document.querySelectorAll(selector)].some((each) => each.checkVisibility())) return;
    watch.disconnect();
    // A timer of the frame runs once that is painted.
    requestAnimationFrame(() => setTimeout(() => done(Date.now())));
  };
  const watch = new MutationObserver(look);
  watch.observe(document, {subtree: true, childList: true, attributes: true});
});"""
# Notes how late the first row shows each change: its text has the time at which it was made.
WATCH: Final = """() => {
  window.delays = [];
  let last = '';
  new MutationObserver(() => {
    const said = /changed at (\\d+) ms/.exec(document.querySelector('tbody').textContent ?? '');
    if (said && said[1] !== last) { last = said[1]; window.delays.push(Date.now() - Number(said[1])); }
  }).observe(document.querySelector('.scroll'), {subtree: true, childList: true, characterData: true});
}"""


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=1000)
    options.add_argument("--jobs", type=count, default=10_000)
    options.add_argument("--minutes", type=int, default=25, help="how long a tab's memory is watched")
    options.add_argument(
        "--memory", action="store_true", help="only the tab's memory, which a busy machine does not change"
    )
    options.add_argument("--pages", action="store_true", help="only how soon each page is there")
    options.add_argument("--json", type=Path, default=Path("out/console.json"), help="where it is written too")
    args = options.parse_args()
    build.build()
    with own_process(serve, args.nodes, args.jobs) as (url, pipe):
        part: Part = "memory" if args.memory else "pages" if args.pages else "all"
        measured = asyncio.run(measure(url, pipe=pipe, minutes=args.minutes, part=part))
    match measured:
        case Memory():
            targets, found = [judged_memory(measured)], asdict(measured)
        case Measured():
            targets, found = list(judged(measured)), asdict(measured)
        case _:
            targets, found = list(judged_pages(measured)), {"paints": list(map(asdict, measured))}
    write({**found, "targets": list(map(asdict, targets))}, to=args.json)
    print(*(each.row() for each in targets), sep="\n")
    if not all(each.met for each in targets):
        sys.exit(1)


def serve(pipe: Pipe, nodes: int, jobs: int) -> None:
    """The API server; each message through the pipe changes that many jobs, and the first one of the queue."""

    async def run() -> None:
        async with GatewayApiServer().running() as api:
            fill(api, nodes=nodes, jobs=jobs)
            pipe.send(api.connection.server)
            loop, at = asyncio.get_running_loop(), 0
            while (count := await loop.run_in_executor(None, pipe.recv)) is not None:
                for _ in range(count):
                    at = (at + 1) % jobs
                    job = api.objects["gpujobs"][f"ns-{at % NAMESPACES}/job-{at}"]
                    job["status"]["message"] = f"Need 8 GPUs ({time.time():.0f})"
                    api.put("gpujobs", job)
                first = api.objects["gpujobs"][FIRST]
                first["status"]["message"] = f"changed at {time.time() * 1000:.0f} ms"
                api.put("gpujobs", first)

    asyncio.run(run())


def fill(api: GatewayApiServer, *, nodes: int, jobs: int) -> None:
    """Three of four devices run a job each; the other jobs wait, and the first 100 of them have an estimated start.

    Each namespace has a quota below that of all.
    """
    api.users |= {f"stream-{at}": api.users["admin-token"] for at in range(1000)}
    for at in range(nodes):
        node = make_node(f"node-{at}")
        node["metadata"].setdefault("labels", {})["dovetail.dev/rack"] = f"rack-{at // 32}"
        api.put("nodes", node)
        report = make_gpunode(f"node-{at}", gpus=DEVICES)
        report["status"]["observedAt"] = "2026-11-01T00:00:00Z"
        api.put("gpunodes", report)
    for at in range(NAMESPACES):
        spec = {"namespaces": [f"ns-{at}"], "guaranteed": {"gpus": nodes * DEVICES // NAMESPACES}, "parent": "all"}
        api.put("gpuquotas", {"metadata": {"name": f"ns-{at}", "uid": f"quota-{at}", "generation": 1}, "spec": spec})
    everyone = {"guaranteed": {"gpus": nodes * DEVICES}, "limit": {"gpus": nodes * DEVICES}}
    api.put("gpuquotas", {"metadata": {"name": "all", "uid": "quota-all", "generation": 1}, "spec": everyone})
    held = min(jobs * 3 // 4, nodes * DEVICES * 3 // 4)
    for at in range(jobs):
        # The first ones wait, so that the job whose changes are timed is the first of the queue.
        run = at - (jobs - held)
        job = waiting(at) if run < 0 else running(api, at, node=run % nodes, index=run // nodes)
        api.put("gpujobs", job)


def waiting(at: int) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Queued", "number": at + 1, "reason": "Resources", "message": "Need 8 GPUs"}
    place: dict[str, Any] = {"position": at + 1}
    if at < 100:
        place |= {"estimatedStart": FAR, "estimatedStartEarliest": FAR, "estimatedStartLatest": FAR}
    status |= {"gpus": 8, "request": "8", "queue": place}
    return make_job(
        f"job-{at}", namespace=f"ns-{at % NAMESPACES}", number=at + 1, user=f"user-{at % 50}", status=status, gpu=8
    )


def running(api: GatewayApiServer, at: int, *, node: int, index: int) -> dict[str, Any]:
    """A job that runs on a device, with its pod."""
    name, namespace, uuid = f"node-{node}", f"ns-{at % NAMESPACES}", f"node-{node}-{index}"
    device = {"worker": 0, "node": name, "index": index, "uuid": uuid, "shareMilli": 1000, "memoryMiB": 32768}
    pod = make_bound_pod(
        f"job-{at}-0", namespace=namespace, job=f"job-{at}", number=at + 1, device=f"x-{index}", node=name
    )
    allocation = json.loads(pod["metadata"]["annotations"]["dovetail.dev/allocation"])
    allocation["containers"][0]["devices"][0]["uuid"] = uuid
    pod["metadata"]["annotations"]["dovetail.dev/allocation"] = json.dumps(allocation)
    api.put("pods", pod)
    status = {"phase": "Running", "number": at + 1, "gpus": 1, "request": "1", "nodes": [name], "devices": [device]}
    status["startTime"] = "2026-11-01T00:00:10Z"
    return make_job(f"job-{at}", namespace=namespace, number=at + 1, user=f"user-{at % 50}", status=status)


async def measure(server: str, *, pipe: Pipe, minutes: int, part: Part) -> Measured | Memory | list[Paint]:
    """Everything that is measured, or a part of it, printed as it comes."""
    async with program(server) as process, aiohttp.ClientSession(headers=HEADERS) as session, chromium() as browser:
        print(f"synced after {await until_synced(session):.1f} s", flush=True)
        if part == "memory":
            return said(await watch_memory(browser, pipe=pipe, minutes=minutes))
        # The first samples.
        await asyncio.sleep(STEP_SECONDS)
        paints = [said(await first_paint(browser, path=path)) for path in ROUNDS * [*SHOWN]]
        if part == "pages":
            return paints
        return Measured(
            paints=paints,
            scrolling=[
                said(await scroll(browser, path=path, pipe=pipe)) for path in ("jobs", "nodes", "map", "plan?hours=24")
            ],
            changes=said(await changes(browser, pipe=pipe)),
            streams=said(await follow(pipe=pipe, pid=process.pid, streams=STREAMS)),
            memory=said(await watch_memory(browser, pipe=pipe, minutes=minutes)),
        )


def said(found: R) -> R:
    """The result, printed."""
    print(found, flush=True)
    return found


@asynccontextmanager
async def tab(browser: Browser, *, path: str) -> AsyncIterator[tuple[Page, CDPSession]]:
    """A signed-in tab on a page, before it is opened there."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    page = await context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    await page.goto(f"{URL}/console/settings")
    await page.get_by_label("Token").fill("admin-token")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_text("Who the API server says you are").wait_for()
    devtools = await context.new_cdp_session(page)
    await devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
    await page.goto(f"{URL}/console/{path}")
    await page.locator(SHOWN.get(path) or SHOWN[path.split("?", maxsplit=1)[0]]).first.wait_for()
    try:
        yield page, devtools
    finally:
        await context.close()


# What is on a page once its data are; not the answers of the queue that it asks for then.
SHOWN: Final = {
    "jobs": "tbody td a", "overview": "tbody td", "map": ".device", "plan": ".lane", "submit": "form button",
    "nodes": "tbody td a", "node/node-0": "tbody td a", "waste": "tbody td a", "settings": ".facts",
    f"job/{FIRST}": "p.sentence", "quotas": "tbody td .meter", "usage": "tbody td", PAST: ".device .device-figure",
}  # fmt: skip


async def metrics(devtools: CDPSession) -> dict[str, float]:
    """Chromium's own counters of the tab: seconds of CPU, bytes, numbers."""
    found = await devtools.send("Performance.getMetrics")
    return {each["name"]: each["value"] for each in found["metrics"]}


async def first_paint(browser: Browser, *, path: str) -> Paint:
    """A page that is opened a second time, so that its files are in the browser's cache."""
    async with tab(browser, path=path) as (page, devtools):
        then = timestamp(datetime.now(UTC) - timedelta(seconds=STEP_SECONDS))
        again = f"{path.removesuffix(NOW)}{then}" if path == PAST else f"{path}?again=1"
        await page.add_init_script(FIRST_SHOWN % json.dumps(SHOWN[path]))
        began = time.time()
        await page.goto(f"{URL}/console/{again}")
        shown = await page.evaluate("window.firstShown") / 1000 - began
        painted = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1")
        cpu = (await metrics(devtools))["TaskDuration"]
    return Paint(
        page=path,
        first_paint_seconds=round(painted / 1000, 3),
        shown_seconds=round(shown, 2),
        cpu_seconds=round(cpu, 2),
    )


async def keep_changing(pipe: Pipe) -> None:
    """50 changes a second, endlessly."""
    while True:
        pipe.send(CHANGES_PER_SECOND // 4 - 1)
        await asyncio.sleep(0.25)


async def scroll(browser: Browser, *, path: str, pipe: Pipe, seconds: int = 10) -> Scrolling:
    """Scroll for a while, with changes coming in."""
    async with tab(browser, path=path) as (page, _):
        changing = asyncio.create_task(keep_changing(pipe))
        await page.evaluate(SCROLL, [120, 2000])
        await browser.start_tracing(page=page, categories=["devtools.timeline", "toplevel", "v8"])
        await page.evaluate(SCROLL, [120, seconds * 1000])
        trace = json.loads(await browser.stop_tracing())
        changing.cancel()
    return scrolling_of(path, events=trace["traceEvents"])


def scrolling_of(path: str, *, events: Sequence[dict[str, Any]]) -> Scrolling:
    """Script and layout by frame, and the longest tasks, of the page's main thread."""
    # The page's own thread is that which draws most frames.
    drawn = [(each["pid"], each["tid"]) for each in events if each["name"] == "FireAnimationFrame"]
    main_thread = max(set(drawn), key=drawn.count)
    own = sorted(
        (each for each in events if (each["pid"], each["tid"]) == main_thread and each["ph"] == "X"),
        key=lambda each: (each["ts"], -each.get("dur", 0)),
    )
    frames = [each["ts"] for each in own if each["name"] == "FireAnimationFrame"]
    work = [0.0] * len(frames)
    at, covered = 0, 0.0
    for each in own:
        if each["name"] not in WORK or each["ts"] < covered or each["ts"] < frames[0]:
            continue
        covered = each["ts"] + each.get("dur", 0)
        while at + 1 < len(frames) and frames[at + 1] <= each["ts"]:
            at += 1
        work[at] += each.get("tdur", each.get("dur", 0)) / 1000
    tasks = [each for each in own if each["name"].endswith("RunTask")]
    cpu = sorted(each.get("tdur", 0) / 1000 for each in tasks)
    return Scrolling(
        page=path,
        frames=len(frames),
        p50_ms=round(median(work), 2),
        p95_ms=round(quantiles(work, n=20)[-1], 2),
        longest_task_cpu_ms=round(cpu[-1], 1),
        longest_task_wall_ms=round(max(each.get("dur", 0) / 1000 for each in tasks), 1),
        tasks_above_50_ms_cpu=sum(each > 50 for each in cpu),
    )


async def changes(browser: Browser, *, pipe: Pipe, seconds: int = 60) -> Changes:
    """How late the queue's first row shows each of its changes."""
    async with tab(browser, path="jobs") as (page, devtools):
        await page.evaluate(WATCH)
        before, began = (await metrics(devtools))["TaskDuration"], time.monotonic()
        changing = asyncio.create_task(keep_changing(pipe))
        await asyncio.sleep(seconds)
        changing.cancel()
        used = ((await metrics(devtools))["TaskDuration"] - before) / (time.monotonic() - began)
        delays = [each / 1000 for each in await page.evaluate("window.delays")]
    return Changes(
        changes=len(delays),
        median_seconds=round(median(delays), 3),
        p95_seconds=round(quantiles(delays, n=20)[-1], 3),
        slowest_seconds=max(delays),
        tab_cpu_percent=round(100 * used, 1),
    )


async def watch_memory(browser: Browser, *, pipe: Pipe, minutes: int) -> Memory:
    """The heap of a tab on the queue, once a minute, with changes coming in."""
    found = Memory(heap_mib=[], dom_nodes=[], whole_lists=[])
    async with tab(browser, path="jobs") as (page, devtools):
        loads = list[str]()
        page.on("response", lambda answer: loads.append(answer.url) if SNAPSHOT in answer.url and answer.ok else None)
        changing = asyncio.create_task(keep_changing(pipe))
        for minute in range(minutes + 1):
            await devtools.send("HeapProfiler.collectGarbage")
            counters = await metrics(devtools)
            found.heap_mib.append(round(counters["JSHeapUsedSize"] / 2**20, 2))
            found.dom_nodes.append(int(counters["Nodes"]))
            found.whole_lists.append(len(loads))
            print(f"minute {minute}: {found.heap_mib[-1]} MiB, {len(loads)} whole lists since", flush=True)
            await asyncio.sleep(60)
        changing.cancel()
    return found


if __name__ == "__main__":
    main()
