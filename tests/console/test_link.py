"""The link between page and gateway: rights, tabs, an absent gateway, ended sessions."""

import asyncio
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Page, Route, expect

from dovetail_cli import consoles
from dovetail_gateway.access.callers import caller_of
from dovetail_gateway.access.codes import CODE_SECONDS
from dovetail_gateway.access.places import Holder
from dovetail_gateway.access.tokens import token_of
from dovetail_gateway.app import Options
from tests.console import browser as browsers
from tests.console.browser import PATIENCE_MS, Window, shows
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face, serving

pytestmark = pytest.mark.asyncio(loop_scope="session")
CANARY = "canary"


async def test_no_byte_names_another_tenant_and_its_share_is_seen(browser: Browser, face: Face) -> None:
    async with browsers.window(browser, url=face.url) as red, browsers.window(browser, url=face.url) as admin:
        everything = await admin.sign_in("admin-token", path="jobs")
        await shows(everything, "canaryjob")
        page = await red.sign_in("red-token")
        for path in ("jobs?state=all", "submit?gpu=8", "job/red/train", "job/red/next", "job/canaryns/hidden"):
            await page.goto(f"{face.url}/console/{path}")
            await shows(page, "live")
            await page.wait_for_load_state("domcontentloaded")
        assert CANARY not in (await page.content()).replace("canaryns/hidden", "").replace("canaryns", "")
        await page.goto(f"{face.url}/console/jobs")
        await shows(page, "next")
        received = [text.replace("canaryns that you may list", "") for text in await red.all_received()]
        # The words of the page's own question come back as parameters, and in the head of a page that asks for its job.
        received = [
            text.replace('{"job":"hidden","namespace":"canaryns"}', "").replace('"/api/v3/jobs/canaryns/hidden"', "")
            for text in received
        ]
        assert [text for text in received if CANARY in text] == []


def code_of(face: Face, token: str, *, user: str) -> str:
    """A code as `dovetail console` gets one."""
    return face.made.codes.issue(caller_of(token_of(token)), holder=Holder(user=user, address="127.0.0.1"))


async def me(page: Page) -> str:
    """Whose session the browser has."""
    return str(await page.evaluate("fetch('/api/v3/me').then((said) => said.json()).then((who) => who.username)"))


async def test_a_code_from_the_terminal_opens_one_browser_once(browser: Browser, face: Face, window: Window) -> None:
    code = code_of(face, "red-token", user="rita")
    page = await window.enter_code(code.lower(), path="jobs")
    await shows(page, "next")
    assert await me(page) == "rita"
    async with browsers.window(browser, url=face.url) as thief:
        page = await thief.enter_code(code, path="jobs")
        await shows(page, "this code was used already, is too old, or is of another browser")


async def test_a_link_says_whom_it_signs_in_before_it_does(browser: Browser, face: Face, window: Window) -> None:
    code = code_of(face, "red-token", user="rita")
    page = await window.tab("jobs", code=code)
    await shows(page, "Sign in as rita?")
    assert "code" not in page.url
    assert await page.evaluate("fetch('/api/v3/me').then((said) => said.status)") == 401
    async with browsers.window(browser, url=face.url) as thief:
        await shows(await thief.tab("jobs", code=code), "is of another browser")
    await page.get_by_role("button", name="Sign in as rita").click()
    await shows(page, "next")


