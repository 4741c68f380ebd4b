"""The turns of waiting jobs between quotas: their order, and what one cycle makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.limits.guarantees import loans_of, quota_of
from dovetail.queue.limits.limits import LimitGate
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.quota_tree.turns import in_turn
from dovetail.queue.verdicts import Admitted
from tests.core.engine.builders import make_ask, make_ledger
from tests.core.queue.quota_tree.builders import make_loans, make_quota, make_tree


def job(namespace: str, gpus: int, *, at: int, priority: int = 10, least: int | None = None) -> Candidate:
    """A job that is named after its time; an elastic one has a GPU for each worker."""
    return Candidate(
        key=f"{namespace}{at}",
        ask=make_ask(str(gpus if least is None else 1)),
        workers=1 if least is None else gpus,
        least=least,
        priority=priority,
        created=f"{at:03d}",
        name=f"{namespace}/{at}",
    )


def cycle(*quotas: GPUQuota, jobs: Sequence[Candidate], gpus: int = 8) -> SchedulingCycle:
    """A cycle over an idle cluster."""
    counted = [
        Counted(
            uid=each.key,
            subject=Subject(namespace=each.name.partition("/")[0], user="ada"),
            milli=round(each.gpus * 1000),
            queued=True,
            workers=each.workers,
            least=each.least,
        )
        for each in jobs
    ]
    loans = loans_of(
        make_tree(*quotas, gpus=gpus),
        counted=counted,
        pods=(),
        quota_of=lambda subject: quota_of(quotas, subject=subject),
        recent={},
    )
    evictor = Evictor(running=(), rules=Rules())
    return SchedulingCycle(make_ledger(n=gpus), sites={}, gate=LimitGate({}, loans=loans), evictor=evictor)


@dataclass(frozen=True, kw_only=True)
class Case:
    says: str
    jobs: tuple[Candidate, ...]
    order: str
    quotas: tuple[GPUQuota, ...] = (make_quota("a", guaranteed=4), make_quota("b", guaranteed=4))


CASES = (
    Case(
        says="priority orders the jobs within the guarantee of one quota",
        jobs=(job("a", 2, at=1), job("a", 2, at=2, priority=20)),
        order="a2 a1",
    ),
    Case(
        says="age orders the jobs within the guarantees of different quotas, whatever their priority",
        jobs=(job("a", 4, at=1), job("b", 4, at=2, priority=20)),
        order="a1 b2",
    ),
    Case(
        says="a young job of high priority takes the place of the oldest one of its quota, which takes its place",
        jobs=(job("a", 2, at=1), job("b", 2, at=2), job("a", 2, at=3, priority=20), job("b", 2, at=4)),
        order="a3 b2 a1 b4",
    ),
    Case(
        says="an elastic job whose fewest workers are within the guarantee comes before a borrower",
        jobs=(job("b", 4, at=1), job("a", 8, at=2, least=4)),
        order="a2 b1",
        quotas=(make_quota("a", guaranteed=4), make_quota("b", guaranteed=0)),
    ),
    Case(
        says="an elastic job that may borrow comes after those that do not",
        jobs=(job("a", 8, at=1, least=4), job("b", 4, at=2)),
        order="b2 a1",
    ),
    Case(
        says="an elastic job that is within the guarantee with all its workers has the place of its age",
        jobs=(job("a", 4, at=1, least=2), job("b", 4, at=2)),
        order="a1 b2",
    ),
    Case(
        says="the jobs of one quota stay behind its elastic one of a higher priority",
        jobs=(job("a", 8, at=1, least=2, priority=20), job("a", 2, at=2), job("b", 4, at=3)),
        order="b3 a1 a2",
    ),
    Case(
        says="an elastic job beyond its guarantee even with its fewest workers borrows",
        jobs=(job("b", 4, at=1), job("a", 8, at=2, least=5)),
        order="b1 a2",
        quotas=(make_quota("a", guaranteed=4), make_quota("b", guaranteed=0)),
    ),
    Case(
        says="an elastic job whose fewest workers are within the department's guarantee comes before those beyond all",
        jobs=(job("b", 4, at=1), job("a", 8, at=2, least=4)),
        order="a2 b1",
        quotas=(
            make_quota("dep", guaranteed=4, parents_only=True),
            make_quota("a", parent="dep", guaranteed=0),
            make_quota("b", guaranteed=0),
        ),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.says)
def test_turns(case: Case) -> None:
    found = cycle(*case.quotas, jobs=case.jobs).in_order(case.jobs)
    assert [each.key for each in found] == case.order.split()


def test_a_job_of_a_model_that_a_guarantee_of_models_alone_does_not_name_borrows() -> None:
    quotas = (make_quota("a", models={"A100": 4}), make_quota("b", guaranteed=0))
    jobs = (job("b", 4, at=1), job("a", 4, at=2))
    waiting = {"b1": ("b", 4), "a2": ("a", 4)}
    for model, order in {"H100": ["b1", "a2"], "A100": ["a2", "b1"]}.items():
        loans = make_loans(*quotas, gpus=8, running={}, waiting=waiting, models=dict.fromkeys(waiting, model))
        assert [each.key for each in in_turn(jobs, loans=loans)] == order


def test_an_elastic_owner_does_not_take_what_another_quota_is_guaranteed() -> None:
    jobs = (job("a", 8, at=1, least=4), job("b", 4, at=2))
    look = cycle(make_quota("a", guaranteed=4), make_quota("b", guaranteed=4), jobs=jobs)
    verdicts = [look.at(each) for each in look.in_order(jobs)]
    assert [len(each.claims) for each in verdicts if isinstance(each, Admitted)] == [1, 4]
