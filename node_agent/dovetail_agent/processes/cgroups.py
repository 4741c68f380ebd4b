"""Whose a process is, from the cgroup that it lives in. Pure.

A kubelet puts the pod's UID, and the runtime the container's id, into the path; how differs by cgroup version, cgroup
driver and runtime. So both are looked for anywhere in it.
"""

import re
from dataclasses import dataclass
from typing import Final

# A systemd slice must not contain dashes within a name, so kubelet writes the UID with underscores there. Static pods
# have the hash of their manifest in the place of a UID.
_POD: Final = re.compile(
    r"(?<![0-9a-z])pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
_CONTAINER: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The pod of a process, by UID, and its container's id; that is empty for a process beside the containers."""

    pod_uid: str
    container_id: str = ""


def owner_in(text: str) -> Owner | None:
    """The owner that the text of `/proc/<pid>/cgroup` names, or None for a process of no pod.

    Of several hierarchies (cgroup v1) each names the same pod, or is not used at all. Where a container runs
    containers of its own, as a nested cluster does, the outer pod is the one that this node's kubelet knows.
    """
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        if pod := _POD.search(path):
            container = _CONTAINER.search(path, pod.end())
            return Owner(pod_uid=pod[1].replace("_", "-"), container_id=container[0] if container else "")
    return None
