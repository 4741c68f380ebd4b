"""What of guarantees is lent and what waits within them, computed again: nothing twice, nothing that nobody borrows."""

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.queue.limits.guarantee_status import guarantee_of, lent, waiting
from dovetail.queue.limits.guarantees import loans_of, quota_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.gate import Refused
from tests.core.queue.quota_tree.builders import make_loans, make_quota, make_tree

NAMES = ("a", "b", "c")
MILLI = 1000
REFUSED = Refused(reason="QuotaExceeded", message="it may not start")


@given(
    guaranteed=st.lists(st.integers(0, 6), min_size=3, max_size=3),
    used=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    guests=st.integers(0, 6),
    spare=st.integers(0, 8),
)
def test_quotas_lend_in_proportion_what_others_use_beyond_what_is_nobodys(
    guaranteed: list[int], used: list[int], guests: int, spare: int
) -> None:
    running = {f"of-{name}": (name, gpus) for name, gpus in zip(NAMES, used, strict=True) if gpus}
    running |= {"guest": ("guest", guests)} if guests else {}
    gpus = max(sum(guaranteed) + spare, sum(used) + guests)
    loans = make_loans(
        *(make_quota(name, guaranteed=each) for name, each in zip(NAMES, guaranteed, strict=True)),
        gpus=gpus, running=running, waiting={},
    )  # fmt: skip
    amounts = {node.name: amount for node, (amount, *_) in zip(loans.tree.nodes, lent(loans), strict=True)}
    idle = {name: max(0, has - uses) for name, has, uses in zip(NAMES, guaranteed, used, strict=True)}
    borrowed = {name: max(0, uses - has) for name, has, uses in zip(NAMES, guaranteed, used, strict=True)}
    beyond = sum(borrowed.values()) + guests - (gpus - sum(guaranteed))
    whole = max(0, min(sum(idle.values()), beyond))
    for name in NAMES:
        share = Fraction(idle[name] * whole * MILLI, sum(idle.values())) if whole else Fraction(0)
        assert 0 <= share - amounts[name] < 1
        told = guarantee_of(name, loans=loans, lent=lent(loans), waiting=[[0]] * len(NAMES))
        assert told is not None
        assert (told.used, told.borrowed) == (used[NAMES.index(name)], borrowed[name])


def counted(at: int, *, namespace: str, workers: int, least: int | None, queued: bool) -> Counted:
    return Counted(
        uid=f"job-{at}", subject=Subject(namespace=namespace, user="ada"), milli=workers * MILLI, queued=queued,
        workers=workers, least=least, refused=REFUSED if at % 7 == 6 else None,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_what_waits_within_a_guarantee_is_no_more_than_fits_in_it_one_job_after_the_other(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        waits_within(random)


def waits_within(random: Random) -> None:
    guaranteed = {name: random.randint(0, 9) for name in NAMES}
    quotas = tuple(make_quota(name, guaranteed=each) for name, each in guaranteed.items())
    jobs = []
    for at in range(random.randint(1, 14)):
        workers, least = random.randint(1, 4), random.choice([None, None, 1, 2])
        jobs.append(
            counted(
                at, namespace=random.choice([*NAMES, "guest"]), workers=workers,
                least=None if least is None else min(least, workers), queued=random.random() < 0.7,
            )
        )  # fmt: skip
    loans = loans_of(
        make_tree(*quotas, gpus=32), counted=jobs, pods=(), recent={},
        quota_of=lambda subject: quota_of(quotas, subject=subject),
    )  # fmt: skip
    expected = dict.fromkeys(NAMES, 0)
    for name, has in guaranteed.items():
        own = [each for each in jobs if each.subject.namespace == name]
        left = has - sum(each.workers for each in own if not each.queued)
        for each in own:
            if each.queued and each.refused is None:
                takes = next((gpus for gpus in (each.workers, each.least) if gpus is not None and gpus <= left), 0)
                left -= takes
                expected[name] += takes
    nodes = zip(loans.tree.nodes, waiting(loans, counted=jobs), strict=True)
    assert {node.name: amount for node, (amount, *_) in nodes} == {
        name: MILLI * each for name, each in expected.items()
    }
