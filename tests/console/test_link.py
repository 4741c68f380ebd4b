"""The link between page and gateway: rights, tabs, an absent gateway, ended sessions."""

import pytest
from playwright.async_api import Browser, expect

from dovetail_gateway.access.callers import caller_of
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
        everything = await admin.sign_in("admin-token", path="queue")
        await shows(everything, "canaryjob")
        page = await red.sign_in("red-token")
        for path in ("queue?state=all", "ask?gpu=8", "job/red/train", "job/red/next", "job/canaryns/hidden"):
            await page.goto(f"{face.url}/console/{path}")
            await shows(page, "live")
            await page.wait_for_load_state("domcontentloaded")
        assert CANARY not in (await page.content()).replace("canaryns/hidden", "").replace("canaryns", "")
        await page.goto(f"{face.url}/console/queue")
        await shows(page, "next")
        asked = "canaryns that you may list"
        assert [text for text in await red.all_received() if CANARY in text.replace(asked, "")] == []


async def test_a_ticket_opens_one_browser_once(browser: Browser, face: Face, window: Window) -> None:
    ticket = face.made.sessions.issue_ticket(caller_of(token_of("red-token")))
    page = await window.tab("queue", ticket=ticket)
    await shows(page, "next")
    assert "ticket" not in page.url
    async with browsers.window(browser, url=face.url) as thief:
        await shows(await thief.tab("queue", ticket=ticket), "this link was used already")


async def test_a_wrong_token_and_a_user_without_rights_get_a_sentence(window: Window) -> None:
    page = await window.tab()
    await page.get_by_label("Token").fill("unknown-token")
    await page.get_by_role("button", name="Sign in").click()
    await shows(page, "the API server does not accept the token")
    await page.get_by_label("Token").fill("nobody-token")
    await page.get_by_role("button", name="Sign in").click()
    await shows(page, "You may not see any jobs: you may not list gpujobs.dovetail.dev")


async def test_signing_out_ends_the_session_in_every_tab(window: Window, face: Face) -> None:
    first = await window.sign_in("red-token", path="queue")
    second = await window.tab("queue")
    await shows(second, "live")
    await second.get_by_role("button", name="Sign out").click()
    await shows(first, "Sign in")
    assert await first.evaluate("fetch('/api/v3/jobs').then((answer) => answer.status)") == 401


async def test_seven_tabs_share_one_stream(window: Window, face: Face, api: GatewayApiServer) -> None:
    tabs = [await window.sign_in("red-token", path="queue")]
    tabs += [await window.tab("queue") for _ in range(6)]
    for page in tabs:
        await shows(page, "live")
    job = api.objects["gpujobs"]["red/next"]
    job["status"]["message"] = "Need 16 GPUs, only 5 available"
    api.put("gpujobs", job)
    for page in tabs:
        await shows(page, "only 5 available")
    assert face.made.metrics.streams._value.get() == 1
    # The next tab takes over.
    await tabs[0].close()
    job["status"]["message"] = "Need 16 GPUs, only 6 available"
    api.put("gpujobs", job)
    await shows(tabs[6], "only 6 available")


async def test_a_gateway_that_is_away_is_said_within_5_s_and_all_comes_back(
    browser: Browser, api: GatewayApiServer
) -> None:
    async with serving(api, options=Options(rates=None)) as face, browsers.window(browser, url=face.url) as person:
        page = await person.sign_in("red-token", path="queue?search=next")
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        await person.context.set_offline(True)
        await expect(page.get_by_text("The gateway does not answer.")).to_be_visible(timeout=5_000)
        await expect(page.get_by_role("link", name="next")).to_be_visible()
        job = api.objects["gpujobs"]["red/next"]
        job["status"]["message"] = "next needs 16 GPUs, only 2 available"
        api.put("gpujobs", job)
        await person.context.set_offline(False)
        await shows(page, "only 2 available")
        await expect(page.get_by_text("The gateway does not answer.")).to_have_count(0, timeout=PATIENCE_MS)
        # The stream went on where it was, without another whole list.
        assert [url for url in asked if url.endswith("/snapshot")] == []


async def test_without_a_stream_the_page_polls(window: Window, api: GatewayApiServer) -> None:
    await window.context.route("**/api/v3/stream**", lambda route: route.abort())
    page = await window.sign_in("red-token", path="queue")
    await shows(page, "The live stream cannot be held")
    job = api.objects["gpujobs"]["red/next"]
    job["status"]["message"] = "Need 16 GPUs, only 4 available"
    api.put("gpujobs", job)
    await shows(page, "only 4 available")
