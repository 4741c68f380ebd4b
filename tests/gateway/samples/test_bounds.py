"""What one tenant, or one node's token, can make the gateway keep by inventing names."""

from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail.answers.use.series import MarkRow
from dovetail_gateway.samples.batches import Batch
from dovetail_gateway.samples.bounds import MOST_DEVICES, MOST_PROJECTS, OTHERS, admitted
from dovetail_gateway.samples.marks import Mark, latest
from dovetail_gateway.samples.rings import STEP_SECONDS, TIERS, Rings
from dovetail_gateway.samples.store import SampleStore
from dovetail_gateway.samples.usage import MOST_MODELS, MOST_OF_A_DAY, Account, Ledger, Used
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_job
from tests.gateway.samples.test_rings import PLAIN, T0, put
from tests.gateway.samples.week import sampling

DAY = date(2026, 11, 1)


def of(project: str, *, namespace: str = "red", day: date = DAY) -> Account:
    return Account(day=day, namespace=namespace, project=project, user="rita", model="V100")


def queued(name: str, *, namespace: str, project: str) -> dict[str, Any]:
    made = make_job(name, namespace=namespace, status={"phase": "Queued", "request": "1"})
    made["metadata"]["labels"][names.LABEL_PROJECT] = project
    return made


def first_letter(subject: str) -> str:
    return subject[0]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        pytest.param(["r1", "r2", "b1"], ["b1", "r1", "r2"], id="what has samples keeps them"),
        pytest.param(["r3", "r4", "b1"], ["b1", "r3"], id="new ones come in up to the bound"),
        pytest.param(["b2", "b3", "r3"], ["b2", "b3", "r3"], id="an owner takes no room of another"),
    ],
)
def test_an_owner_has_samples_of_as_many_subjects_as_the_bound_says(wanted: list[str], found: list[str]) -> None:
    rings = Rings(PLAIN)
    put(rings, T0, r1=1, r2=1, b1=1)
    kept = admitted(wanted, rings=rings, owner=first_letter, most=3, at=T0 + STEP_SECONDS)
    assert sorted(kept) == found


def test_a_name_that_was_not_used_for_a_month_gives_its_place_to_another() -> None:
    rings = Rings(PLAIN)
    put(rings, T0, r1=1, r2=1)
    before, after = T0 + TIERS[-1].span, T0 + TIERS[-1].span + STEP_SECONDS
    assert admitted(["r3"], rings=rings, owner=first_letter, most=2, at=before) == set()
    assert admitted(["r3"], rings=rings, owner=first_letter, most=2, at=after) == {"r3"}


async def test_new_projects_of_one_job_after_the_other_take_no_more_memory(
    api: GatewayApiServer, tmp_path: Path
) -> None:
    """A label of a job can change at any time, and each name is kept for a month."""
    api.put("gpujobs", queued("theirs", namespace="canaryns", project="theirs"))
    async with sampling(api, file=tmp_path / "s.db") as it:
        for batch in range(3):
            for number in range(100):
                name = f"p{batch}-{number}"
                api.put("gpujobs", queued(f"job-{number}", namespace="red", project=name))
            await it.face.until_like(api)
            await it.steps(1)
        api.put("gpujobs", queued("theirs", namespace="canaryns", project="more"))
        await it.face.until_like(api)
        await it.steps(1)
        subjects = it.face.made.sampler.projects.subjects
        others = (await it.series(f"of=Project&name={OTHERS}"))["items"]
        clock = it.clock
    mine = [each for each in subjects if each.startswith("red/")]
    assert len(mine) == MOST_PROJECTS + 1
    assert {"canaryns/theirs", "canaryns/more"} <= {*subjects}
    assert others[0]["waiting"][-2:] == [100, 100]
    async with sampling(api, file=tmp_path / "s.db", clock=clock) as it:
        assert sorted(it.face.made.sampler.projects.subjects) == sorted(subjects)