async def test_a_link_that_is_answered_too_late_says_so_and_leaves_the_session(
    face: Face, window: Window, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await window.sign_in("red-token", path="jobs")
    page = await window.tab("jobs", code=code_of(face, "admin-token", user="admin"))
    await shows(page, "You are signed in as rita. Sign in as admin instead?")
    monkeypatch.setattr(face.made.codes, "_clock", lambda: time.monotonic() + CODE_SECONDS + 1)
    await page.get_by_role("button", name="Sign in as admin").click()
    await shows(page, "this code was used already, is too old")
    await page.get_by_role("button", name="Stay rita").click()
    await shows(page, "next")
    assert await me(own) == "rita"


async def test_a_link_that_is_not_wanted_signs_nobody_in(face: Face, window: Window) -> None:
    page = await window.tab(code=code_of(face, "red-token", user="rita"))
    await page.get_by_role("button", name="Do not sign in").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible(timeout=PATIENCE_MS)
    assert await page.evaluate("fetch('/api/v3/me').then((said) => said.status)") == 401


async def test_the_link_of_another_person_leaves_the_session_that_is_there(face: Face, window: Window) -> None:
    """Login CSRF: what the victim would submit after it were the attacker's to read."""
    own = await window.sign_in("red-token", path="jobs")
    page = await window.tab("jobs", code=code_of(face, "admin-token", user="admin"))
    await shows(page, "You are signed in as rita. Sign in as admin instead?")
    assert (await me(own), await me(page)) == ("rita", "rita")
    await page.get_by_role("button", name="Stay rita").click()
    await shows(page, "next")
    assert await me(page) == "rita"


async def test_a_person_who_wants_it_changes_the_session_in_every_tab(face: Face, window: Window) -> None:
    own = await window.sign_in("red-token", path="jobs")
    page = await window.tab("jobs", code=code_of(face, "admin-token", user="admin"))
    await page.get_by_role("button", name="Sign in as admin").click()
    await shows(page, "canaryjob")
    await shows(own, "canaryjob")
    assert await me(own) == "admin"


async def test_a_link_of_the_same_user_asks_nothing(face: Face, window: Window) -> None:
    await window.sign_in("red-token", path="jobs")
    page = await window.tab("jobs", code=code_of(face, "red-token", user="rita"))
    await shows(page, "next")
    await expect(page.get_by_text("Sign in as")).to_have_count(0)


@pytest.mark.parametrize("kind", ["form", "fetch", "frame"])
async def test_a_page_of_another_site_neither_binds_nor_redeems_a_code(
    face: Face, window: Window, tmp_path: Path, kind: str
) -> None:
    code = code_of(face, "admin-token", user="admin")
    own = await window.sign_in("red-token", path="jobs")
    sends = {
        "form": f"""<form method="post" enctype="text/plain" action="{face.url}/console/session" target="_blank">
          <input name='{{"instead":true,"code":"{code}","token":"' value='"}}'></form>
          <script>document.forms[0].submit()</script>""",
        "fetch": f"""<script>for (const path of ["arrivals", "session"]) fetch("{face.url}/console/" + path, {{
          method: "POST", mode: "no-cors", credentials: "include", body: '{{"code":"{code}"}}'}})</script>""",
        "frame": f"""<iframe src="{face.url}/console/#code={code}"></iframe>""",
    }
    evil = tmp_path / "evil.html"
    evil.write_text(f"<!doctype html><title>evil</title>{sends[kind]}", encoding="utf-8")
    page = await window.context.new_page()
    await page.goto(evil.as_uri())
    await page.wait_for_load_state("networkidle")
    assert await me(own) == "rita"
    # It is bound to no browser.
    assert face.made.codes.bind(code, browser="another") is not None


async def test_the_file_of_the_command_leads_to_the_page_with_the_code(
    face: Face, window: Window, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(consoles.webbrowser, "open", opened.append)
    code = code_of(face, "red-token", user="rita")
    with monkeypatch.context() as changed:
        changed.setenv("XDG_CACHE_HOME", str(tmp_path))
        consoles.show(consoles.Address(url=f"{face.url}/console/", code=code, seconds=120.0), browser=True)
    page = await window.context.new_page()
    await page.goto(opened[0])
    await shows(page, "Sign in as rita?")
    assert page.url == f"{face.url}/console/"
    await page.get_by_role("button", name="Sign in as rita").click()
    await shows(page, "live")
    assert await me(page) == "rita"


async def test_a_wrong_token_and_a_user_without_rights_get_a_sentence(window: Window) -> None:
    page = await window.tab()
    await page.get_by_label("Token").fill("unknown-token")
    await page.get_by_role("button", name="Sign in").click()
    await shows(page, "the API server does not accept the token")
    await page.get_by_label("Token").fill("nobody-token")
    await page.get_by_role("button", name="Sign in").click()
    await shows(page, "You may not see any jobs: you may not list gpujobs.dovetail.dev")


async def test_signing_out_ends_the_session_in_every_tab(window: Window, face: Face) -> None:
    first = await window.sign_in("red-token", path="jobs")
    second = await window.tab("jobs")
    await shows(second, "live")
    await second.get_by_role("button", name="Account of rita").click()
    await second.get_by_role("menuitem", name="Sign out").click()
    await shows(first, "Sign in")
    assert await first.evaluate("fetch('/api/v3/jobs').then((answer) => answer.status)") == 401


async def test_the_data_of_a_page_are_asked_for_once_by_its_head(window: Window) -> None:
    page = await window.sign_in("red-token", path="jobs")
    asked = list[str]()
    page.on("request", lambda request: asked.append(urlsplit(request.url).path))
    await page.goto(f"{window.url}/console/jobs?search=next")
    await expect(page.get_by_role("link", name="next")).to_be_visible()
    assert (asked.count("/api/v3/snapshot"), asked.count("/api/v3/me")) == (1, 1)
    # By its head, and so before the script has asked for anything.
    assert asked.index("/api/v3/snapshot") < asked.index("/console/session")


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("overview", ["/api/v3/findings"]),
        ("plan", ["/api/v3/plan?bounded=true&limit=1000"]),
        ("quotas", ["/api/v3/quotas"]),
        ("usage", ["/api/v3/usage?by=Namespace", "/api/v3/usage?by=Day"]),
        ("waste", ["/api/v3/right-sizes?limit=100"]),
        ("job/red/next", ["/api/v3/jobs/red/next"]),
        ("map?at=2026-11-01T11:00:00Z", ["/api/v3/devices/then?at=2026-11-01T11%3A00%3A00Z"]),
    ],
)
async def test_the_head_of_a_page_asks_once_for_what_that_page_needs(window: Window, path: str, own: list[str]) -> None:
    page = await window.sign_in("red-token", path="settings")
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url.removeprefix(window.url)))
    await page.goto(f"{window.url}/console/{path}")
    await shows(page, "live")
    await page.wait_for_load_state("load")
    assert [asked.count(each) for each in own] == [1] * len(own)
    assert all(asked.index(each) < asked.index("/console/session") for each in own)


