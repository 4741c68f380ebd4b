"""The kernel's freezer, cgroup v1 and v2: finds a pod's cgroup, freezes and thaws it.

It and its imports use the standard library alone, because the watchdog must be small and start whatever is broken.

NoFreezer   the machine has no usable freezer: names what is missing
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, Protocol

from dovetail_agent.processes.cgroups import MOUNT

State = Literal["thawed", "freezing", "frozen"]
# A pod's cgroup, as both of kubelet's drivers name it. No other pod's cgroup is below it.
_ANY_POD: Final = re.compile(r"(^|-)pod[0-9a-f]{8}[-_]")
_PROBE: Final = "dovetail-probe"


class NoFreezer(Exception):  # noqa: N818 - says what is the matter, as the tree above reads
    """There is no usable freezer. The text is one sentence for people."""


class Freezing(Protocol):
    """One version of the freezer.

    `root` is the mount of its hierarchy; groups are folders below it.
    """

    root: Path

    def freeze(self, group: Path) -> None:
        """Request a freeze of all processes of a group and below; see `state`. Raises `OSError`."""
        ...

    def thaw(self, group: Path) -> None:
        """Thaw the group. Raises `OSError`."""
        ...

    def state(self, group: Path) -> State:
        """Return the group's state. Raises `OSError`."""
        ...


class FreezerV1:
    """cgroup v1: `freezer.state`.

    A group that gets new processes while it freezes can stay in FREEZING.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def freeze(self, group: Path) -> None:
        """Implement `Freezing.freeze`.

        A repeated call includes processes that were forked meanwhile.
        """
        _write(group / "freezer.state", text="FROZEN")

    def thaw(self, group: Path) -> None:
        """Implement `Freezing.thaw`."""
        _write(group / "freezer.state", text="THAWED")

    def state(self, group: Path) -> State:
        """Implement `Freezing.state`."""
        states: dict[str, State] = {"THAWED": "thawed", "FREEZING": "freezing", "FROZEN": "frozen"}
        return states[(group / "freezer.state").read_text(encoding="ascii").strip()]


class FreezerV2:
    """cgroup v2: `cgroup.freeze` has the wanted state, `cgroup.events` the actual one."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def freeze(self, group: Path) -> None:
        """Implement `Freezing.freeze`."""
        _write(group / "cgroup.freeze", text="1")

    def thaw(self, group: Path) -> None:
        """Implement `Freezing.thaw`."""
        _write(group / "cgroup.freeze", text="0")

    def state(self, group: Path) -> State:
        """Implement `Freezing.state`."""
        if (group / "cgroup.freeze").read_text(encoding="ascii").strip() != "1":
            return "thawed"
        events = dict(line.split(" ", 1) for line in (group / "cgroup.events").read_text(encoding="ascii").splitlines())
        return "frozen" if events.get("frozen") == "1" else "freezing"


def freezer_at(mount: Path = MOUNT) -> Freezing:
    """Return the freezer of the hierarchies below `mount`. Raises `NoFreezer`.

    Where v1 and v2 are both mounted, kubelet uses v1.
    """
    if (mount / "cgroup.controllers").exists():
        return FreezerV2(mount)
    if (mount / "freezer" / "cgroup.procs").exists():
        return FreezerV1(mount / "freezer")
    raise NoFreezer(f"there is neither cgroup v2 nor the v1 freezer at {mount}")


def probe(freezing: Freezing) -> None:
    """Freeze and thaw a group of our own next to the pods' groups. Raises `NoFreezer`.

    It is not at the root, where creating groups needs a capability. Without a pod on the node, there is nothing to
    freeze.
    """
    pod = next(pod_groups(freezing.root), None)
    if pod is None:
        raise NoFreezer(f"no pod has a cgroup below {freezing.root}")
    group = pod.parent / _PROBE
    try:
        group.mkdir(exist_ok=True)
        try:
            freezing.freeze(group)
            found = freezing.state(group)
            freezing.thaw(group)
        finally:
            group.rmdir()
    except (OSError, KeyError) as error:
        raise NoFreezer(f"a cgroup of our own in {pod.parent} cannot be frozen: {error}") from error
    if found != "frozen":
        raise NoFreezer(f"an empty cgroup in {pod.parent} did not freeze: it is {found}")


def group_of_pod(root: Path, *, uid: str) -> Path | None:
    """Return the cgroup of a pod, wherever kubelet keeps it; None if there is none."""
    return next((group for group in pod_groups(root) if _is_of(group.name, uid=uid)), None)


def pod_groups(root: Path) -> Iterator[Path]:
    """Yield every pod's cgroup.

    Its name is `pod<uid>` with the cgroupfs driver, `…-pod<uid with underscores>.slice` with systemd's.
    """
    for folder, children, _ in os.walk(root):
        pods = [child for child in children if _ANY_POD.search(child)]
        yield from (Path(folder) / pod for pod in pods)
        children[:] = [child for child in children if child not in pods]


def _is_of(name: str, *, uid: str) -> bool:
    return name == f"pod{uid}" or name.endswith(f"-pod{uid.replace('-', '_')}.slice")


def _write(file: Path, *, text: str) -> None:
    # Without O_CREAT: a deleted group must not reappear as a folder of plain files.
    descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