async def test_devices_with_new_names_in_each_report_of_a_node_take_no_more_memory(api: GatewayApiServer) -> None:
    async with sampling(api) as it:
        report = api.objects["gpunodes"]["a"]
        known = [each["uuid"] for each in report["status"]["devices"]]
        for step in range(2 * MOST_DEVICES // len(known)):
            for index, device in enumerate(report["status"]["devices"][1:], start=1):
                device["uuid"] = f"invented-{step}-{index}"
            api.put("gpunodes", report)
            await it.face.until_like(api)
            await it.steps(1)
        sampler = it.face.made.sampler
        assert len([uuid for uuid, place in sampler.places.items() if place.node == "a"]) == MOST_DEVICES
        found = (await it.series("of=Device&name=a"))["items"]
    assert known[0] in sampler.devices.subjects
    assert found[0]["promised"][-1] == 1


def test_accounts_beyond_those_of_a_day_count_together() -> None:
    ledger, second = Ledger(), Used(gpu_seconds=1, used_seconds=0.5)
    for number in range(MOST_OF_A_DAY + 70):
        ledger.add({of(f"p{number}"): second})
    ledger.add({of("p0"): second, of("p0", namespace="blue"): second, of("new", day=date(2026, 11, 2)): second})
    found = ledger.between(DAY, until=date(2026, 11, 2))
    rest = Account(day=DAY, namespace="red", project=OTHERS, user=OTHERS, model="V100")
    assert (len(found), found[rest].gpu_seconds, found[of("p0")].gpu_seconds) == (MOST_OF_A_DAY + 2, 70, 2)
    assert found[of("p0", namespace="blue")] == second
    assert sum(each.gpu_seconds for each in found.values()) == MOST_OF_A_DAY + 72
    assert of("new", day=date(2026, 11, 2)) in ledger.take_changed()


def test_models_that_a_node_invents_count_together() -> None:
    ledger = Ledger()
    ledger.restore({of(f"p{number}"): Used(gpu_seconds=1) for number in range(MOST_OF_A_DAY)})
    for number in range(MOST_MODELS + 30):
        for _ in range(2):
            ledger.add({replace(of("p0"), model=f"M{number}"): Used(gpu_seconds=1)})
    found = ledger.between(DAY, until=date(2026, 11, 2))
    further = Account(day=DAY, namespace="red", project=OTHERS, user=OTHERS, model="M0")
    assert len(found) == MOST_OF_A_DAY + MOST_MODELS + 1
    assert (found[further].gpu_seconds, found[replace(further, model=OTHERS)].gpu_seconds) == (2, 60)


def test_a_ledger_that_was_restored_full_stays_within_the_bound_until_the_day_is_forgotten() -> None:
    full = {of(f"p{number}"): Used(gpu_seconds=1) for number in range(MOST_OF_A_DAY)}
    ledger = Ledger()
    ledger.restore(full)
    ledger.restore(full)
    ledger.add({of("more"): Used(gpu_seconds=1)})
    assert of("more") not in ledger.between(DAY, until=date(2026, 11, 2))
    ledger.forget(before=date(2026, 11, 2))
    ledger.add({of("more"): Used(gpu_seconds=1)})
    assert [*ledger.between(DAY, until=date(2026, 11, 2))] == [of("more")]


def mark(namespace: str, *, at: int) -> Mark:
    row = MarkRow(at=f"1970-01-01T00:00:{at:02d}Z", kind="Ended", namespace=namespace, job="j", number=1, nodes=[])
    return Mark(uid=f"{namespace}-{at}", at=at, row=row)


def test_a_namespace_of_many_marks_displaces_none_of_another(tmp_path: Path) -> None:
    """A job that is cancelled while it waits has a mark too, so that marks cost no GPU."""
    marks = [mark("blue", at=1), mark("blue", at=2), *(mark("red", at=at) for at in range(10, 50))]
    kept = ["blue-1", "blue-2", *(f"red-{at}" for at in range(44, 50))]
    assert [each.uid for each in latest(marks, most=8)] == kept
    store = SampleStore(f"sqlite:///{tmp_path / 's.db'}")
    store.open()
    store.write(Batch(marks=marks))
    assert [each.uid for each in store.marks(since=0, most=8)] == kept
    assert [each.uid for each in store.marks(since=2, most=3)] == ["blue-2", "red-48", "red-49"]
    store.close()