async def test_a_job_is_there_before_the_list_of_all(window: Window) -> None:
    page = await window.sign_in("red-token", path="settings")
    may_go_on = asyncio.Event()

    async def late(route: Route) -> None:
        await may_go_on.wait()
        await route.continue_()

    await page.route("**/api/v3/snapshot", late)
    await page.goto(f"{window.url}/console/job/red/next")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("2 next")
    await expect(page.locator("p.sentence")).to_contain_text("Need 16 GPUs, only 14 available")
    may_go_on.set()
    await shows(page, "live")


async def test_seven_tabs_share_one_stream(window: Window, face: Face, api: GatewayApiServer) -> None:
    tabs = [await window.sign_in("red-token", path="jobs")]
    tabs += [await window.tab("jobs") for _ in range(6)]
    for page in tabs:
        await shows(page, "live")
    job = api.objects["gpujobs"]["red/next"]
    job["status"] |= {"message": "Need 16 GPUs, only 5 available", "details": []}
    api.put("gpujobs", job)
    for page in tabs:
        await shows(page, "only 5 available")
    assert face.made.metrics.streams._value.get() == 1
    # The next tab takes over.
    await tabs[0].close()
    job["status"] |= {"message": "Need 16 GPUs, only 6 available", "details": []}
    api.put("gpujobs", job)
    await shows(tabs[6], "only 6 available")


async def test_a_gateway_that_is_away_is_said_within_5_s_and_all_comes_back(
    browser: Browser, api: GatewayApiServer
) -> None:
    async with serving(api, options=Options(rates=None)) as face, browsers.window(browser, url=face.url) as person:
        page = await person.sign_in("red-token", path="jobs?search=next")
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        await person.context.set_offline(True)
        await expect(page.get_by_text("The gateway does not answer.")).to_be_visible(timeout=5_000)
        await expect(page.get_by_role("link", name="next")).to_be_visible()
        job = api.objects["gpujobs"]["red/next"]
        job["status"] |= {"message": "next needs 16 GPUs, only 2 available", "details": []}
        api.put("gpujobs", job)
        await person.context.set_offline(False)
        await shows(page, "only 2 available")
        await expect(page.get_by_text("The gateway does not answer.")).to_have_count(0, timeout=PATIENCE_MS)
        # The stream went on where it was, without another whole list.
        assert [url for url in asked if url.endswith("/snapshot")] == []


async def test_without_a_stream_the_page_polls(window: Window, api: GatewayApiServer) -> None:
    await window.context.route("**/api/v3/stream**", lambda route: route.abort())
    page = await window.sign_in("red-token", path="jobs")
    await shows(page, "The live stream cannot be held")
    job = api.objects["gpujobs"]["red/next"]
    job["status"] |= {"message": "Need 16 GPUs, only 4 available", "details": []}
    api.put("gpujobs", job)
    await shows(page, "only 4 available")
