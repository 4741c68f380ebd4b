"""What a tab keeps in memory while jobs change."""

import pytest

from tests.console.browser import Window, shows
from tests.gateway.api_server import GatewayApiServer

pytestmark = pytest.mark.asyncio(loop_scope="session")
# Notes each job's row that a tab reads, without keeping it in memory.
NOTE_ROWS = """(() => {
  const parse = JSON.parse;
  window.rows = [];
  JSON.parse = (...given) => {
    const value = parse(...given);
    for (const row of value?.jobs ?? []) window.rows.push(new WeakRef(row));
    return value;
  };
})()"""
ROUNDS = 8


async def test_rows_that_were_replaced_are_freed(window: Window, api: GatewayApiServer) -> None:
    await window.context.add_init_script(NOTE_ROWS)
    # Rows show ages: without time passing, a row is drawn only when its job changes.
    await window.context.add_init_script("const noon = Date.now(); Date.now = () => noon;")
    page = await window.sign_in("red-token", path="jobs")
    # In turns: while one row stays as it was drawn, the other one is drawn again.
    for turn in range(ROUNDS):
        for name in ("next", "after"):
            job = api.objects["gpujobs"][f"red/{name}"]
            job["status"] |= {"message": f"{name} waits since turn {turn}", "details": []}
            api.put("gpujobs", job)
            await shows(page, f"{name} waits since turn {turn}")
    devtools = await window.context.new_cdp_session(page)
    await devtools.send("HeapProfiler.collectGarbage")
    assert await page.evaluate("window.rows.length") >= 2 * ROUNDS
    # Both rows as they are, and what the last drawing still refers to.
    assert await page.evaluate("window.rows.filter((row) => row.deref()).length") <= 5


async def test_a_tab_keeps_no_entry_for_each_request(window: Window) -> None:
    page = await window.sign_in("red-token", path="jobs")
    await page.evaluate("fetch('/api/v3/me').then((answer) => answer.text())")
    assert (
        await page.evaluate(
            "performance.getEntriesByType('resource').filter((each) => each.name.endsWith('/me')).length"
        )
        == 0
    )
