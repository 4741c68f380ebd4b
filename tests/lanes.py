"""Which tests run one after the other in one process of a parallel run, and which of them begin first.

A lane is the unit that pytest-xdist gives to a worker. The tests that share a control plane form a lane: two lanes
for tests/cluster, each with a sandbox of its own, and one for the real node, of which a machine has at most one. They
mostly wait, so they begin first. Of all other tests each file is a lane, taken by any worker that is free.
"""

from pathlib import PurePosixPath
from typing import Final

import pytest

FIRST_SANDBOX: Final = "cluster, first sandbox"
SECOND_SANDBOX: Final = "cluster, second sandbox"
REAL_NODE: Final = "real node"
SANDBOXES: Final = "sandboxes"
RIGHTS: Final = "rights"
# They have a control plane to themselves, and keep the priority of the processes that they start.
CONTROL_PLANES: Final = (FIRST_SANDBOX, SECOND_SANDBOX, REAL_NODE, SANDBOXES)

# The ids of the tests that were collected, before marks and names left any out.
COLLECTED: Final = pytest.StashKey[list[str]]()

# Half of the time of tests/cluster by `pytest tests/cluster --durations=0`. A new file runs in the first sandbox.
_IN_SECOND_SANDBOX: Final = frozenset(
    f"test_{name}.py"
    for name in (
        "agent", "agent_nvml", "agent_process", "apart", "certificates", "chart", "cli", "cli_along", "drivers",
        "edited_by_hand", "explain", "extender", "extender_office", "extender_preempt", "history", "idle", "kill",
        "kube_client", "large_jobs", "memory", "memory_guard", "mps", "notifications", "placement", "plans", "poison",
    )
)  # fmt: skip


def lane(nodeid: str) -> str:
    """The lane of a test."""
    path = PurePosixPath(nodeid.partition("::")[0])
    match path.parts[1:]:
        case ("cluster", file):
            return SECOND_SANDBOX if file in _IN_SECOND_SANDBOX else FIRST_SANDBOX
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


def rank(nodeid: str) -> int:
    """What begins first: the lanes that wait, then what computes longest, at the end what judges by all others."""
    name = lane(nodeid)
    if name in CONTROL_PLANES:
        return CONTROL_PLANES.index(name)
    if name == RIGHTS:
        return 99
    return 50 if name.startswith("tests/core/queue/") else 51
