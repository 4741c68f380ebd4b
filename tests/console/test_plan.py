"""The plan, the map, the right sizes and the findings in a real browser."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import expect

from tests.console.browser import Window, shows, violations
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_batch_job, make_bound_pod, make_job
from tests.gateway.served import Face

pytestmark = pytest.mark.asyncio(loop_scope="session")


def at(hours: float) -> str:
    """The time so many hours from now."""
    return (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def running(index: int, *, number: int, **status: Any) -> dict[str, Any]:
    """The status of a job that runs on a device of node `a` since an hour ago."""
    held = {"worker": 0, "node": "a", "index": index, "uuid": f"a-{index}", "shareMilli": 1000, "memoryMiB": 32768}
    found = {"phase": "Running", "number": number, "gpus": 1, "request": "1", "nodes": ["a"], "devices": [held]}
    return found | {"startTime": at(-1)} | status


def keep_room(api: GatewayApiServer) -> None:
    """Keep room of node `a` for `next` from in three hours on; `short`, submitted later, ends there before."""
    head = api.objects["gpujobs"]["red/next"]
    reserved = {"time": at(3), "nodes": [{"name": "a", "workers": 2}], "kept": [{"name": "a", "keeps": ["4"]}]}
    bounds = {"estimatedStart": at(2), "estimatedStartEarliest": at(1), "estimatedStartLatest": at(3)}
    head["status"]["queue"] = {"position": 1, "reserved": reserved, **bounds}
    api.put("gpujobs", head)
    short = make_job("short", namespace="red", user="rita", status=running(2, number=4), activeDeadlineSeconds=7200)
    short["metadata"]["creationTimestamp"] = at(-1)
    api.put("gpujobs", short)


async def test_the_plan_ties_backfill_to_its_gap_and_shows_what_is_kept(window: Window, api: GatewayApiServer) -> None:
    keep_room(api)
    page = await window.sign_in("red-token", path="plan?hours=8")
    chart = page.get_by_role("region", name="Plan")
    await expect(chart.get_by_role("link", name="↷ 4 short")).to_have_attribute(
        "title", "4 short fills the gap before 2 next starts"
    )
    await expect(chart.get_by_text("4 kept for 2 next")).to_be_visible()
    await expect(chart.get_by_title("2 next starts within these bounds")).to_be_visible()
    await expect(page.get_by_role("row", name="4 short")).to_contain_text("2 next, in")
    # A device of another tenant says no more than its share.
    await expect(chart.get_by_title("Another tenant holds 1 of it")).to_be_visible()


async def test_the_plan_shows_ended_jobs_of_the_history_drains_and_advance_reservations(
    window: Window, api: GatewayApiServer
) -> None:
    record = {"uid": "gone", "namespace": "red", "name": "yesterday", "number": 9, "user": "rita", "phase": "Succeeded"}
    record |= {"submitted": at(-4), "started": at(-3), "ended": at(-2), "devices": ["b-1"]}
    api.answer = {"answered": True, "records": [record], "next": ""}
    api.put("nodes", api.objects["nodes"]["b"] | {"spec": {"unschedulable": True}})
    course = {"name": "course", "startTime": at(1), "endTime": at(3), "gpus": 4}
    spec = {"limit": {"gpus": 8}, "namespaces": ["red"], "advanceReservations": [course]}
    api.put("gpuquotas", {"metadata": {"name": "lab", "uid": "q"}, "spec": spec})
    page = await window.sign_in("red-token", path="plan?hours=8")
    chart = page.get_by_role("region", name="Plan")
    await expect(chart.get_by_title("9 yesterday, rita: Succeeded").first).to_be_visible()
    await expect(chart.get_by_text("b takes no new work: node b is cordoned")).to_be_visible()
    await shows(page, "course (lab)")
    await chart.get_by_role("button", name="b 0 of 8 GPUs").click()
    assert page.url.endswith("/console/plan?hours=8&open=b")
    await expect(chart.get_by_role("button", name="b 0 of 8 GPUs")).to_have_attribute("aria-expanded", "false")


async def test_a_history_that_cannot_be_read_says_why(window: Window) -> None:
    page = await window.sign_in("reader-token", path="plan")
    await shows(page, "Ended jobs are shown only while their objects exist:")


async def put_mover(api: GatewayApiServer, face: Face, *wants: str, namespace: str = "red") -> None:
    """A job of one GPU on node b, and these jobs, which wait for eight on one node."""
    for name in ("next", "after"):
        api.delete("gpujobs", f"red/{name}")
    mover = make_job("mover", namespace=namespace, number=8, moves="Restart", checkpointIntervalSeconds=600)
    mover["status"] |= {"startTime": "2026-11-01T00:00:00Z", "nodes": ["b"]}
    api.put("gpujobs", mover)
    of_run = {"spec": {"parallelism": 1, "completions": 1}, "status": {"active": 1}}
    api.put("jobs", make_batch_job(mover) | of_run)
    api.put("pods", make_bound_pod("mover-0", namespace=namespace, job="mover", number=8, device="b-0", node="b"))
    for number, name in enumerate(wants, start=9):
        status = {"phase": "Queued", "number": number, "gpus": 8, "request": "8", "reason": "Fragmentation"}
        api.put("gpujobs", make_job(name, namespace="red", number=number, user="rita", status=status, gpu=8))
    path = f"/api/v3/moves?jobs={','.join(f'red/{name}' for name in wants)}"
    async with asyncio.timeout(60):
        # Until the gateway has seen all of it.
        while "starts within" not in (await face.get(path, token="red-token")).text:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.05)


async def test_moves_for_several_jobs_show_each_plan_and_each_reason_in_the_language_of_the_page(
    window: Window, api: GatewayApiServer, face: Face
) -> None:
    await put_mover(api, face, "wants", "alike", namespace="blue")
    page = await window.sign_in("red-token", path="plan")
    await page.get_by_label("Waiting job").select_option("All 2 together")
    assert page.url.endswith("?moves=all")
    plan = page.get_by_role("region", name="9 wants")
    await expect(plan.get_by_role("table", name="Moves for 9 wants").locator(".seat-starts")).to_have_count(8)
    await expect(plan).to_contain_text("A another tenant: b:0")
    why = page.get_by_role("region", name="10 alike")
    await expect(why).to_have_text("No moves for job 10 (alike): no set of jobs that may move makes room for it")
    await expect(page.get_by_text("PodDisruptionBudgets may not be read")).to_have_count(1)
    await expect(page.get_by_text("dovetail move plan 9 10 --namespace red")).to_have_count(1)
    assert await violations(page) == []
    await page.evaluate("localStorage.setItem('dovetail-language', 'zh')")
    await page.reload()
    await expect(page.get_by_role("region", name="10 alike")).to_have_text(
        "作业 10（alike）没有可行的迁移：没有任何一组可迁移的作业能为它腾出位置"
    )


async def test_moves_show_the_devices_before_and_after(window: Window, api: GatewayApiServer, face: Face) -> None:
    await put_mover(api, face, "wants")
    page = await window.sign_in("red-token", path="job/red/wants")
    await page.get_by_role("link", name="Before and after moves").click()
    table = page.get_by_role("table", name="Moves for 9 wants")
    emptied, filled = (
        table.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True)) for name in "ba"
    )
    await expect(emptied.get_by_role("cell").nth(1).locator(".seat-mover")).to_have_text("A0: 8 mover")
    await expect(emptied.get_by_role("cell").nth(2).locator(".seat-starts")).to_have_count(8)
    await expect(filled.get_by_role("cell").nth(1).locator(".seat-mover")).to_have_count(0)
    await expect(filled.get_by_role("cell").nth(2).locator(".seat-mover")).to_have_count(1)
    await shows(page, "It saves its work every 10 min.")
    assert await violations(page) == []
    await page.get_by_label("Waiting job").select_option("")
    await shows(page, "Jobs that wait for scattered room: 1")
    await page.goto(f"{window.url}/console/plan?moves=red/train")
    await shows(page, "No moves for job 1 (train): it starts without moves")


async def test_the_map_groups_filters_and_shows_fragments(window: Window, api: GatewayApiServer) -> None:
    node = api.objects["nodes"]["a"]
    node["metadata"].setdefault("labels", {})["dovetail.dev/rack"] = "r7"
    api.put("nodes", node)
    page = await window.sign_in("red-token", path="map?by=rack&state=free")
    await expect(page.get_by_role("heading", name="r7 (6)")).to_be_visible()
    await expect(page.get_by_role("button", name="a:0")).to_have_count(0)
    await page.get_by_label("Group by").select_option("model")
    await expect(page.get_by_role("heading", name="V100 (14)")).to_be_visible()
    await page.get_by_label("Search", exact=True).fill("no such node")
    await shows(page, "No device matches.")


async def test_waste_suggests_a_right_size_with_its_basis_and_names_idle_holders(
    window: Window, api: GatewayApiServer
) -> None:
    measured: dict[str, Any] = {"memory": {"strategy": "Dynamic", "basis": "", "peakMiB": 5000}}
    measured |= {"measured": {"meanUtilization": 0.1, "deviceSeconds": 3600}}
    idle = {"type": "Idle", "status": "True", "reason": "NoGPUWork", "message": "No GPU work since noon"}
    measured["conditions"] = [idle | {"lastTransitionTime": at(0)}]
    # By the gateway's clock, an hour ago.
    measured["startTime"] = "2026-11-01T11:00:00Z"
    api.put("gpujobs", make_job("lazy", namespace="red", user="rita", status=running(3, number=5, **measured)))
    page = await window.sign_in("red-token", path="waste")
    row = page.get_by_role("table", name="Right sizes").get_by_role("row", name="5 lazy")
    await expect(row).to_contain_text("Peak 5,000 MiB of 32,768 MiB on a device in 1 run of lazy")
    # Of its hour on one GPU, a fifth would have done.
    team = page.get_by_role("table", name="What each team could save").get_by_role("row", name="red / red-project")
    await expect(team.get_by_role("cell").nth(1)).to_have_text("1")
    await expect(team.get_by_role("cell").nth(3)).to_have_text("0.8")
    await expect(row.get_by_role("cell").nth(5)).to_have_text("0.8")
    await shows(page, "No GPU work since noon")
    await row.get_by_role("link", name="6G,0.2").click()
    await expect(page.get_by_label("GPUs for each worker")).to_have_value("6G,0.2")


async def test_the_overview_lists_what_doctor_finds_with_how_to_correct_it(
    window: Window, api: GatewayApiServer
) -> None:
    report = api.objects["gpunodes"]["a"]
    report["status"]["devices"][4] |= {"health": "Unhealthy", "healthReason": "Xid79FellOffTheBus"}
    api.put("gpunodes", report)
    page = await window.sign_in("red-token")
    await page.get_by_text("GPU 4 is unhealthy: Xid79FellOffTheBus").click()
    await shows(page, "To correct it: repair it, then dovetail uncordon a:4 --mended")


async def test_a_findings_error_is_shown_as_the_gateways_sentence(window: Window) -> None:
    problem = {"status": 503, "json": {"detail": "not listed yet: nodes"}}
    await window.context.route("**/api/v3/findings", lambda route: route.fulfill(**problem))
    await window.context.route("**/api/v3/right-sizes**", lambda route: route.fulfill(**problem))
    page = await window.sign_in("red-token")
    await shows(page, "not listed yet: nodes")
    await page.goto(f"{window.url}/console/waste")
    await shows(page, "not listed yet: nodes")


async def test_the_queue_takes_gqueues_numbers_and_names(window: Window) -> None:
    page = await window.sign_in("red-token", path="jobs?jobs=2-3")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(2)
    await page.get_by_label("Names", exact=True).fill("after, train")
    await expect(rows).to_have_count(1)
    await page.get_by_text("As command").click()
    await shows(page, "gqueue -u all -j 2-3 -N after,train")
    await page.get_by_label("Numbers").fill("0-")
    await shows(page, "No jobs match.")


async def test_a_new_priority_is_judged_before_it_is_applied(window: Window) -> None:
    page = await window.sign_in("red-token", path="job/red/next")
    await page.get_by_role("button", name="Change priority").click()
    await expect(page.get_by_role("dialog").locator(".verdict")).to_contain_text("Waits, at position")


async def test_the_keyboard_alone_opens_a_device_and_a_node(window: Window) -> None:
    page = await window.sign_in("red-token", path="map?search=a")
    await page.get_by_label("Search", exact=True).focus()
    for _ in range(40):
        await page.keyboard.press("Tab")
        if (await page.evaluate("document.activeElement.getAttribute('aria-label')") or "").startswith("a:0"):
            break
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="a:0")).to_be_visible()
    await page.goto(f"{window.url}/console/plan")
    node = page.get_by_role("button", name="b 0 of 8 GPUs")
    await node.focus()
    await page.keyboard.press("Enter")
    await expect(node).to_have_attribute("aria-expanded", "false")


async def test_the_new_pages_speak_chinese(window: Window) -> None:
    page = await window.sign_in("red-token", path="plan")
    await page.goto(f"{window.url}/console/settings")
    await page.get_by_label("Language").select_option("zh")
    await page.goto(f"{window.url}/console/plan")
    await shows(page, "队列只安排节点")
    await page.goto(f"{window.url}/console/map")
    await shows(page, "碎片")
    await page.goto(f"{window.url}/console/waste")
    await shows(page, "合适的请求")
