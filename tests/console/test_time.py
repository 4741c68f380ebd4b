"""What was used over time in a real browser: a week that the gateway's own sampler kept under a moved clock."""

import asyncio
import math
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from dovetail.formats.timestamps import timestamp
from dovetail_gateway.app import Options
from tests.console import browser as browsers
from tests.console.browser import PATIENCE_MS, Window, shows, violations
from tests.console.conftest import cluster
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.samples.week import Clock, sample_week
from tests.gateway.served import Face, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")
# Ran yesterday on node `a`, was preempted, and went on at node `b`; its object is gone.
GONE = "sweep"


def _quota(name: str, *, parent: str | None, guarantee: dict[str, float]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "guaranteed": {"gpus": int(guarantee["gpus"])},
        "namespaces": [] if parent is None else [name],
    }
    if parent is not None:
        spec["parent"] = parent
    status = {"gpus": guarantee["used"], "guarantee": guarantee, "asOf": "2026-11-01T00:00:00Z"}
    return {"metadata": {"name": name, "uid": f"quota-{name}"}, "spec": spec, "status": status}


CURVES = ("overview?range=1w", "node/a", "job/red/train", f"job/red/{GONE}", "usage", "quotas")
QUOTAS = [
    _quota("vision", parent="lab", guarantee={"gpus": 8, "used": 12, "lent": 0, "borrowed": 4, "waiting": 2}),
    _quota("nlp", parent="lab", guarantee={"gpus": 8, "used": 4, "lent": 4, "borrowed": 0, "waiting": 0}),
    _quota("lab", parent=None, guarantee={"gpus": 16, "used": 16, "lent": 0, "borrowed": 0, "waiting": 0}),
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def week() -> AsyncIterator[Face]:
    """A gateway that was there all week. Devices work by day, and those of pods more."""
    clock, yesterday = Clock(), datetime.now(UTC) - timedelta(hours=20)
    async with cluster() as api, serving(api, options=Options(rates=None), now=clock) as face:

        async def change(now: datetime) -> None:
            by_day = 0.5 + 0.45 * math.sin((now.hour - 8) / 24 * 2 * math.pi)
            for node in "ab":
                report = api.objects["gpunodes"][node]
                for index, device in enumerate(report["status"]["devices"]):
                    load = by_day * (1 - index / 12) if index < 6 else 0.02
                    figures = {"powerWatts": round(70 + 230 * load), "temperatureCelsius": round(34 + 45 * load)}
                    device.update({"utilization": load, "usedMiB": round(30_000 * load)} | figures)
                api.put("gpunodes", report)
            _past_job(api, now=now, start=yesterday)
            await face.until_like(api)

        for quota in QUOTAS:
            api.put("gpuquotas", quota)
        await sample_week(face.made.sampler, clock, before=change)
        sampling = asyncio.ensure_future(face.made.sampler.run())
        yield face
        sampling.cancel()


def _past_job(api: GatewayApiServer, *, now: datetime, start: datetime) -> None:
    """The job of yesterday, as it is at this time."""
    hours, key = (now - start).total_seconds() / 3600, f"red/{GONE}"
    if hours < 0 or hours > 8:
        for kind, name in (("gpujobs", key), ("pods", f"{key}-0")):
            if name in api.objects[kind]:
                api.delete(kind, name)
        return
    node = "a" if hours < 3 else "b"
    first = {"number": 1, "reason": "Preempted", "message": "", "counted": False, "nodes": ["a"]}
    first |= {"startTime": timestamp(start), "endTime": timestamp(start + timedelta(hours=3))}
    status: dict[str, Any] = {"phase": "Running", "number": 9, "gpus": 1, "request": "1(V100)", "nodes": [node]}
    status["startTime"] = timestamp(start)
    if node == "b":
        preempted = {"count": 1, "lastTime": first["endTime"]}
        status |= {"startTime": timestamp(start + timedelta(hours=3.5)), "attempts": [first], "preemption": preempted}
    api.put("gpujobs", make_job(GONE, namespace="red", number=9, user="rita", status=status))
    api.put("pods", make_bound_pod(f"{GONE}-0", namespace="red", job=GONE, number=9, device=f"{node}-3", node=node))


@pytest_asyncio.fixture(loop_scope="session")
async def window(browser: Browser, week: Face) -> AsyncIterator[Window]:
    async with browsers.window(browser, url=week.url) as made:
        yield made


def chart(page: Page, name: str) -> Locator:
    """The chart whose description begins with this title."""
    return page.get_by_role("img", name=re.compile(rf"^{re.escape(name)}\. "))


async def drag(page: Page, plot: Locator, *, since: float, until: float) -> None:
    """Drag over a part of the chart's surface."""
    await plot.scroll_into_view_if_needed()
    box = await plot.locator(".u-over").bounding_box()
    assert box is not None
    height = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + since * box["width"], height)
    await page.mouse.down()
    await page.mouse.move(box["x"] + until * box["width"], height, steps=6)
    await page.mouse.up()


