"""The words for a job that fits, but not beside what is kept for others."""

from dataclasses import replace

import pytest

from dovetail.api.devices import AllocatedDevice
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.claims import Claim
from dovetail.queue.backfill.reservation import Reservation
from dovetail.queue.verdicts import kept_back
from tests.core.queue.backfill.test_backfill import make_job

KEPT = Sentence(reason="Reserved", message="kept until noon")
SHORTAGE = Shortage(reason="Resources", message="Need 2 GPUs, only 1 available")


def reservation(
    *, priority: int = 10, share: float = 1.0, name: str = "team/first", devices: int = 4, number: int = 0
) -> Reservation:
    job = replace(make_job("first", str(devices), priority=priority), name=name, share=share, number=number)
    named = tuple(AllocatedDevice(index=at, uuid=f"d{at}", share_milli=1000, memory_mib=0) for at in range(devices - 1))
    return Reservation(job=job, at_seconds=60.0, claims=(Claim(key="c", node="a", devices=named, unnamed=1),))


@pytest.mark.parametrize(
    ("by", "reason", "whom"),
    [
        (reservation(priority=11), "Priority", "4 GPUs are kept for first, of priority 11"),
        (reservation(priority=10), "Reserved", "4 GPUs are kept for first, which is older"),
        (reservation(priority=10, number=7), "Reserved", "4 GPUs are kept for job 7 (first), which is older"),
        (reservation(priority=10, devices=1), "Reserved", "1 GPU is kept for first, which is older"),
        (reservation(priority=10, share=0.5), "Reserved", "4 GPUs are kept for first, which has used less recently"),
        (
            reservation(priority=11, name="others/secret"), "Priority",
            "4 GPUs are kept for a job of another namespace, of priority 11",
        ),
    ],
    ids=["a higher priority", "an older one", "one with a number", "one GPU", "a smaller share", "another namespace"],
)  # fmt: skip
def test_a_job_that_is_kept_back_is_told_for_whom_and_why(by: Reservation, reason: str, whom: str) -> None:
    job = replace(make_job("j", "2", priority=10), share=1.0)
    found = kept_back(job, by=by, shortage=SHORTAGE)
    assert found.reason == reason
    assert found.message == f"Need 2 GPUs, only 1 available; {whom}"


def test_what_is_kept_for_a_time_says_so_in_its_own_words() -> None:
    found = kept_back(make_job("j"), by=replace(reservation(priority=99), words=KEPT), shortage=SHORTAGE)
    assert (found.reason, found.message) == ("Reserved", "Need 2 GPUs, only 1 available; kept until noon")
