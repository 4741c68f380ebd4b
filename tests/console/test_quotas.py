"""Changing a quota on its page: who starts is shown before it is saved, and two people cannot overwrite each other."""

import pytest
from playwright.async_api import Locator, Page, expect

from tests.console import browser as browsers
from tests.console.browser import Window, shows
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_batch_job, make_job

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture(autouse=True)
def quotas(api: GatewayApiServer) -> None:
    """`red` uses all that its limit allows, and `small` waits for more."""
    for name in ("next", "after"):
        api.delete("gpujobs", f"red/{name}")
    api.put("jobs", make_batch_job(api.objects["gpujobs"]["red/train"]))
    status = {"phase": "Queued", "number": 5, "gpus": 1, "reason": "QuotaExceeded", "message": "GPUQuota red"}
    api.put("gpujobs", make_job("small", namespace="red", number=5, user="rita", status=status))
    for name, spec in (("all", {"limit": {"gpus": 16}}), ("red", {"namespaces": ["red"], "limit": {"gpus": 1}})):
        meta = {"name": name, "uid": f"quota-{name}", "generation": 1}
        api.put("gpuquotas", {"metadata": meta, "spec": spec, "status": {"gpus": 1, "runningJobs": 1}})


async def opened(page: Page) -> Locator:
    await page.get_by_role("button", name="Change red").click()
    return page.get_by_role("dialog", name="Change red")


async def test_a_change_says_who_starts_before_it_is_saved(window: Window, api: GatewayApiServer) -> None:
    page = await window.sign_in("admin-token", path="quotas")
    dialog = await opened(page)
    await shows(page, "Change a value to see who would start")
    await expect(dialog.get_by_role("button", name="Save")).to_be_disabled()
    await dialog.get_by_label("GPUs at most").fill("many")
    await expect(dialog.get_by_role("alert").first).to_contain_text("GPUs at most")
    await dialog.get_by_label("GPUs at most").fill("2")
    effects = dialog.get_by_role("region", name="What it would do now")
    await expect(effects.get_by_role("heading", name="Would start now")).to_be_visible()
    await expect(effects.get_by_role("link", name="small")).to_be_visible()
    await expect(dialog.get_by_label("As command", exact=True)).to_have_text("dovetail quota set red --gpus 2")
    assert api.objects["gpuquotas"]["red"]["spec"]["limit"] == {"gpus": 1}, "a preview saves nothing"
    await dialog.get_by_label("Guaranteed GPUs").fill("1")
    await dialog.get_by_label("Parent").select_option("all")
    assert not await browsers.violations(page)
    await dialog.get_by_role("button", name="Save").click()
    await shows(page, "Saved: red")
    await expect(dialog).to_have_count(0)
    await expect(page.get_by_role("table", name="Quotas")).to_contain_text("1 of 2")
    spec = {"namespaces": ["red"], "limit": {"gpus": 2}, "guaranteed": {"gpus": 1}, "parent": "all"}
    assert api.objects["gpuquotas"]["red"]["spec"] == spec


async def test_what_the_gateway_refuses_is_said_in_the_dialog(window: Window) -> None:
    page = await window.sign_in("admin-token", path="quotas")
    dialog = await opened(page)
    await dialog.get_by_label("Guaranteed GPUs").fill("3")
    await shows(page, "spec.guaranteed.gpus 3: must not be above the limit of 1 GPUs")


async def test_of_two_who_change_one_quota_the_second_reads_it_again(window: Window, api: GatewayApiServer) -> None:
    first = await window.sign_in("admin-token", path="quotas")
    second = await window.tab("quotas")
    mine, theirs = await opened(first), await opened(second)
    await theirs.get_by_label("GPUs at most").fill("4")
    await theirs.get_by_role("button", name="Save").click()
    await shows(second, "Saved: red")
    await mine.get_by_label("Shares").fill("7")
    await mine.get_by_role("button", name="Save").click()
    await expect(mine.get_by_role("alert")).to_contain_text("Someone else has changed red since you opened it")
    await expect(mine.get_by_role("button", name="Save")).to_be_disabled()
    await mine.get_by_role("button", name="Read it again").click()
    await expect(mine.get_by_label("GPUs at most")).to_have_value("4")
    await mine.get_by_label("Shares").fill("7")
    await mine.get_by_role("button", name="Save").click()
    await shows(first, "Saved: red")
    assert api.objects["gpuquotas"]["red"]["spec"] == {"namespaces": ["red"], "limit": {"gpus": 4}, "shares": 7}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [(200, '{"items": []}', "red is gone, or you may no longer see it."), (503, '{"detail": "Not yet"}', "Not yet")],
)
async def test_a_quota_that_cannot_be_read_again_says_so(
    window: Window, api: GatewayApiServer, status: int, body: str, said: str
) -> None:
    page = await window.sign_in("admin-token", path="quotas")
    dialog = await opened(page)
    changed = api.objects["gpuquotas"]["red"]
    api.put("gpuquotas", {**changed, "metadata": {**changed["metadata"], "generation": 2}})
    await dialog.get_by_label("Shares").fill("7")
    await dialog.get_by_role("button", name="Save").click()
    await page.route(
        "**/api/v3/quotas",
        lambda route: route.fulfill(status=status, content_type="application/json", body=body),
    )
    await dialog.get_by_role("button", name="Read it again").click()
    await expect(dialog.get_by_role("alert")).to_contain_text(said)
    await expect(dialog.get_by_role("button", name="Save")).to_be_disabled()


async def test_who_may_not_change_quotas_is_offered_no_change(window: Window) -> None:
    page = await window.sign_in("red-token", path="quotas")
    await expect(page.get_by_role("table", name="Quotas")).to_contain_text("red")
    await expect(page.get_by_role("button", name="Change red")).to_have_count(0)
