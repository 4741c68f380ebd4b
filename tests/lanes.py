"""Which tests run one after the other in one process of a parallel run, and which of them begin first.

A lane is the unit that pytest-xdist gives to a worker. Files of tests/cluster that change or fill their sandbox form
two lanes, each with a sandbox of its own. The others share a third sandbox, each file a lane. The tests of the real
node form a lane, because a machine has at most one. All these mostly wait, so they begin first. Of all other tests each
file is a lane, taken by any worker that is free.
"""

from pathlib import PurePosixPath
from typing import Final

import pytest

FIRST_SANDBOX: Final = "cluster, first sandbox"
SECOND_SANDBOX: Final = "cluster, second sandbox"
SHARED_SANDBOX: Final = "cluster, shared sandbox"
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
        "agent", "chart", "cli_along", "edited_by_hand", "kube_client", "login", "mig", "operator_refusals",
        "ownership", "queue_only",
    )
)  # fmt: skip
# Half of the time of those that run alone. A new file runs in the first sandbox.
_IN_SECOND_SANDBOX: Final = frozenset(
    f"test_{name}.py"
    for name in (
        "agent_nvml", "agent_process", "apart", "certificates", "cli", "drivers", "explain", "extender",
        "extender_office", "extender_preempt", "history", "idle", "kill", "large_jobs", "memory", "memory_guard", "mps",
        "notifications", "placement", "plans", "poison",
    )
)  # fmt: skip


def sandbox_of(nodeid: str) -> str | None:
    """The sandbox of a test of tests/cluster in a parallel run; None for any other test."""
    path = PurePosixPath(nodeid.partition("::")[0])
    if path.parts[1:-1] != ("cluster",):
        return None
    if path.name in _SHARING:
        return SHARED_SANDBOX
    return SECOND_SANDBOX if path.name in _IN_SECOND_SANDBOX else FIRST_SANDBOX


def lane(nodeid: str) -> str:
    """The lane of a test."""
    path = PurePosixPath(nodeid.partition("::")[0])
    match path.parts[1:]:
        case ("cluster", _):
            sandbox = sandbox_of(nodeid)
            return str(path) if sandbox is None or sandbox == SHARED_SANDBOX else sandbox
        case ("realnode" | "installation", *_):
            return REAL_NODE
        case ("sandbox", "test_sandboxes.py" | "test_soak.py" | "test_backup.py" | "test_other_user.py"):
            return SANDBOXES
        case ("local_node", "test_gflowd.py" | "test_lasting_queue.py"):
            return SANDBOXES
        case ("guides", "test_local.py" | "test_sandbox.py"):
            return SANDBOXES
        case ("pictures", *_):
            return SANDBOXES
        case ("rights", *_):
            return RIGHTS
    return str(path)


def has_control_plane(nodeid: str) -> bool:
    """Whether the test has a control plane, and keeps the priority of the programs that it starts."""
    return sandbox_of(nodeid) is not None or lane(nodeid) in {REAL_NODE, SANDBOXES}


def rank(nodeid: str) -> int:
    """What begins first: the lanes that wait, then what computes longest, at the end what judges by all others."""
    order = {FIRST_SANDBOX: 0, SECOND_SANDBOX: 1, REAL_NODE: 2, SHARED_SANDBOX: 3, SANDBOXES: 4, RIGHTS: 99}
    return order.get(
        sandbox_of(nodeid) or lane(nodeid), 50 if nodeid.startswith(("tests/core/queue/", "tests/world/")) else 51
    )
