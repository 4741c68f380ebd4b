"""Returns the memory that start-up took to the node.

Imports leave the C library's heap half empty, and it keeps that memory. One agent runs on every node, next to the
node's work.
"""

import ctypes
import gc


def give_back() -> None:
    """Trim the heap. Call it once everything is imported."""
    gc.collect()
    gc.freeze()  # current objects stay: no later collection needs to traverse them
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # a C library other than glibc
        return
    trim(0)
