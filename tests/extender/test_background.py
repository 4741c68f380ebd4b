"""What an extender does without being asked, by itself: the loops run, and each does its part."""

from collections.abc import AsyncIterator

import pytest

from dovetail.process import heap
from dovetail_extender import background
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_bound, make_pod
from tests.extender.harness import Face, watching
from tests.extender.holds.test_planned_workers import make_job


@pytest.fixture
async def face(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Face]:
    """An extender whose loops take no pauses of a second."""
    monkeypatch.setattr(background, "_EVERY_SECONDS", 0.01)
    async with watching(api) as started:
        await started.ready()
        yield started


async def test_a_hold_ends_by_itself(face: Face) -> None:
    await face.prioritize(make_pod(), "a")
    assert face.ledger.is_hold("uid-p")
    face.clock.now += 31
    await eventually(lambda: face.ledger.claim("uid-p") is None)


async def test_room_that_a_plan_misses_is_held_by_itself_once_it_is_there(api: ApiServer, face: Face) -> None:
    await face.prioritize(make_pod("in the way", "8", milli=8000), "a")
    api.put("gpujobs", make_job(("a", 1)))
    await eventually(lambda: bool(face.extender.plans._missing))
    assert face.ledger.claim("job-train/0") is None
    face.clock.now += 31
    await eventually(lambda: face.ledger.is_hold("job-train/0"))


async def test_a_bind_without_an_outcome_is_settled_by_itself(api: ApiServer, face: Face) -> None:
    api.put("pods", make_pod())
    api.binding_status = 500
    assert "it is not known" in await face.bind(make_pod(), "a")
    face.clock.now += 31
    await eventually(lambda: face.ledger.claim("uid-p") is None)


async def test_the_pods_that_run_at_the_start_are_the_first_of_the_mix(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_EVERY_SECONDS", 0.01)
    kept, faces = list[list[str]](), list[Face]()
    monkeypatch.setattr(heap, "keep_for_good", lambda: kept.append(faces[0].extender.watching.missing))
    for at in range(3):
        api.put("pods", make_bound(make_pod(f"runs-{at}"), node="a", at=at))
    api.put("pods", make_pod("waits"))
    async with watching(api) as started:
        faces.append(started)
        await eventually(lambda: started.extender._decisions.fragments.all_arrivals > 0)
        await eventually(lambda: started.extender._decisions.fragments.all_arrivals == 3)
        await eventually(lambda: bool(kept))
    assert kept == [[]], "once, when everything is listed"