async def test_the_overview_shows_the_week_of_the_cluster(window: Window) -> None:
    page = await window.sign_in("red-token")
    await expect(chart(page, "GPUs")).to_be_visible()
    await page.get_by_role("link", name="1 w").click()
    assert page.url.endswith("/console/overview?range=1w") or page.url.endswith("/console/?range=1w")
    text = await chart(page, "GPUs").get_attribute("aria-label") or ""
    assert re.search(r"Promised: last 2, mean 2(\.\d)?, at most 3\. At work: last \d+(\.\d)?, mean \d", text), text
    await expect(chart(page, "Load by model")).to_have_attribute("aria-label", re.compile("V100: last"))


async def test_the_map_goes_back_in_time_and_the_link_carries_the_moment(window: Window) -> None:
    page = await window.sign_in("red-token", path="map?colour=load&range=1w")
    await expect(page.get_by_role("button", name=re.compile("^a:0: "))).to_be_visible()
    await page.get_by_role("button", name="Look back in time").click()
    slider = page.get_by_role("slider", name="Time of the map")
    tile = page.get_by_role("button", name=re.compile("^a:0: "))
    for part in (0.5, 0.9):
        low, high = [int(await slider.get_attribute(each) or 0) for each in ("min", "max")]
        day = datetime.fromtimestamp(low + part * (high - low), UTC).replace(minute=0, second=0, microsecond=0)
        # By night and by day, as the devices of this week work.
        for hour, load in ((2, r"Load \d\b"), (14, r"Load 9\d")):
            await slider.fill(str(int(day.replace(hour=hour).timestamp())))
            await expect(page).to_have_url(re.compile(rf"at=[0-9-]+T{hour:02}"))
            await expect(tile).to_have_attribute("aria-label", re.compile(load))
    shown = await tile.get_attribute("aria-label")
    again = await window.tab(page.url.partition("/console/")[2])
    await expect(again.get_by_role("button", name=re.compile("^a:0: "))).to_have_attribute("aria-label", shown or "")
    assert not await violations(again)
    await slider.press("ArrowLeft")
    await expect(page).not_to_have_url(again.url)
    box = await chart(page, "Load").locator(".u-over").bounding_box()
    assert box is not None
    await page.mouse.click(box["x"] + box["width"] / 4, box["y"] + box["height"] / 2)
    await expect(page).not_to_have_url(again.url)
    await page.get_by_role("button", name="Now", exact=True).click()
    await expect(page).to_have_url(re.compile("range=1w$"))
    await expect(tile).to_have_attribute("aria-label", re.compile("^a:0: In use"))


