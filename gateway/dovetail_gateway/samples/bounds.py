"""How many subjects of one owner have samples of their own. Pure.

Users choose the names of projects, and agents those of devices. Each name costs memory for a month, so without a bound
one user, or one node's stolen token, ends the gateway's process.
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final

from dovetail_gateway.samples.rings import TIERS, Rings

MOST_PROJECTS: Final = 200
# Twice what a report has: a partitioned GPU has other devices.
MOST_DEVICES: Final = 256
# What is beyond a bound counts together. No label has this value.
OTHERS: Final = "(others)"


def admitted(
    subjects: Collection[str], *, rings: Rings, owner: Callable[[str], str], most: int, at: int
) -> Collection[str]:
    """Those of the subjects that get a sample: all that have some already, and new ones up to the bound."""
    new = sorted({each for each in subjects if each not in rings})
    if not new:
        return subjects
    count = Counter(map(owner, rings.subjects))
    if any(count[own] + more > most for own, more in Counter(map(owner, new)).items()):
        rings.forget(before=at - TIERS[-1].span)
        count = Counter(map(owner, rings.subjects))
    found = {*subjects}
    for each in new:
        if count[owner(each)] < most:
            count[owner(each)] += 1
        else:
            found.remove(each)
    return found
