"""A sandbox for the tests of one module or folder."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dovetail_sandbox import bringup, cluster, progress
from dovetail_sandbox.cluster import Cluster


def named() -> str | None:
    """The name of a sandbox that is up already, which the tests are to take and leave up."""
    return os.environ.get("DOVETAIL_TEST_SANDBOX")


@contextmanager
def sandbox_with(**options: Any) -> Iterator[Cluster]:
    """The sandbox that is `named`, or one with these options of `bringup.up` that ends with the context."""
    if name := named():
        yield cluster.get(name)
        return
    own = cluster.get(f"test-{os.getpid()}-{uuid.uuid4().hex[:4]}")
    try:
        yield bringup.up(own.name, report=progress.reporter(), **options)
    finally:
        own.down()