async def test_brushing_one_chart_brushes_the_page_and_the_link_carries_it(window: Window) -> None:
    page = await window.sign_in("red-token", path="node/a?range=1d")
    await expect(chart(page, "GPUs")).to_be_visible()
    before = await chart(page, "Load").get_attribute("aria-label")
    await drag(page, chart(page, "GPUs"), since=0.1, until=0.25)
    await expect(page).to_have_url(re.compile(r"range=1d&from=.*Z&to=.*Z"))
    await expect(chart(page, "Load")).not_to_have_attribute("aria-label", before or "")
    part = await chart(page, "Load").get_attribute("aria-label") or ""
    again = await window.tab(page.url.partition("/console/")[2])
    await expect(chart(again, "Load")).to_have_attribute("aria-label", part)
    await again.get_by_role("button", name="Show the whole range").click()
    await expect(again).to_have_url(re.compile(r"\?range=1d$"))


async def test_earlier_and_later_move_the_time_with_the_keyboard(window: Window) -> None:
    page = await window.sign_in("red-token", path="node/a?range=1h")
    await page.get_by_role("button", name="Earlier").focus()
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("from="))
    moved = page.url
    await page.get_by_role("button", name="Later").focus()
    await page.keyboard.press("Enter")
    await expect(page).not_to_have_url(moved)


async def test_what_one_points_at_is_shown_in_every_chart(window: Window) -> None:
    page = await window.sign_in("red-token", path="node/a?range=1d")
    shown = page.locator("figure", has=chart(page, "Temperature")).locator(".key b").first
    before = await shown.inner_text()
    plot = chart(page, "GPUs").locator(".u-over")
    for part in (0.1, 0.3, 0.5, 0.7):
        box = await plot.bounding_box()
        assert box is not None
        await plot.hover(position={"x": box["width"] * part, "y": 20})
        if await shown.inner_text() != before:
            return
    raise AssertionError(f"always {before}")


async def test_starts_moves_preemptions_and_ends_are_marks(window: Window) -> None:
    page = await window.sign_in("red-token", path="node/b?range=1w")
    await page.get_by_text("Starts, moves, preemptions and ends: 1").click()
    await expect(page.locator(".marks li").filter(has_text="Started on other nodes: 9 sweep")).to_be_visible()
    await page.goto(f"{window.url}/console/node/a?range=1w")
    await page.get_by_text("Starts, moves, preemptions and ends: 2").click()
    await expect(page.locator(".marks li").filter(has_text="Preempted: 9 sweep")).to_be_visible()


async def test_a_job_whose_object_is_gone_keeps_its_curves(window: Window) -> None:
    page = await window.sign_in("red-token", path=f"job/red/{GONE}")
    await shows(page, "Over time")
    text = await chart(page, "GPUs").get_attribute("aria-label") or ""
    assert "Promised: last 1, mean 1, at most 1." in text
    await shows(page, "Whole run")


async def test_another_tenants_job_has_no_curves(window: Window) -> None:
    page = await window.sign_in("red-token", path="job/canaryns/canaryjob")
    await shows(page, "no longer here") if await page.get_by_text("no longer here").count() else None
    await expect(page.get_by_text("Over time")).to_have_count(0)
    assert not [each for each in await window.all_received() if "canaryuser" in each]


async def test_axe_finds_nothing_on_pages_with_curves(browser: Browser, week: Face) -> None:
    async with browsers.window(browser, url=week.url, reduced_motion="reduce") as person:
        page = await person.sign_in("red-token")
        found = dict[str, list[str]]()
        for path in CURVES:
            await page.goto(f"{week.url}/console/{path}")
            await expect(page.get_by_role("img", name=re.compile("last ")).first).to_be_visible()
            if await page.locator(".marks summary").count():
                await page.locator(".marks summary").click()
            found[path] = await violations(page)
        assert {path: each for path, each in found.items() if each} == {}


