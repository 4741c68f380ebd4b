"""The status of GPUQuotas as it is written to the API server: what changed, and only that."""

import asyncio
from datetime import timedelta
from math import log
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from dovetail.api.gpuquota import GPUQuota, GPUQuotaStatus, QuotaUse
from dovetail.formats.timestamps import moment
from dovetail.kube.client import Client
from dovetail.queue.limits.quotas import DEFAULT_HALF_LIFE_SECONDS
from dovetail_operator.queue.quota_status import QuotaStatusWriter, is_news
from dovetail_operator.state.state import State
from tests.core.kube.api import Answer, Api, refusal
from tests.operator_.builders import NO_ROOM, NOW, at, make_job, make_state
from tests.operator_.queue.test_quotas import HOUR, add, plain

PATH = "/apis/dovetail.dev/v1beta1/gpuquotas/{}/status"


def make_quota(
    name: str = "q", *, version: str = "5", status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
    return {"metadata": metadata, "spec": {"limit": {"gpus": 8}, **spec}, "status": status or {}}


class Rig:
    """A pod that uses one GPU, and quotas `q` and `r` that count it."""

    def __init__(self, client: Client, api: Api) -> None:
        self.api = api
        self.state: State = make_state(a=8)
        self.state.store.pod_event("ADDED", plain())
        for name in ("q", "r"):
            self.put(make_quota(name))
        self.seconds = 0.0
        self.notes = QuotaStatusWriter(client, state=self.state, now=lambda: NOW + timedelta(seconds=self.seconds))

    def put(self, quota: dict[str, Any]) -> None:
        self.state.store.quotas.update(msgspec.convert(quota, GPUQuota))

    async def note(self, *answers: tuple[str, Answer]) -> list[dict[str, Any]]:
        """What is written, in order."""
        for name, answer in answers:
            self.api.answer(f"PATCH {PATH.format(name)}", answer)
        before = len(self.api.seen)
        await self.notes.write()
        return [seen.body for seen in self.api.seen[before:]]


@pytest.fixture
def rig(client: Client, api: Api) -> Rig:
    return Rig(client, api)


def written(name: str) -> tuple[str, Answer]:
    return name, Answer(body=make_quota(name, version="6"))


async def test_every_quota_whose_count_changed_is_written_with_the_version_that_was_seen(rig: Rig) -> None:
    first, second = await rig.note(written("q"), written("r"))
    assert first["metadata"] == {"resourceVersion": "5", "uid": "uid-q"}
    assert second["metadata"]["uid"] == "uid-r"
    assert (first["status"]["gpus"], [use["gpus"] for use in first["status"]["uses"]]) == (1.0, [1.0])


async def test_what_the_watch_has_brought_back_is_not_written_again(rig: Rig) -> None:
    (first, _) = await rig.note(written("q"), written("r"))
    rig.put(make_quota("q", version="6", status=first["status"]))
    (again,) = await rig.note(written("r"))
    assert again["metadata"]["uid"] == "uid-r"


async def test_a_quota_that_the_schema_refuses_costs_only_its_own_status(rig: Rig) -> None:
    with capture_logs() as logs:
        _, second = await rig.note(
            ("q", refusal(422, reason="Invalid", message="spec.parent must be another")), written("r")
        )
    assert second["metadata"]["uid"] == "uid-r"
    assert [line["quota"] for line in logs if line["log_level"] == "warning"] == ["q"]


async def test_jobs_that_wait_are_counted_by_their_verdicts(rig: Rig) -> None:
    add(rig.state, make_job())
    rig.state.decisions.set_verdict("uid-x", verdict=NO_ROOM)
    (first, _) = await rig.note(written("q"), written("r"))
    assert first["status"]["queuedJobs"] == 1


@pytest.mark.parametrize("status", [409, 404])
async def test_a_quota_that_was_changed_or_deleted_meanwhile_holds_up_no_other(rig: Rig, status: int) -> None:
    found = await rig.note(("q", refusal(status)), written("r"))
    assert [body["metadata"]["uid"] for body in found] == ["uid-q", "uid-r"]


@pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9])
async def test_over_many_writes_the_use_grows_by_the_time_that_was_held(rig: Rig, part: float) -> None:
    """Writes come at any part of a second, and their times have whole seconds."""
    rig.state.store.quotas.drop("r")
    add(rig.state, make_job(gpu=1, status={"phase": "Running", "startTime": at(-HOUR)}), runs=True)
    status = dict[str, Any]()
    for version, seconds in enumerate((0, 60, 121, 700, 761), start=6):
        rig.put(make_quota("q", version=str(version), status=status, shares=1))
        rig.seconds = seconds + part
        (body,) = await rig.note(written("q"))
        status |= body["status"]
        held = HOUR + (moment(status["asOf"]) - NOW).total_seconds()
        left = 0.5 ** (held / DEFAULT_HALF_LIFE_SECONDS)
        used = (1 - left) * DEFAULT_HALF_LIFE_SECONDS / log(2)
        assert status["uses"][0]["gpuSeconds"] == pytest.approx(used, abs=0.01)


def test_the_order_of_uses_and_what_time_adds_are_no_news() -> None:
    ada, bob = (QuotaUse(who=who, gpu_seconds=1.0) for who in ("ada", "bob"))
    before = GPUQuotaStatus(as_of=at(0), uses=[ada, bob])
    later = GPUQuotaStatus(as_of=at(30), uses=[bob, msgspec.structs.replace(ada, gpu_seconds=9.0)])
    more = GPUQuotaStatus(as_of=at(30), uses=[bob, msgspec.structs.replace(ada, running_jobs=1)])
    assert not is_news(before, after=later, now=NOW + timedelta(seconds=59))
    assert is_news(before, after=later, now=NOW + timedelta(seconds=60))
    assert is_news(before, after=more, now=NOW)


async def test_without_quotas_nothing_is_read_or_written(rig: Rig) -> None:
    for name in ("q", "r"):
        rig.state.store.quotas.drop(name)
    assert await rig.note() == []


async def test_a_write_that_fails_is_in_the_log_and_comes_with_the_next_check(rig: Rig) -> None:
    rig.api.answer(f"PATCH {PATH.format('q')}", refusal(403))
    with capture_logs() as logs:
        task = asyncio.create_task(rig.notes.run())
        await rig.api.until(f"PATCH {PATH.format('q')}", count=1)
        while not logs:  # noqa: ASYNC110 - the log has no event
            await asyncio.sleep(0.01)
        task.cancel()
    assert [each["event"] for each in logs] == ["a quota's status is written later"]
    assert len(await rig.note(written("q"), written("r"))) == 2
