"""How long a group of plain pods keeps the seats of those that failed."""

from types import SimpleNamespace
from typing import Any

from dovetail.api.gpujob import GPUJob, GPUJobSpec
from dovetail.api.meta import ObjectMeta, OwnerReference
from dovetail.jobs.guests.kind import Guest as JobGuest
from dovetail.jobs.guests.pod_group import POD_GROUPS, PodGroup
from dovetail_operator.watchers.guests.directory import Known
from dovetail_operator.watchers.guests.seat_counts import REPLACED_SECONDS, SeatCounts


def group(*, failed: int) -> Known:
    status = {"succeeded": 0, "failed": failed}
    meta = ObjectMeta(name="x", namespace="team", uid="uid-x")
    return Known(guest=PodGroup(metadata=meta, spec={"pods": []}, status=status, failed=failed), kind=POD_GROUPS)


def test_a_count_that_changes_while_a_timer_runs_is_looked_at_again_when_its_own_time_is_over() -> None:
    now, looks = 0.0, list[float]()
    state: Any = SimpleNamespace(store=SimpleNamespace(pods=SimpleNamespace(of_run=lambda _uid: ())))
    guests: Any = SimpleNamespace(added_to=lambda _key: ())
    counts = SeatCounts(
        state, guests=guests, look_again=lambda _key, seconds: looks.append(now + seconds), clock=lambda: now
    )
    record = GPUJob(metadata=ObjectMeta(name="podgroup-x", namespace="team", uid="uid"), spec=GPUJobSpec(workers=3))

    def look(*, at: float, failed: int) -> int:
        nonlocal now
        now = at
        return counts.coming(group(failed=failed), record=record)

    look(at=0.0, failed=1)
    look(at=12.0, failed=2)
    # The work queue keeps the earlier of two timers of a key.
    first = min(looks)
    looks.clear()
    assert look(at=first, failed=2) == 0
    assert looks, "no other look is due"
    assert looks[-1] > 12.0 + REPLACED_SECONDS
    assert look(at=12.0 + REPLACED_SECONDS, failed=2) == -2


def test_only_unfinished_pods_wait_or_run_by_themselves() -> None:
    pod = OwnerReference(api_version="v1", kind="Pod", name="a", uid="uid-a")
    groups = [PodGroup(going=[pod]), PodGroup(), JobGuest(spec={"going": [1]})]
    guests: Any = SimpleNamespace(added_to=lambda _key: [SimpleNamespace(guest=each) for each in groups])
    state: Any = SimpleNamespace()
    counts = SeatCounts(state, guests=guests, look_again=lambda _key, _seconds: None)
    assert counts.added(group(failed=0)) == 1
