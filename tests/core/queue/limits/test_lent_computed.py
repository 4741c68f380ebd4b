"""What of guarantees is lent, computed a second time: nothing is lent twice, and nothing that nobody borrows."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from dovetail.queue.limits.guarantee_status import guarantee_of, lent
from tests.core.queue.quota_tree.builders import make_loans, make_quota

NAMES = ("a", "b", "c")
MILLI = 1000


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
