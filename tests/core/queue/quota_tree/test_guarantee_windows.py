"""Guarantees by the calendar: which hour of which day counts, in which time zone."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pytest
from hypothesis import given

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.quota_tree.guarantee_windows import in_force, without_zone
from dovetail.queue.quota_tree.tree_builder import tree_of
from tests.core.queue.quota_tree.builders import make_quota

BERLIN = "Europe/Berlin"
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def window(start: str = "08:00", end: str = "20:00", *, gpus: int = 32, zone: str = BERLIN, **more: Any) -> Any:
    return {"name": "day", "start": start, "end": end, "gpus": gpus, "timeZone": zone, **more}


def quota(*windows: Any, guaranteed: int | None = 8) -> GPUQuota:
    return make_quota("chat", guaranteed=guaranteed, guaranteeWindows=list(windows))


def gpus(of: GPUQuota, *times: str) -> int | None:
    """The GPUs that are guaranteed at these times, in UTC."""
    found = in_force(of, at=[datetime.fromisoformat(f"{each}+00:00") for each in times]).spec.guaranteed
    return None if found is None else found.gpus


@pytest.mark.parametrize(
    ("said", "at", "floor"),
    [
        pytest.param(window(), "2026-01-08T07:00", 32, id="it begins by the clock of its zone"),
        pytest.param(window(), "2026-01-08T06:59", 8, id="not a minute before"),
        pytest.param(window(), "2026-01-08T18:59", 32, id="its last minute"),
        pytest.param(window(), "2026-01-08T19:00", 8, id="its end"),
        pytest.param(window(), "2026-07-08T06:00", 32, id="in summer it begins an hour earlier in UTC"),
        pytest.param(window(days=["Friday"]), "2026-01-08T12:00", 8, id="another day"),
        pytest.param(window(days=["Thursday"]), "2026-01-08T12:00", 32, id="its day"),
        pytest.param(window("22:00", "06:00", days=["Thursday"]), "2026-01-09T03:00", 32, id="over midnight"),
        pytest.param(window("22:00", "06:00", days=["Thursday"]), "2026-01-08T03:00", 8, id="the night before its day"),
        pytest.param(window("00:00", "00:00"), "2026-01-08T22:59", 32, id="the whole day"),
        pytest.param(window("02:30", "03:00"), "2026-03-29T01:15", 8, id="over before an hour that the clock skips"),
        pytest.param(window(gpus=4), "2026-01-08T12:00", 8, id="a window does not lower a guarantee"),
        pytest.param(window(zone="Asia/Kolkata"), "2026-01-08T02:30", 32, id="a zone of half an hour"),
        pytest.param(window(zone="Europe/Berln"), "2026-01-08T12:00", 8, id="a zone that does not exist"),
    ],
)
def test_what_is_guaranteed(said: Any, at: str, floor: int) -> None:
    assert gpus(quota(said), at) == floor


def test_of_several_windows_and_times_the_most_counts() -> None:
    several = quota(window(gpus=16), {**window("12:00", "13:00", gpus=24), "name": "noon"})
    assert gpus(several, "2026-01-08T11:30") == 24
    assert gpus(several, "2026-01-08T06:00", "2026-01-08T07:00") == 16, "a window counts a while before it begins"
    assert gpus(several) == 8


def test_outside_its_windows_a_quota_without_a_guarantee_guarantees_nothing_and_stays_in_the_tree() -> None:
    alone = quota(window(), guaranteed=None)
    assert gpus(alone, "2026-01-08T00:00") == 0
    assert [node.name for node in tree_of([alone]).nodes] == ["chat"]


def test_a_window_without_a_time_zone_is_named_with_what_to_do() -> None:
    wrong = quota(window(zone="Europe/Berln"))
    assert [each.name for each in without_zone(wrong.spec)] == ["day"]
    (finding,) = tree_of([wrong]).findings
    assert finding.reason == "TimeZoneUnknown"
    assert finding.message == (
        "GPUQuota chat: its window day is in the time zone Europe/Berln, which does not exist: the window does not "
        "count until you name one, such as Europe/Berlin"
    )


@given(
    start=st.integers(0, 95),
    end=st.integers(0, 95),
    days=st.sets(st.sampled_from(DAYS)),
    zone=st.sampled_from([BERLIN, "America/New_York", "Asia/Kolkata", "Pacific/Auckland"]),
    at=st.integers(0, 366 * 96),
)
def test_a_window_holds_as_a_clock_on_the_wall_says(start: int, end: int, days: set[str], zone: str, at: int) -> None:
    """By walking along the wall clock from when the window last began, in steps of a quarter of an hour."""
    texts = [f"{each // 4:02d}:{each % 4 * 15:02d}" for each in (start, end)]
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=15 * at)
    local = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    if any((local - timedelta(days=back)).date() in changes_of(zone) for back in (0, 1)):
        return
    length = (end - start) % 96 or 96
    began = any(
        (not days or DAYS[then.weekday()] in days) and then.strftime("%H:%M") == texts[0]
        for back in range(length)
        for then in [local - timedelta(minutes=15 * back)]
    )
    found = gpus(quota(window(*texts, zone=zone, days=sorted(days))), moment.strftime("%Y-%m-%dT%H:%M"))
    assert found == (32 if began else 8)


def changes_of(zone: str) -> set[Any]:
    """The days of 2026 and around it on which the clocks of a zone change."""
    noons = [datetime(2025, 12, 30, 12, tzinfo=UTC) + timedelta(days=day) for day in range(371)]
    local = [each.astimezone(ZoneInfo(zone)) for each in noons]
    return {after.date() for before, after in pairwise(local) if before.utcoffset() != after.utcoffset()}
