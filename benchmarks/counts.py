"""The numbers of a benchmark's options."""

import argparse


def count(text: str) -> int:
    """A whole number of rounds, nodes, jobs and the like: at least 1. Raises `ArgumentTypeError`."""
    try:
        found = int(text)
    except ValueError:
        found = 0
    if found < 1:
        message = f"must be a whole number of at least 1, not {text!r}"
        raise argparse.ArgumentTypeError(message)
    return found
