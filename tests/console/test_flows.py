"""What people do over several pages, with the mouse, the keyboard and on a telephone, in a real browser."""

from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.console import browser as browsers
from tests.console.browser import Window, shows
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_job
from tests.gateway.served import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")
PHONE = {"width": 390, "height": 844}
PAGES = [
    "overview", "jobs", "jobs?state=all&jobs=1", "submit?gpu=2&env=A%3D1&volume=data%3A%2Fdata", "job/red/train",
    "job/red/next", "job/red/none", "nodes", "node/a", "plan", "map", "waste", "usage", "quotas", "settings", "design",
    "nowhere",
]  # fmt: skip


async def test_chosen_jobs_are_held_and_cancelled_together(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="jobs")
    await page.get_by_label("Select all unfinished jobs shown").check()
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await expect(page.get_by_role("dialog").locator(".verdict")).to_contain_text(
        "1 train alone: 2 jobs would start sooner"
    )
    await page.get_by_role("dialog").get_by_role("button", name="Keep them").click()
    assert not any(each["spec"].get("cancel") for each in api.objects["gpujobs"].values())
    await page.get_by_label("Select all unfinished jobs shown").uncheck()
    await page.get_by_label("Select 2 next").check()
    await page.get_by_label("Select 3 after").check()
    bar = page.get_by_role("group", name="2 selected")
    await bar.get_by_role("button", name="Hold").click()
    await page.get_by_role("dialog").get_by_role("button", name="Hold 2 jobs").click()
    await shows(page, "Held: 2 jobs")
    await expect(bar).to_have_count(0)
    await page.get_by_label("Select all unfinished jobs shown").check()
    await page.get_by_role("button", name="Cancel", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Cancel 3 jobs").click()
    await shows(page, "Cancelled: 3 jobs")
    changed = {key: (each["spec"].get("suspend"), each["spec"].get("cancel")) for key, each in _red(api)}
    assert changed == {"red/train": (None, True), "red/next": (True, True), "red/after": (True, True)}


async def test_what_is_refused_for_some_of_them_is_said(window: Window) -> None:
    page = await window.sign_in("reader-token", path="jobs")
    await page.get_by_label("Select 2 next").check()
    await page.get_by_role("button", name="Hold", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Hold 1 jobs").click()
    await shows(page, "1 failed: ")


async def test_the_dialog_of_a_cancellation_can_be_left_without_one(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="job/red/next")
    await page.get_by_role("button", name="Cancel", exact=True).click()
    dialog = page.get_by_role("dialog", name="Cancel 2 next?")
    # The focus is in the dialog, and Enter presses nothing.
    await page.keyboard.press("Enter")
    await expect(dialog).to_be_visible()
    await dialog.get_by_role("button", name="Keep it").click()
    await expect(dialog).to_have_count(0)
    await expect(page.get_by_role("button", name="Cancel", exact=True)).to_be_focused()
    assert "cancel" not in api.objects["gpujobs"]["red/next"]["spec"]


async def test_the_palette_finds_a_job_a_node_and_a_page_with_the_keyboard(window: Window) -> None:
    page = await window.sign_in("red-token")
    for typed, heading in (("nex", "2 next"), ("waste", "Waste")):
        await page.keyboard.press("Control+k")
        await page.get_by_role("combobox", name="Go to or do").fill(typed)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_contain_text(heading)
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Go to or do").fill("b")
    await page.get_by_role("option", name="b Node").click()
    assert page.url.endswith("/console/node/b")
    await page.keyboard.press("Control+k")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_shortcuts_open_pages_and_the_search_and_never_while_one_types(window: Window) -> None:
    page = await window.sign_in("red-token")
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    await page.keyboard.press("/")
    await expect(page.get_by_label("Search jobs")).to_be_focused()
    await page.keyboard.type("gn?c")
    assert page.url.endswith("/console/jobs?search=gn%3Fc")
    await page.get_by_role("heading", level=1).click()
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.keyboard.press("c")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Submit")


async def test_a_failed_job_shows_its_log_and_each_event_once_in_order(window: Window, api: GatewayApiServer) -> None:
    status = {"phase": "Failed", "number": 8, "gpus": 1, "request": "1", "nodes": ["a"], "message": "exit code 3"}
    status |= {"startTime": "2026-11-01T00:00:10Z", "completionTime": "2026-11-01T00:01:10Z"}
    job = make_job("broken", namespace="red", number=8, user="rita", status=status)
    job["metadata"]["creationTimestamp"] = "2026-11-01T00:00:00Z"
    api.put("gpujobs", job)
    page = await window.sign_in("red-token", path="job/red/broken")
    await expect(page.get_by_role("log")).not_to_be_empty()
    assert await page.title() == "Failed: 8 broken · Dovetail"
    said = await page.get_by_role("list", name="Timeline").locator("strong").all_inner_texts()
    assert [each for each in said if each in {"Submitted", "Started", "Failed"}] == ["Submitted", "Started", "Failed"]


async def test_a_job_and_a_node_that_are_not_there_have_a_way_back(window: Window) -> None:
    page = await window.sign_in("red-token", path="job/red/gone")
    await shows(page, "No such job")
    await page.get_by_role("link", name="To all jobs").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Jobs")
    await page.goto(f"{window.url}/console/node/none")
    await page.get_by_role("link", name="To all nodes").click()
    await page.get_by_role("link", name="a", exact=True).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("a")
    await expect(page.get_by_role("table", name="Jobs on this node")).to_contain_text("1 train")


async def test_no_page_scrolls_sideways_on_a_telephone(browser: Browser, face: Face) -> None:
    async with browsers.window(browser, url=face.url, reduced_motion="reduce") as person:
        page = await person.sign_in("red-token")
        await page.set_viewport_size(PHONE)  # type: ignore[arg-type] - a dict with these keys
        wide = dict[str, int]()
        for path in PAGES:
            await page.goto(f"{face.url}/console/{path}")
            await shows(page, "live")
            await expect(page.get_by_role("heading", level=1)).to_be_visible()
            wide[path] = await page.evaluate("document.documentElement.scrollWidth")
        assert wide == dict.fromkeys(PAGES, PHONE["width"])
        await _opens_the_rest(page)


async def _opens_the_rest(page: Page) -> None:
    """The bar at the bottom has the main pages, and a menu with the others."""
    await page.get_by_role("button", name="More").click()
    offered = await page.get_by_role("menuitem").all_inner_texts()
    assert offered == ["Map", "Plan", "Quotas", "Usage", "Waste", "Settings"]
    await page.get_by_role("menuitem", name="Plan").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Plan")


def _red(api: GatewayApiServer) -> list[tuple[str, dict[str, Any]]]:
    return [(key, each) for key, each in api.objects["gpujobs"].items() if key.startswith("red/")]
