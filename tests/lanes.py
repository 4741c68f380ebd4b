"""Which tests run one after the other in one process of a parallel run, and which of them begin first.

A lane is the unit that pytest-xdist gives to a worker. The tests of the real node form a lane, because a machine has at
most one, and so do the tests that start and end sandboxes themselves. Of all other tests each file is a lane, taken by
any worker that is free. A file of tests/cluster that changes or fills its sandbox takes one of two that no other file
uses meanwhile; `tests/scheduler.py` gives out no more of these files than that at a time. The others share a third one.
Lanes with a control plane mostly wait, so they begin first.
"""

from pathlib import PurePosixPath
from typing import Final

import pytest

# The sandboxes of tests/cluster: one that several files use at the same time, and those that a file has for itself.
SHARED_SANDBOX: Final = "cluster, shared"
FREE_SANDBOX: Final = "cluster, free"
# So many of the latter; each file takes one that is free.
FREE_SANDBOXES: Final = 2
REAL_NODE: Final = "real node"
SANDBOXES: Final = "sandboxes"
ONE_QUEUE: Final = "local node, one queue"
RIGHTS: Final = "rights"

# The ids of the tests that were collected, before marks and names left any out.
COLLECTED: Final = pytest.StashKey[list[str]]()

# Files of tests/cluster that several processes run on one sandbox at the same time. Such a file takes a few devices of
# any kind at most, counts none that others may take, and keeps what it changes to its namespace or to nodes of its
# own. It stops no program, and changes no node of nodes.yaml and no setting. Any other file has its sandbox for itself.
_SHARING: Final = frozenset(
    f"test_{name}.py"
    for name in (
        "agent", "chart", "cli_along", "edited_by_hand", "kube_client", "login", "mig", "operator_refusals",
        "ownership", "queue_only",
    )
)  # fmt: skip
# Files that start the sandbox of their tests themselves.
_APART: Final = frozenset(
    f"test_{name}.py"
    for name in (
        "gangs", "gangs_of_roles", "growing", "held_replay", "jobset", "neighbours", "observing", "observing_kueue",
        "trainer",
    )
)  # fmt: skip


def sandbox_of(nodeid: str) -> str | None:
    """The sandbox of a test of tests/cluster in a parallel run; None for a test without, or with one of its own."""
    path = PurePosixPath(nodeid.partition("::")[0])
    if path.parts[1:-1] != ("cluster",) or path.name in _APART:
        return None
    return SHARED_SANDBOX if path.name in _SHARING else FREE_SANDBOX


def lane(nodeid: str) -> str:
    """The lane of a test."""
    path = PurePosixPath(nodeid.partition("::")[0])
    match path.parts[1:]:
        case ("realnode" | "installation", *_):
            return REAL_NODE
        case ("sandbox", "test_sandboxes.py" | "test_soak.py" | "test_backup.py"):
            return SANDBOXES
        case ("local_node", "one_queue", *_):
            return ONE_QUEUE
        case ("guides", "test_local.py" | "test_sandbox.py"):
            return SANDBOXES
        case ("pictures", *_):
            return SANDBOXES
        case ("rights", *_):
            return RIGHTS
    return str(path)


def has_control_plane(nodeid: str) -> bool:
    """Whether the test has a control plane, and keeps the priority of the programs that it starts."""
    return nodeid.startswith("tests/cluster/") or lane(nodeid) in {REAL_NODE, SANDBOXES, ONE_QUEUE}


def rank(nodeid: str) -> int:
    """What begins first: the lanes that wait, then what computes longest, at the end what judges by all others."""
    order = {FREE_SANDBOX: 0, REAL_NODE: 1, SANDBOXES: 2, ONE_QUEUE: 3, SHARED_SANDBOX: 4, RIGHTS: 99}
    if nodeid.startswith("tests/cluster/"):
        return order.get(sandbox_of(nodeid) or "", 3)
    return order.get(lane(nodeid), 50 if nodeid.startswith(("tests/core/queue/", "tests/world/")) else 51)
