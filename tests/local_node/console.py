"""A newcomer's way from what a command printed to the sentence why a job waits, in the browser."""

import re

from playwright.async_api import expect

from tests.console import browser as browsers
from tests.console.browser import PATIENCE_MS, shows


async def sentence_of_first_waiting(printed: str) -> str:
    """What the page of the first waiting job says, opened with the printed address and code; which works only once."""
    found = re.search(r"Console: (http://127\.0\.0\.1:\d+)/console/\nCode: +(\S+)\s*$", printed)
    assert found, printed
    url, code = found.groups()
    async with browsers.chromium() as browser:
        async with browsers.window(browser, url=url) as newcomer:
            page = await newcomer.enter_code(code)
            section = page.locator("section").filter(has=page.get_by_role("heading", name="Starts next"))
            await section.get_by_role("list").get_by_role("link").first.click()
            await expect(page.get_by_role("heading", level=1)).to_contain_text("Queued", timeout=PATIENCE_MS)
            sentence = await page.locator("p.sentence").inner_text()
            # Jobs of the commands are this person's own.
            await page.goto(f"{url}/console/jobs?state=all")
            await page.get_by_role("button", name="Mine").click()
            await expect(page.locator("tbody tr td").first).to_be_visible(timeout=PATIENCE_MS)
        async with browsers.window(browser, url=url) as late:
            await shows(await late.enter_code(code), "this code was used already")
    assert sentence
    return sentence
