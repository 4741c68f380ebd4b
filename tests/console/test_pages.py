"""Each page of the console in a real browser, in front of a gateway: what it shows and what its actions do."""

import asyncio
import re

import pytest
from playwright.async_api import Browser, Page, Route, expect

from tests.console import browser as browsers
from tests.console.browser import PATIENCE_MS, Window, shows, submit, violations
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")
PAGES = [
    "overview", "jobs", "submit?gpu=2&env=A%3D1&volume=data%3A%2Fdata", "job/red/train", "job/red/next", "job/red/none",
    "nodes", "node/a", "plan", "map", "map?device=a%3A1", "waste", "usage", "quotas", "settings", "design",
    "nowhere",
]  # fmt: skip
# So many English words in a row are no name.
ENGLISH = re.compile(r"(?:\b[A-Za-z]{2,}\b[ ,]+){2,}[A-Za-z]{2,}")
# What has English words in a row in every language: who writes it has no other one.
IN_ENGLISH = (re.compile(r"^Waits for next$"),)
# Texts and what assistive technology reads; not commands and logs, nor what the API says in English alone and the page
# marks so: what `dovetail doctor` finds, Kubernetes' events, and why no moves help.
SAID = """() => {
  const marked = ':is(.finding, .timeline, .no-moves) [lang="en"]';
  const quoted = `pre, code, kbd, script, style, [role="log"], ${marked}`;
  const said = [];
  const add = (element, text) => { if (!element.closest(quoted)) said.push(text.trim()); };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) add(walker.currentNode.parentElement, walker.currentNode.data);
  for (const name of ['title', 'aria-label', 'placeholder', 'alt'])
    for (const element of document.querySelectorAll(`[${name}]`)) add(element, element.getAttribute(name));
  return said;
}"""
# Each action on the job that waits, and what its dialog says of its effects.
EFFECTS = {
    "Hold": "Depend on it, and wait until it is released",
    "Cancel": "Would be cancelled too",
    "Change priority": "Waits, at position",
}


async def test_the_overview_shows_my_jobs_the_reasons_what_is_free_and_what_starts_now(window: Window) -> None:
    page = await window.sign_in("red-token")
    await shows(page, "Need 16 GPUs, only 14 available")
    await expect(page.get_by_role("link", name="Resources")).to_have_attribute("href", "/console/jobs?reason=Resources")
    await shows(page, "8(V100): b")
    assert "14 of 16" in await page.get_by_role("row", name="V100").inner_text()
    assert await page.title() == "(2) Overview · Dovetail"


async def test_the_queue_filters_searches_and_keeps_both_in_its_address(window: Window) -> None:
    page = await window.sign_in("red-token", path="jobs")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(3)
    await page.get_by_label("Search jobs").fill("waits for")
    await expect(rows).to_have_count(1)
    assert page.url.endswith("/console/jobs?search=waits+for")
    again = await window.tab("jobs?user=rita&state=Running")
    await expect(again.locator("tbody tr")).to_have_count(1)
    await again.get_by_text("As command").click()
    await shows(again, "gqueue -u rita -s R")


async def test_a_job_says_why_it_waits_on_each_node_and_what_would_change_it(window: Window) -> None:
    page = await window.sign_in("red-token", path="job/red/next")
    await shows(page, "Need 16 GPUs, only 14 available")
    await page.get_by_text("DevicesBusy").click()
    await expect(page.get_by_role("cell", name="a", exact=True)).to_be_visible()
    await expect(page.locator(".lever").filter(has_text="Ask for 4")).to_contain_text("starts now on")
    await expect(page.get_by_text("a day", exact=False)).to_have_count(0)


async def test_cancelling_names_what_depends_on_the_job_and_cancels_it(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="job/red/next")
    await page.get_by_role("button", name="Cancel").click()
    await shows(page, "Would be cancelled too")
    await expect(page.get_by_role("dialog").get_by_role("listitem").first).to_have_text("3 after: depends on next")
    await expect(page.get_by_role("dialog").locator("pre")).to_have_text("gcancel 2 --namespace red")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()
    await shows(page, "Cancelled: 2 next")
    assert api.objects["gpujobs"]["red/next"]["spec"]["cancel"] is True


