"""Limits beside room: who is kept back by them, and what that does to the others."""

from dataclasses import replace

from dovetail.queue.cycle import admit
from dovetail.queue.estimates.simulation import foresee
from dovetail.queue.model.candidates import Candidate, order
from dovetail.queue.model.gate import APART, Refused
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, make_job, run


class AtMost:
    """So many jobs side by side."""

    def __init__(self, most: int, *, running: int = 0) -> None:
        self.most = most
        self.running = running
        self.loans = None

    def terms_of(self, job: Candidate) -> object:
        return APART

    def refusal(self, job: Candidate) -> Refused | None:
        if self.running < self.most:
            return None
        return Refused(reason="Quota", message=f"{self.running} of {self.most} jobs run already")

    def workers(self, job: Candidate) -> int:
        return job.workers

    def narrows(self, job: Candidate) -> str:
        return ""

    def started(self, job: Candidate) -> None:
        self.running += 1

    def ended(self, key: str) -> None:
        self.running -= 1


def verdicts(*waiting: Candidate, gpus: int, most: int) -> dict[str, str]:
    found = admit(waiting, ledger=make_ledger(a=gpus), sites={}, gate=AtMost(most))
    return {each.name: verdict.reason if isinstance(verdict, Waits) else "" for each, verdict in zip(
        order(waiting), found, strict=True)}  # fmt: skip


def test_a_job_beyond_its_limit_waits_beside_free_devices() -> None:
    waiting = [make_job("a", "1"), make_job("b", "1", at=1)]
    assert verdicts(*waiting, gpus=4, most=1) == {"team/a": "", "team/b": "Quota"}


def test_what_can_never_fit_is_told_so_before_its_limit() -> None:
    assert verdicts(make_job("a", "9"), gpus=4, most=0) == {"team/a": "ExceedsCapacity"}


def test_the_limit_is_told_before_the_shortage() -> None:
    ledger = make_ledger(a=4)
    run(ledger, make_job("r", "4", hours=1))
    (verdict,) = admit([make_job("a", "2")], ledger=ledger, sites={}, gate=AtMost(0))
    assert isinstance(verdict, Waits)
    assert verdict.reason == "Quota"


def test_a_job_that_its_limit_keeps_back_reserves_nothing() -> None:
    ledger = make_ledger(a=4)
    leaving = run(ledger, make_job("r", "3", hours=3))
    waiting = [make_job("large", "4"), make_job("next", "1", at=1)]

    class NotTheLarge(AtMost):
        def refusal(self, job: Candidate) -> Refused | None:
            return Refused(reason="Quota", message="no") if job.name == "team/large" else None

    found = {each.key: each for each in admit(waiting, ledger=ledger, sites={}, leaving=leaving, gate=NotTheLarge(9))}
    assert isinstance(found["uid-next"], Admitted)


def test_looking_ahead_a_job_starts_when_its_limit_lets_it() -> None:
    ledger = make_ledger(a=4)
    leaving = run(ledger, make_job("r", "1", hours=2))
    seen = foresee([make_job("a", "1")], ledger=ledger, sites={}, leaving=leaving, gate=AtMost(1, running=1))
    assert [start.in_seconds / HOUR for start in seen if start is not None] == [2]


def test_of_one_priority_those_go_first_who_have_used_less() -> None:
    heavy, light = make_job("heavy", "1"), make_job("light", "1", at=1)
    assert order([replace(heavy, share=0.7), light]) == (light, replace(heavy, share=0.7))
    assert order([replace(heavy, share=0.7, priority=11), light])[0].name == "team/heavy"
