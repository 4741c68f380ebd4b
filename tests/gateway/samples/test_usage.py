"""Who used how much GPU time, as the gateway's sampler counted it under a moved clock."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail_gateway.samples.readings import Holding
from dovetail_gateway.samples.usage import MOST_OF_A_USER, Account, Ledger, Used, spent
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_bound_pod, make_job
from tests.gateway.samples.week import sampling


def share(name: str, *, number: int, device: str, milli: int) -> dict[str, Any]:
    pod = make_bound_pod(f"{name}-0", namespace="red", job=name, number=number, device=device)
    annotations = pod["metadata"]["annotations"]
    annotations["dovetail.dev/allocation"] = annotations["dovetail.dev/allocation"].replace("1000", str(milli))
    return pod


def groups(found: dict[str, Any]) -> dict[str, float]:
    return {row["group"]: row["gpuHours"] for row in found["items"]}


async def test_a_share_counts_as_its_part_and_each_group_adds_up(api: GatewayApiServer) -> None:
    for number, (name, user, milli) in enumerate((("half", "rita", 500), ("tenth", "rob", 100)), start=11):
        status = {"phase": "Running", "number": number, "gpus": 1, "request": "0.5", "nodes": ["a"]}
        api.put("gpujobs", make_job(name, namespace="red", number=number, user=user, status=status))
        api.put("pods", share(name, number=number, device="a-5", milli=milli))
    async with sampling(api, gpu_hour_prices={"Tesla V100": 2.5}, currency="EUR") as it:
        it.load("a", 0.5, 0.25, 0, 0, 0, 0.8)
        await it.face.until_like(api)
        await it.steps(241)
        found = {by: await it.usage(f"by={by}") for by in ("Namespace", "Project", "User", "Model", "Day")}
    assert groups(found["Namespace"]) == {"red": pytest.approx(3.2), "canaryns": pytest.approx(2)}
    by_user = {"rita": pytest.approx(3), "canaryuser": pytest.approx(2), "rob": pytest.approx(0.2)}
    assert groups(found["User"]) == by_user
    assert groups(found["Project"]) == {"red-project": pytest.approx(3.2), "canaryns-project": pytest.approx(2)}
    assert groups(found["Model"]) == {"V100": pytest.approx(5.2)}
    assert groups(found["Day"]) == {"2026-11-01": pytest.approx(5.2)}
    for each in found.values():
        assert sum(groups(each).values()) == pytest.approx(each["total"]["gpuHours"], abs=1e-3)
    assert found["Model"]["items"][0]["usedHours"] == pytest.approx(2 * 0.5 + 2 * 0.25 + 1.2 * 0.8, abs=1e-3)
    assert (found["Model"]["total"]["cost"], found["Model"]["currency"]) == (13.0, "EUR")


async def test_what_right_sizes_could_save_and_have_saved_counts_in_each_group(api: GatewayApiServer) -> None:
    device = {"worker": 0, "node": "a", "index": 5, "uuid": "a-5", "shareMilli": 500, "memoryMiB": 16384}
    use = {"strategy": "Dynamic", "basis": "", "peakMiB": 2000}
    status = {
        "phase": "Running", "number": 11, "gpus": 1, "request": "16G,0.5", "nodes": ["a"], "devices": [device],
        "startTime": "2026-11-01T00:00:00Z", "memory": use,
        "measured": {"meanUtilization": 0.15, "deviceSeconds": 7200},
    }  # fmt: skip
    job = make_job("half", namespace="red", number=11, user="rita", status=status)
    job["spec"] |= {"gpu": "1", "rightSize": "16G,0.5"}
    api.put("gpujobs", job)
    api.put("pods", share("half", number=11, device="a-5", milli=500))
    async with sampling(api) as it:
        await it.face.until_like(api)
        await it.steps(241)
        found = {by: await it.usage(f"by={by}") for by in ("Namespace", "Project", "User", "Model", "Day")}
    for by, group in (("Namespace", "red"), ("User", "rita"), ("Model", "V100"), ("Day", "2026-11-01")):
        (row,) = [each for each in found[by]["items"] if each["group"] == group]
        assert (row["savableHours"], row["savedHours"]) == (pytest.approx(0.6, abs=0.01), pytest.approx(1.0, abs=0.01))
    for each in found.values():
        for hours in ("savableHours", "savedHours"):
            assert sum(row[hours] for row in each["items"]) == pytest.approx(each["total"][hours], abs=1e-3)


async def test_hours_without_a_price_are_said(api: GatewayApiServer) -> None:
    async with sampling(api, gpu_hour_prices={"H100": 4}) as it:
        await it.steps(121)
        total = (await it.usage("by=Model"))["total"]
    assert (total["cost"], total["unpricedHours"]) == (None, pytest.approx(2))


async def test_a_tenant_gets_the_time_of_its_own_namespaces(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        await it.steps(121)
        for by in ("Namespace", "Project", "User", "Model", "Day"):
            found = await it.face.get(f"/api/v3/usage?by={by}", token="red-token")
            assert ("canary" in found.text, found.json["total"]["gpuHours"]) == (False, pytest.approx(1))
        assert (await it.usage("namespace=canaryns", token="red-token"))["items"] == []


async def test_time_is_counted_to_the_second_of_start_and_end(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        await it.steps(1)
        started = make_bound_pod("late-0", namespace="red", job="train", number=1, device="a-3")
        started["status"]["startTime"] = "2026-11-01T00:00:40Z"
        api.put("pods", started)
        await it.face.until_like(api)
        it.clock.move(seconds=30)
        await it.steps(1)
        ended = {"phase": "Succeeded", "number": 1, "completionTime": "2026-11-01T00:01:10Z", "nodes": ["a"]}
        api.put("gpujobs", make_job("train", namespace="red", status=ended))
        for name in ("late-0", "train-0"):
            api.delete("pods", f"red/{name}")
        await it.face.until_like(api)
        await it.steps(1)
        found = groups(await it.usage())
    assert found["red"] * 3600 == pytest.approx(70 + 30, abs=0.2)


async def test_a_gateway_that_was_away_counts_what_is_still_held(api: GatewayApiServer, tmp_path: Path) -> None:
    async with sampling(api, file=tmp_path / "s.db") as it:
        await it.steps(3)
        clock = it.clock
    clock.move(hours=30)
    async with sampling(api, file=tmp_path / "s.db", clock=clock) as it:
        await it.steps(1)
        found = await it.usage("by=Day")
    assert {day: round(hours, 1) for day, hours in groups(found).items()} == {"2026-11-01": 48.0, "2026-11-02": 12.1}


def test_of_two_counts_of_the_same_time_the_larger_counts() -> None:
    account = Account(day=date(2026, 11, 1), namespace="red", project="", user="rita", model="V100")
    ledger = Ledger()
    ledger.add({account: Used(gpu_seconds=100, used_seconds=10)})
    ledger.restore({account: Used(gpu_seconds=90, used_seconds=40)})
    found = ledger.between(date(2026, 11, 1), until=date(2026, 11, 2))
    assert found == {account: Used(gpu_seconds=100, used_seconds=40)}


async def test_days_that_are_none_are_refused(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        found = await it.usage("since=2026-11-01T00:00:00Z&until=2026-11-01T12:00:00Z", status=422)
    assert found["detail"] == 'since "2026-11-01T00:00:00Z": must be a day before until, which is 2026-11-01'


def test_a_user_counts_by_a_name_that_databases_keep() -> None:
    """The user names of a cluster's own sign-in have any characters and any length."""
    start = datetime(2026, 11, 29, 12, tzinfo=UTC)
    holding = Holding(
        namespace="red", pod="p", job="u", project="vision", user="a\x00" * 600, model="T4", promised=0.5,
        utilization=0.5, memory_used_mib=None, memory_promised_mib=0, power_watts=None, temperature=None, since=None,
    )  # fmt: skip
    (account,) = spent([holding], since=start, until=start + timedelta(seconds=60))
    assert account.user == "a" * MOST_OF_A_USER
