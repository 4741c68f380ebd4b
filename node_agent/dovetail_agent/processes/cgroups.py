"""Finds the pod of a process from its cgroup path. Pure.

Kubelet writes the pod's UID and the runtime the container's ID into the path. The format differs by cgroup version,
cgroup driver and runtime, so both are searched for anywhere in the path.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Where the kernel's cgroups are on a node.
MOUNT: Final = Path("/sys/fs/cgroup")
# A systemd slice must not contain dashes within a name, so kubelet writes the UID with underscores there. Static pods
# have a hash of their manifest in the place of a UID.
_POD: Final = re.compile(
    r"(?<![0-9a-z])pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
_CONTAINER: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The pod UID of a process, and its container ID; empty for a process outside containers."""

    pod_uid: str
    container_id: str = ""


def owner_in(text: str) -> Owner | None:
    """Return the owner from the text of `/proc/<pid>/cgroup`; None for a process outside pods.

    Of several hierarchies (cgroup v1), each names the same pod or is unused. Where a container runs containers of its
    own, as in a nested cluster, the outer pod counts: this node's kubelet knows that one.
    """
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        if pod := _POD.search(path):
            container = _CONTAINER.search(path, pod.end())
            return Owner(pod_uid=pod[1].replace("_", "-"), container_id=container[0] if container else "")
    return None
