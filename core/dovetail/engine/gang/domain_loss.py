"""What the use of a domain costs the future, in GPUs: which of several domains a gang should take. Pure.

Two parts add up. The first is the fragmentation term of the queue's plans: what later requests lose on the nodes that
the gang would take. The second is what later gangs lose: a domain with 16 seats that gives 4 away has no more room for
a gang of 16. How large later gangs are is not known, so sizes that are powers of two count alike.

A module of its own: a model of cost, which changes while the search for domains stays.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dovetail.engine.model.columns import Floats, Ints

# Losses that agree in so many digits are equal; then the tightest domain wins.
DIGITS: Final = 3


def on_nodes(domain: Ints, *, seats: Ints, value: Floats, workers: int, count: int) -> Floats:
    """What the best `workers` seats of each of `count` domains cost on their nodes, in GPUs, [count].

    `domain` [n] is that of each node, -1 for none, `seats` [n] how many workers it takes, and `value` [n] the
    fragmentation term of one worker there: higher is better.
    """
    order = np.lexsort((-value, domain))
    of, free = domain[order], seats[order]
    before = np.cumsum(free) - free
    begins = np.searchsorted(of, np.arange(count))
    first = np.append(before, free.sum())[begins]
    inside = of >= 0
    left = workers - (before[inside] - first[of[inside]])
    taken = np.clip(left, 0, free[inside])
    cost = np.bincount(of[inside], weights=taken * value[order][inside], minlength=count)
    return np.asarray(-cost, dtype=np.float64)


def of_later_gangs(capacity: Ints, *, workers: int) -> Floats:
    """How many workers of later gangs the domains lose beyond `workers`, averaged over the gangs' sizes, [domains].

    `capacity` [domains] is how many workers each takes now.
    """
    most = int(capacity.max(initial=1))
    sizes = 2 ** np.arange(most.bit_length())
    return _headroom(capacity, sizes=sizes) - _headroom(np.maximum(0, capacity - workers), sizes=sizes) - workers


def _headroom(capacity: Ints, *, sizes: Ints) -> Floats:
    """How many workers fit in gangs of one size, averaged over the `sizes` [s], [domains]."""
    return np.asarray((capacity[:, np.newaxis] // sizes * sizes).mean(axis=1))


def ranked(loss: Floats, *, capacity: Ints, able: Sequence[int]) -> list[int]:
    """The domains `able`, the least loss first; of equal ones the tightest, then the first.

    `loss` and `capacity` have shape [domains].
    """
    rounded = np.round(loss, DIGITS)
    return sorted(able, key=lambda domain: (rounded[domain], capacity[domain], domain))
