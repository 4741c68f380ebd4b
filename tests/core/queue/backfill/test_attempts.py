"""For how many jobs that do not fit a reservation is looked for."""

from dovetail.queue.backfill.residual import Tries
from tests.core.engine.builders import hold_devices, make_ledger
from tests.core.queue.backfill.test_backfill import make_job


def test_after_three_shapes_only_those_count_that_ends_could_make_room_for_and_six_at_most() -> None:
    ledger = make_ledger(a=8)
    hold_devices(ledger, "a", *range(8), key="ends")
    tries = Tries(ledger, sites={})
    hopeless = [make_job(f"h{gpus}", str(gpus)) for gpus in range(9, 14)]
    hopeful = [make_job(f"j{gpus}", str(gpus)) for gpus in range(1, 6)]
    assert [tries.take(job, ends=["ends"]) for job in hopeless] == [True, True, True, False, False]
    assert [tries.take(job, ends=["ends"]) for job in hopeful] == [True, True, True, False, False]


def test_a_shape_is_tried_once_in_a_look_and_once_more_in_the_next() -> None:
    tries = Tries(make_ledger(a=8), sites={})
    assert [tries.take(make_job(name), ends=[]) for name in "ab"] == [True, False]
    tries.clear()
    assert tries.take(make_job("c"), ends=[])


def test_the_ledger_is_as_before() -> None:
    ledger = make_ledger(a=2)
    hold_devices(ledger, "a", 0, 1, key="ends")
    tries = Tries(ledger, sites={})
    for gpus in range(1, 6):
        tries.take(make_job(f"j{gpus}", str(gpus)), ends=["ends"])
    assert ledger.claim("ends") is not None
