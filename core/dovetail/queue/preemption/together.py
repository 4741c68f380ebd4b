"""Which jobs may end together: each one alone may leave its quota its guarantee, and all of them less. Pure."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dovetail.queue.preemption.victims import Running
from dovetail.queue.quota_tree.loans import Loans


@contextmanager
def without(victims: Sequence[Running], *, loans: Loans, may_end: Callable[[Running], bool]) -> Iterator[list[Running]]:
    """Uncount the victims one by one, those that may end after all earlier ones, within the context."""
    ended = list[Running]()
    for each in victims:
        if may_end(each):
            loans.end(each.key)
            ended.append(each)
    try:
        yield ended
    finally:
        for each in ended:
            loans.start(each.key)


def guarantees_of(victims: Sequence[Running], *, loans: Loans, job: str) -> tuple[object, ...]:
    """What decides which of the victims may end together for a job: their charges, and the quotas above them."""
    charges = [loans.charge(each.key) for each in victims]
    asks, nodes = loans.charge(job), loans.tree.nodes
    quotas = {None if each is None else each.quota for each in (asks, *charges)} - {None}
    above = sorted({at for quota in quotas if quota is not None for at in nodes[quota].path})
    return (
        None if asks is None else asks.quota,
        tuple(None if each is None else (each.quota, each.need) for each in charges),
        tuple((at, nodes[at].path, nodes[at].guaranteed, tuple(loans.used(at))) for at in above),
    )