async def test_hold_and_priority_change_the_job(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="job/red/next")
    await page.get_by_role("button", name="Hold").click()
    await shows(page, "Depend on it, and wait until it is released")
    await page.get_by_role("dialog").get_by_role("button", name="Hold the job").click()
    await shows(page, "Held: 2 next")
    await page.get_by_role("button", name="Change priority").click()
    await page.get_by_role("dialog").get_by_label("Priority").fill("300")
    await page.get_by_role("button", name="Apply").click()
    await shows(page, 'Priority "300": allowed are whole numbers from 0 to 255')
    await page.get_by_role("dialog").get_by_label("Priority").fill("200")
    await shows(page, "A dry run of the queue as it is now")
    await page.get_by_role("button", name="Apply").click()
    await shows(page, "Priority changed: 2 next")
    spec = api.objects["gpujobs"]["red/next"]["spec"]
    assert (spec["suspend"], spec["priority"]) == (True, 200)


async def test_a_refused_action_shows_the_api_servers_sentence(window: Window) -> None:
    page = await window.sign_in("reader-token", path="job/red/next")
    await page.get_by_role("button", name="Hold").click()
    await page.get_by_role("dialog").get_by_role("button", name="Hold the job").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("patch")


async def test_submit_judges_while_typing_and_sends_what_it_shows(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="submit")
    await page.get_by_label("GPUs for each worker").fill("64")
    await shows(page, "Can never start here.")
    await page.get_by_label("GPUs for each worker").fill("2(V100)")
    await shows(page, "Waits, at position")
    # Short enough for the gap before the job that waits.
    await page.get_by_label("Time limit").fill("30m")
    await shows(page, "Starts now on")
    await page.get_by_label("Name", exact=True).fill("asked")
    await page.get_by_label("Image").fill("busybox")
    await page.get_by_label("Command", exact=True).fill("sleep 5")
    await page.get_by_role("button", name="Add a variable").click()
    await page.get_by_label("Name of variable 1").fill("LR")
    await page.get_by_label("Value of variable 1").fill("a=b")
    await page.get_by_role("button", name="Add a volume").click()
    await page.get_by_label("Claim of volume 1").fill("data")
    await page.get_by_label("Path of volume 1").fill("/data")
    await page.get_by_label("read only").check()
    await page.get_by_label("Array", exact=True).fill("0-3%2")
    await page.get_by_role("combobox", name="Start after").fill("tra")
    await page.get_by_role("option", name="train").click()
    await page.get_by_role("link", name="As command").click()
    await shows(
        page,
        "gbatch -g '2(V100)' -J asked -t 30 --array 0-3%2 -d train --image busybox --env LR=a=b --volume data:/data:ro "
        "--namespace red 'sleep 5'",
    )
    await page.get_by_role("button", name="Submit job").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("asked")
    spec = api.objects["gpujobs"]["red/asked"]["spec"]
    assert (spec["gpu"], spec["activeDeadlineSeconds"]) == ("2(V100)", 1800)
    assert (spec["array"], spec["dependencies"]) == (
        {"indexes": "0-3", "parallelism": 2},
        [{"name": "train", "condition": "Succeeded"}],
    )
    pod = spec["template"]["spec"]
    assert pod["volumes"] == [{"name": "volume-0", "persistentVolumeClaim": {"claimName": "data"}}]
    assert pod["containers"][0] | {"name": ""} == {
        "name": "",
        "image": "busybox",
        "command": ["sh", "-c", "sleep 5"],
        "env": [{"name": "LR", "value": "a=b"}],
        "volumeMounts": [{"name": "volume-0", "mountPath": "/data", "readOnly": True}],
    }