async def test_no_page_with_curves_scrolls_sideways_on_a_telephone(browser: Browser, week: Face) -> None:
    async with browsers.window(browser, url=week.url) as person:
        page = await person.sign_in("red-token")
        await page.set_viewport_size({"width": 390, "height": 844})
        for path in CURVES:
            await page.goto(f"{week.url}/console/{path}")
            await expect(page.get_by_role("img", name=re.compile("last ")).first).to_be_visible()
            assert await page.evaluate("document.documentElement.scrollWidth") <= 390, path


@pytest.mark.parametrize("width", [1280, 1600, 2560])
async def test_the_charts_of_each_row_fill_it(browser: Browser, week: Face, width: int) -> None:
    async with browsers.window(browser, url=week.url, reduced_motion="reduce") as person:
        page = await person.sign_in("admin-token", path="overview?range=1w")
        await page.set_viewport_size({"width": width, "height": 1200})
        await expect(page.locator(".charts > .chart")).to_have_count(7)
        rows = await page.evaluate(
            """() => {
              const rows = {};
              for (const each of document.querySelectorAll('.charts > .chart')) {
                const { top, right } = each.getBoundingClientRect();
                rows[Math.round(top)] = Math.max(rows[Math.round(top)] ?? 0, Math.round(right));
              }
              return Object.values(rows);
            }"""
        )
        assert len(rows) > 1
        assert max(rows) - min(rows) <= 1


async def test_usage_has_hours_by_group_with_their_cost_and_as_csv(window: Window) -> None:
    page = await window.sign_in("red-token", path="usage?days=30")
    table = page.get_by_role("table", name="GPU hours")
    await expect(table.get_by_role("row", name="red", exact=False).first).to_be_visible()
    await page.get_by_role("link", name="User", exact=True).click()
    await expect(page).to_have_url(re.compile("by=User"))
    await expect(table.get_by_role("row", name="rita", exact=False)).to_be_visible()
    await expect(page.get_by_text("canary")).to_have_count(0)
    async with page.expect_download() as download:
        await page.get_by_role("link", name="CSV").click()
    made = await download.value
    text = await asyncio.to_thread((await made.path()).read_text, encoding="utf-8")
    head, first = text.splitlines()[:2]
    assert (made.suggested_filename, head) == (
        "usage-user.csv",
        "user,gpu_hours,used_hours,cost,currency,unpriced_hours,savable_hours,saved_hours",
    )
    user, hours, used, *_ = first.split(",")
    assert (user, float(hours) > float(used) > 0) == ("rita", True)


async def test_waste_has_the_idle_gpu_hours_that_were_measured(window: Window) -> None:
    page = await window.sign_in("red-token", path="waste")
    table = page.get_by_role("table", name="Idle GPUs, by who holds them")
    for by, name in (("job", "1 train"), ("namespace", "red")):
        await page.get_by_role("combobox", name="By", exact=True).select_option(by)
        hours = table.get_by_role("row", name=name).get_by_role("cell").nth(2)
        await expect(hours).to_have_text(re.compile(r"^[1-9]\d+(\.\d)?$"), timeout=PATIENCE_MS)


async def test_quotas_are_a_tree_of_what_is_used_lent_and_borrowed(browser: Browser, week: Face) -> None:
    assert week.made.cache.quotas, "the fixture has quotas"
    async with browsers.window(browser, url=week.url) as person:
        page = await person.sign_in("admin-token", path="quotas")
        rows = page.get_by_role("table", name="Quotas").locator("tbody tr")
        await expect(rows).to_have_count(3)
        assert [await each.locator(".cell").first.inner_text() for each in await rows.all()] == ["lab", "nlp", "vision"]
        await expect(rows.nth(2)).to_contain_text("12 of 8")
        cells = [await each.inner_text() for each in await rows.nth(2).locator(".cell").all()]
        assert cells[2:6] == ["8", "–", "4", "2"]
        await expect(chart(page, "Promised")).to_have_attribute("aria-label", re.compile("red: last 1"))
