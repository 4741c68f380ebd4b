"""Which tests run one after the other in one process of a parallel run, and which of them begin first.

A lane is the unit that pytest-xdist gives to a worker. Files of tests/cluster that change or fill their sandbox form a
lane with a sandbox of their own. The others share a second sandbox, each file a lane. The tests of the real node form a
lane, because a machine has at most one. All these mostly wait, so they begin first. Of all other tests each file is a
lane, taken by any worker that is free.
"""

from pathlib import PurePosixPath
from typing import Final

import pytest

ALONE: Final = "cluster, alone on a sandbox"
REAL_NODE: Final = "real node"
SANDBOXES: Final = "sandboxes"
RIGHTS: Final = "rights"

# The ids of the tests that were collected, before marks and names left any out.
COLLECTED: Final = pytest.StashKey[list[str]]()

# Files of tests/cluster that several processes run on one sandbox at the same time. Such a file takes a few devices of
# any kind at most, counts none that others may take, and keeps what it changes to its namespace or to nodes of its
# own. It stops no program, and changes no node of nodes.yaml and no setting. Any other file runs alone.
_SHARING: Final = frozenset(
    f"test_{name}.py"
    for name in (
        "admission", "agent", "agent_nvml", "chart", "cli_along", "edited_by_hand", "kube_client", "login", "mig",
        "mps", "operator_refusals", "ownership", "queue_only",
    )
)  # fmt: skip


def is_shared(nodeid: str) -> bool:
    """Whether the test runs on the sandbox that several processes share."""
    path = PurePosixPath(nodeid.partition("::")[0])
    return path.parts[1:-1] == ("cluster",) and path.name in _SHARING


def lane(nodeid: str) -> str:
    """The lane of a test."""
    path = PurePosixPath(nodeid.partition("::")[0])
    match path.parts[1:]:
        case ("cluster", _):
            return str(path) if is_shared(nodeid) else ALONE
        case ("realnode" | "installation", *_):
            return REAL_NODE
        case ("sandbox", "test_sandboxes.py" | "test_soak.py" | "test_backup.py"):
            return SANDBOXES
        case ("local_node", "test_gflowd.py" | "test_lasting_queue.py"):
            return SANDBOXES
        case ("pictures", *_):
            return SANDBOXES
        case ("rights", *_):
            return RIGHTS
    return str(path)


def has_control_plane(nodeid: str) -> bool:
    """Whether the test has a control plane, and keeps the priority of the programs that it starts."""
    return lane(nodeid) in {ALONE, REAL_NODE, SANDBOXES} or is_shared(nodeid)


def rank(nodeid: str) -> int:
    """What begins first: the lanes that wait, then what computes longest, at the end what judges by all others."""
    order = {ALONE: 0, REAL_NODE: 1, SANDBOXES: 3, RIGHTS: 99}
    if is_shared(nodeid):
        return 2
    return order.get(lane(nodeid), 50 if nodeid.startswith("tests/core/queue/") else 51)