async def test_submit_shows_an_error_only_after_its_field_was_left(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="submit")
    await shows(page, "Type how many GPUs each worker needs.")
    problems = page.get_by_role("main").locator(".problem:visible")
    await page.get_by_label("GPUs for each worker").fill("2(V")
    await shows(page, "Not a whole request yet")
    await page.get_by_label("Time limit").fill("soon")
    await expect(problems).to_have_count(0)
    await page.get_by_label("Priority").focus()
    await expect(problems).to_have_text(['time limit "soon": write a number and s, m, h or d, such as 30m'])
    before = set(api.objects["gpujobs"])
    await page.get_by_role("button", name="Submit job").click()
    await shows(page, "Name the container image that has your program.")
    await expect(page.get_by_label("Image", exact=True)).to_be_focused()
    assert set(api.objects["gpujobs"]) == before


async def test_the_largest_request_that_cannot_be_asked_for_says_why(window: Window) -> None:
    await window.context.route(
        "**/api/v3/dry-run",
        lambda route: route.fulfill(status=503, content_type="application/problem+json", body='{"detail": "Not yet"}'),
    )
    page = await window.sign_in("red-token", path="overview")
    await shows(page, "Not yet")


async def test_a_clone_keeps_the_template(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="job/red/train")
    await page.get_by_role("link", name="Clone").click()
    await shows(page, "Waits, at position")
    await submit(page, name="again")
    assert (
        api.objects["gpujobs"]["red/again"]["spec"]["template"]
        == api.objects["gpujobs"]["red/train"]["spec"]["template"]
    )


async def test_a_clone_is_not_submitted_before_the_job_is_known(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="jobs")
    known = asyncio.Event()

    async def answer_late(route: Route) -> None:
        await known.wait()
        await route.continue_()

    await page.route("**/api/v3/jobs/red/next", answer_late)
    await page.goto(f"{window.url}/console/submit?from=red/next&namespace=red&gpu=4(V100)")
    for label, text in (("Name", "again"), ("Image", "busybox"), ("Command", "true")):
        await page.get_by_label(label, exact=True).fill(text)
    button = page.get_by_role("button", name="Submit job")
    await expect(button).to_be_disabled()
    await page.get_by_label("Name", exact=True).press("Enter")
    await expect(page.get_by_role("region", name="What is sent")).to_have_count(0)
    assert "red/again" not in api.objects["gpujobs"]
    known.set()
    await submit(page, name="again")
    made = api.objects["gpujobs"]["red/again"]["spec"]
    assert (made["gpu"], made["workers"]) == ("4(V100)", 2)


@pytest.mark.parametrize(
    ("job", "why"),
    [("red/gone", "there is no GPUJob gone in namespace red that you may list")]
    + [(odd, "a job is written NAMESPACE/NAME") for odd in ("gone", "red/train/x", "/", "red/")],
)
async def test_what_is_no_job_cannot_be_cloned_and_an_empty_form_is_offered(
    window: Window, api: GatewayApiServer, job: str, why: str
) -> None:
    page = await window.sign_in(
        "red-token", path=f"submit?from={job}&namespace=red&gpu=1(V100)&image=busybox&command=true"
    )
    await shows(page, f"{job} cannot be read, so this form cannot copy it: {why}")
    await expect(page.get_by_role("button", name="Submit job")).to_be_disabled()
    await page.get_by_role("link", name="Use an empty form").click()
    await submit(page, name="own")
    assert "red/own" in api.objects["gpujobs"]


async def test_the_log_of_all_workers_is_followed_searched_and_downloaded(
    window: Window, api: GatewayApiServer
) -> None:
    page = await window.sign_in("red-token", path="job/red/train")
    log = page.get_by_role("log")
    await expect(log).to_contain_text("0│ lines of train-0")
    api.log_ends.set()
    await expect(log).to_contain_text("0│ the last line")
    await page.get_by_label("Only lines with").fill("LAST")
    await expect(log).to_have_text("0│ the last line")
    assert page.url.endswith("/job/red/train?find=LAST")
    async with page.expect_download() as download:
        await page.get_by_role("link", name="Download").click()
    assert (await download.value).suggested_filename == "red-train.log"


