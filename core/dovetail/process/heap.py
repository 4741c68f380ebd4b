"""The memory of a long-lived process: what the garbage collector passes over, and what goes back to the node.

Pages of free memory between objects that live stay with the C library. In a soak of 5 minutes it kept 4 to 6 MiB of
each program's memory this way, and more the longer a program ran.
"""

import ctypes
import gc
from collections.abc import Callable
from typing import Final

from dovetail.process.guarded_loops import repeat

# A trim takes about a millisecond, and the pages that are needed again as long.
_TRIM_SECONDS: Final = 60.0


def keep_for_good() -> None:
    """Exclude everything that is in memory now from later garbage collections, and trim the heap.

    Call this once the caches are complete: with 40,000 pods a full collection visits 570,000 objects and stops
    everything for a quarter of a second or more. Objects without references are still freed. Another call first frees
    what was excluded before and is garbage since: an extender builds all its caches again for each term, and programs
    that share a process call this one after the other.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    # The collector waits until a quarter as many objects are new as the last full collection has left. For this one
    # that is none, so cycles do not pile up until they are a quarter of all that was excluded.
    gc.collect()
    trim()


async def trim_always() -> None:
    """Trim the heap every minute until cancelled."""
    await repeat(trim, every_seconds=_TRIM_SECONDS, what="the heap")


def trim() -> None:
    """Give the pages of free memory back. Does nothing with a C library other than glibc."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return
    found(0)
