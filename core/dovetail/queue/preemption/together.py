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