async def test_a_log_that_cannot_be_read_says_why(window: Window, api: GatewayApiServer) -> None:
    api.log_refusal = (400, "container is waiting to start")
    page = await window.sign_in("red-token", path="job/red/train")
    await expect(page.get_by_role("log")).to_contain_text("container is waiting to start")


async def test_changes_come_without_a_reload(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("red-token", path="jobs")
    job = api.objects["gpujobs"]["red/next"]
    job["status"] |= {"message": "Need 16 GPUs, only 3 available", "details": []}
    api.put("gpujobs", job)
    await shows(page, "only 3 available")


async def test_a_job_that_changes_while_its_details_are_read_shows_the_last_of_them(
    window: Window, api: GatewayApiServer
) -> None:
    page = await window.sign_in("red-token", path="job/red/next")
    await shows(page, "As YAML")
    left = [(30, "The second change"), (40, "The third change")]

    def change(priority: int, message: str) -> None:
        job = api.objects["gpujobs"]["red/next"]
        job["spec"]["priority"] = priority
        job["status"] |= {"message": message, "details": []}
        api.put("gpujobs", job)

    async def answer_late(route: Route) -> None:
        # The browser itself would add this header.
        answer = await route.fetch(headers={**route.request.headers, "sec-fetch-site": "same-origin"})
        if left:
            change(*left[0])
            await shows(page, left.pop(0)[1])
        await route.fulfill(response=answer)

    await page.route("**/api/v3/jobs/red/next", answer_late)
    change(20, "The first change")
    await expect(page.locator("pre", has_text="kind: GPUJob")).to_contain_text("priority: 40", timeout=PATIENCE_MS)


@pytest.mark.parametrize("failure", ["refused", "unreachable"])
async def test_details_whose_answer_failed_are_read_again(window: Window, failure: str) -> None:
    failed: list[str] = []

    async def fail_at_first(route: Route) -> None:
        if failed:
            await route.continue_()
            return
        # The list is known by then, so it does not ask again.
        await expect(route.request.frame.get_by_role("heading", name="next")).to_be_visible()
        failed.append(failure)
        if failure == "unreachable":
            await route.abort()
        else:
            await route.fulfill(status=503, content_type="application/problem+json", body='{"detail": "Not yet"}')

    await window.context.route("**/api/v3/jobs/red/next", fail_at_first)
    page = await window.sign_in("red-token", path="job/red/next")
    await expect(page.locator("pre", has_text="kind: GPUJob")).to_have_count(1, timeout=PATIENCE_MS)
    assert failed


async def test_plan_map_waste_and_settings_show_whose_the_devices_are(window: Window) -> None:
    page = await window.sign_in("red-token", path="plan?hours=24")
    await expect(page.get_by_role("row", name="1 train")).to_contain_text("no limit")
    await expect(page.get_by_role("row", name="2 next")).to_contain_text("2 × 8")
    await page.get_by_role("link", name="Map").click()
    await page.get_by_role("button", name="a:1: In use").click()
    await shows(page, "another tenant: 1")
    assert page.url.endswith("/console/map?device=a%3A1")
    await page.keyboard.press("Escape")
    await page.get_by_role("link", name="Waste").click()
    await expect(page.get_by_role("row", name="1 train")).to_contain_text("0 %")
    await page.get_by_role("link", name="Settings", exact=True).click()
    await shows(page, "rita")
    await expect(page.get_by_role("listitem").filter(has_text="red")).to_be_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_axe_finds_a_contrast_that_one_theme_alone_lacks(window: Window, theme: str) -> None:
    page = await window.tab()
    await shows(page, "Sign in")
    ground = "light-dark(#eee, #000)" if theme == "light" else "light-dark(#000, #eee)"
    await page.get_by_role("button", name="Sign in").evaluate(
        "(button, ground) => { button.style.color = '#fff'; button.style.background = ground; }", ground
    )
    (found,) = await violations(page)
    assert found.startswith("dark: color-contrast" if theme == "dark" else "color-contrast")


async def test_axe_finds_nothing_on_any_page(browser: Browser, face: Face) -> None:
    async with browsers.window(browser, url=face.url, reduced_motion="reduce") as person:
        page = await person.tab()
        await shows(page, "Sign in")
        assert await violations(page) == []
        await page.close()
        page = await person.sign_in("red-token")
        found = dict[str, list[str]]()
        for path in PAGES:
            await page.goto(f"{face.url}/console/{path}")
            await shows(page, "live")
            await _settled(page)
            found[path] = await violations(page)
        assert {path: each for path, each in found.items() if each} == {}


async def test_axe_finds_nothing_in_the_dialogs_of_actions(browser: Browser, face: Face) -> None:
    async with browsers.window(browser, url=face.url, reduced_motion="reduce") as person:
        page = await person.sign_in("red-token", path="job/red/next")
        for action, effect in EFFECTS.items():
            await page.get_by_role("button", name=action, exact=True).click()
            dialog = page.get_by_role("dialog")
            if action == "Change priority":
                await dialog.get_by_label("Priority").fill("200")
            await expect(dialog.locator(".verdict")).to_contain_text(effect)
            await _settled(page)
            await dialog.get_by_text("As command").click()
            assert await violations(page) == [], action
            await page.keyboard.press("Escape")
            await expect(dialog).to_have_count(0)


async def test_the_whole_console_speaks_chinese(window: Window) -> None:
    page = await window.sign_in("red-token", path="settings")
    await page.get_by_label("Language").select_option("zh")
    await page.goto(f"{window.url}/console/jobs")
    await shows(page, "作业")
    await shows(page, "需要 16 个 GPU，仅 14 个可用")
    # A message with a clause that is not translated.
    await shows(page, "Waits for next")
    await expect(page.locator("html")).to_have_attribute("lang", "zh-Hans")
    await page.goto(f"{window.url}/console/job/red/next")
    await shows(page, "：届时 a 上已有 1 个作业结束，前提是它们用去时限的比例与同类作业相同")


async def test_no_page_has_an_english_sentence_in_chinese(browser: Browser, face: Face) -> None:
    async with browsers.window(browser, url=face.url, language="zh-CN", reduced_motion="reduce") as person:
        page = await person.tab()
        await page.get_by_label("令牌").fill("admin-token")
        await page.get_by_role("button", name="登录").last.click()
        await shows(page, "实时")
        found = dict[str, list[str]]()
        # The sheet of parts has samples of texts.
        for path in [*(each for each in PAGES if each != "design"), "job/canaryns/canaryjob", "plan?moves=red%2Fnext"]:
            await page.goto(f"{face.url}/console/{path}")
            await shows(page, "实时")
            await expect(page.locator(".skeleton")).to_have_count(0)
            await expect(page.get_by_text("计算中……")).to_have_count(0)
            await page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            said = [each for each in await page.evaluate(SAID) if ENGLISH.search(each)]
            found[path] = [each for each in said if not any(known.search(each) for known in IN_ENGLISH)]
        assert not {path: each for path, each in found.items() if each}, "\n".join(
            f"{path}: {text}" for path, each in found.items() for text in each
        )


async def test_the_language_is_the_browsers_until_a_person_chooses_one(browser: Browser, face: Face) -> None:
    stored = "localStorage.getItem('dovetail-language')"
    async with browsers.window(browser, url=face.url) as person:
        page = await person.sign_in("red-token", path="settings")
        assert await page.evaluate(stored) is None
        await page.get_by_label("Language").select_option("zh")
        assert await page.evaluate(stored) == "zh"
        await page.get_by_label("语言").select_option("en")
        assert await page.evaluate(stored) == "en"


async def test_the_keyboard_alone_reaches_a_job(window: Window) -> None:
    page = await window.sign_in("red-token", path="jobs?search=next")
    await page.get_by_label("Search jobs").focus()
    for _ in range(30):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.textContent") == "next":
            break
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("2 next")


async def _settled(page: Page) -> None:
    """Wait until no part of the page is still loading."""
    await expect(page.get_by_text("asking the scheduler …")).to_have_count(0)
    await expect(page.get_by_text("Computing …")).to_have_count(0)
