"""Gives back to the node what starting up took: imports leave the C library's heap half empty, and it keeps that."""

import ctypes
import gc


def give_back() -> None:
    """Once all is imported. The agent is one of many things on its node, and there is one on every node."""
    gc.collect()
    gc.freeze()  # what is there now stays: no later collection need walk through it
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except AttributeError:  # a C library other than glibc
        return
    trim(0)
