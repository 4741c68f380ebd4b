"""A real browser in front of a gateway: what it showed, what it complained about, and every byte that it got."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, Response, async_playwright, expect

from dovetail_gateway.console import build

CHROMIUM: Final = shutil.which("chromium")
PATIENCE_MS: Final = 20_000
# The rules of axe-core that judge colors.
_OF_COLORS: Final = ("color-contrast", "link-in-text-block")
# What the console itself answers for: not the browser's own line about an answer that is an error.
_OF_ANSWERS: Final = ("Failed to load resource", "net::ERR_")


@dataclass
class Window:
    """One person's browser: tabs that share a session."""

    context: BrowserContext
    url: str
    problems: list[str] = field(default_factory=list)
    received: list[str] = field(default_factory=list)
    reading: list[asyncio.Future[None]] = field(default_factory=list)

    async def tab(self, path: str = "", *, code: str = "") -> Page:
        """A new tab on a page of the console, by a link with this code if there is one."""
        page = await self.context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(f"{error}"))
        page.on("response", lambda response: self.reading.append(asyncio.ensure_future(self._got(response))))
        devtools = await self.context.new_cdp_session(page)
        devtools.on("Network.eventSourceMessageReceived", lambda event: self.received.append(event["data"]))
        await devtools.send("Network.enable")
        await page.goto(f"{self.url}/console/{path}" + (f"#code={code}" if code else ""))
        return page

    async def sign_in(self, token: str, *, path: str = "") -> Page:
        """A tab that is signed in by a pasted token."""
        page = await self.tab(path)
        await page.get_by_label("Token").fill(token)
        await page.get_by_role("button", name="Sign in").click()
        await shows(page, "live")
        return page

    async def enter_code(self, code: str, *, path: str = "") -> Page:
        """A tab in which the code of a terminal is typed."""
        page = await self.tab(path)
        await page.get_by_label("Code", exact=False).fill(code)
        await page.get_by_role("button", name="Continue").click()
        return page

    async def all_received(self) -> list[str]:
        """Every text that the browser got. Of a page that was left, some answers never end."""
        await asyncio.wait(self.reading, timeout=PATIENCE_MS / 1000)
        return self.received

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and not any(each in message.text for each in _OF_ANSWERS):
            self.problems.append(message.text)

    async def _got(self, response: Response) -> None:
        endless = "/stream" in response.url or "/logs" in response.url
        if not endless and response.request.resource_type in {"fetch", "xhr", "document"}:
            try:
                self.received.append(await response.text())
            except Exception as error:  # noqa: BLE001 - the tab may be closed meanwhile
                self.received.append(f"{type(error).__name__}")


async def shows(page: Page, text: str) -> None:
    """Wait until the text is to be seen."""
    await expect(page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS)


async def submit(page: Page, *, name: str, image: str = "", command: str = "") -> None:
    """Submit the request of the page Submit, and wait for the job's page."""
    for label, text in (("Name", name), ("Image", image), ("Command", command)):
        if text:
            await page.get_by_label(label, exact=True).fill(text)
    await page.get_by_role("button", name="Submit job").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text(name, timeout=PATIENCE_MS)


async def until(holds: Callable[[], bool], *, seconds: float = 3 * PATIENCE_MS / 1000) -> None:
    """Wait until something outside the browser holds; it may block."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 - another process changes it
            await asyncio.sleep(0.1)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Debian's Chromium, without its sandbox, which a container does not have."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def window(browser: Browser, *, url: str, language: str = "en-GB", **options: Any) -> AsyncIterator[Window]:
    """A person's browser; at the end it must have complained about nothing."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, locale=language, **options)
    made = Window(context, url)
    try:
        yield made
    finally:
        await context.close()
        # Answers of closed tabs have no text any more.
        for reading in made.reading:
            reading.cancel()
        await asyncio.gather(*made.reading, return_exceptions=True)
    assert not made.problems, made.problems


def axe() -> str:
    """The source of axe-core, of the version in the console's lockfile."""
    return (Path(build.packages()) / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


async def violations(page: Page) -> list[str]:
    """What axe-core finds on the page, a line for each element: of the light page all, of the dark one its colors."""
    # Run by the browser's debugger: the page's own policy lets no such script in.
    await page.evaluate(axe())
    # A color that is still changing is none of the page's.
    await page.emulate_media(color_scheme="light", reduced_motion="reduce")
    light = await _found_by_axe(page)
    await page.emulate_media(color_scheme="dark")
    dark = await _found_by_axe(page, runOnly=list(_OF_COLORS))
    await page.emulate_media(color_scheme="light")
    return [*light, *(f"dark: {each}" for each in dark)]


async def _found_by_axe(page: Page, **options: list[str]) -> list[str]:
    found = await page.evaluate("options => axe.run(document, {resultTypes: ['violations'], ...options})", options)
    return [f"{each['id']}: {node['html']}" for each in found["violations"] for node in each["nodes"]]
