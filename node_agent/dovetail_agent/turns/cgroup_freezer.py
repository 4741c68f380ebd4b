"""The kernel's freezer, cgroup v1 and v2: where a pod's cgroup is, and how it stands still.

Nothing but the standard library, for the watchdog is to be small and to start whatever else is broken.

NoFreezer   the machine has none that we may use: what is missing
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, Protocol

State = Literal["thawed", "freezing", "frozen"]
MOUNT: Final = Path("/sys/fs/cgroup")
# A pod's cgroup, as both of kubelet's drivers name it; no other pod's is below it.
_ANY_POD: Final = re.compile(r"(^|-)pod[0-9a-f]{8}[-_]")
_PROBE: Final = "dovetail-probe"


class NoFreezer(Exception):  # noqa: N818 - says what is the matter, as the tree above reads
    """There is no freezer that may be used. The text is one sentence for people."""


class Freezing(Protocol):
    """One version of the freezer. `root` is where its hierarchy is mounted; groups are folders below it."""

    root: Path

    def freeze(self, group: Path) -> None:
        """Ask that all processes of a group and below stand still; `state` says when they do. Raises `OSError`."""
        ...

    def thaw(self, group: Path) -> None:
        """Let them go on. Raises `OSError`."""
        ...

    def state(self, group: Path) -> State:
        """How a group stands. Raises `OSError`."""
        ...


class FreezerV1:
    """cgroup v1: `freezer.state`. A group that gets new processes while it freezes may linger in FREEZING."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def freeze(self, group: Path) -> None:
        """As the protocol says. Repeated, it takes in what was forked meanwhile."""
        _write(group / "freezer.state", "FROZEN")

    def thaw(self, group: Path) -> None:
        """As the protocol says."""
        _write(group / "freezer.state", "THAWED")

    def state(self, group: Path) -> State:
        """As the protocol says."""
        states: dict[str, State] = {"THAWED": "thawed", "FREEZING": "freezing", "FROZEN": "frozen"}
        return states[(group / "freezer.state").read_text(encoding="ascii").strip()]


class FreezerV2:
    """cgroup v2: `cgroup.freeze` says what is wanted, `cgroup.events` what is."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def freeze(self, group: Path) -> None:
        """As the protocol says."""
        _write(group / "cgroup.freeze", "1")

    def thaw(self, group: Path) -> None:
        """As the protocol says."""
        _write(group / "cgroup.freeze", "0")

    def state(self, group: Path) -> State:
        """As the protocol says."""
        if (group / "cgroup.freeze").read_text(encoding="ascii").strip() != "1":
            return "thawed"
        events = dict(line.split(" ", 1) for line in (group / "cgroup.events").read_text(encoding="ascii").splitlines())
        return "frozen" if events.get("frozen") == "1" else "freezing"


def freezer_at(mount: Path = MOUNT) -> Freezing:
    """The freezer of the hierarchies mounted below `mount`. Raises `NoFreezer`.

    Where v1 and v2 are mounted side by side kubelet uses v1.
    """
    if (mount / "cgroup.controllers").exists():
        return FreezerV2(mount)
    if (mount / "freezer" / "cgroup.procs").exists():
        return FreezerV1(mount / "freezer")
    raise NoFreezer(f"there is neither cgroup v2 nor the v1 freezer at {mount}")


def probe(freezing: Freezing) -> None:
    """Freeze and thaw a group of our own, beside those of pods. Raises `NoFreezer` with what did not work.

    Not at the root, where only a capability lets one make groups; and where there is no pod there is nobody to freeze.
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
    """The cgroup of a pod, wherever kubelet keeps its own; None where there is none (any more)."""
    return next((group for group in pod_groups(root) if _is_of(group.name, uid=uid)), None)


def pod_groups(root: Path) -> Iterator[Path]:
    """Every pod's cgroup: `pod<uid>` by the cgroupfs driver, `…-pod<uid with underscores>.slice` by systemd's."""
    for folder, children, _ in os.walk(root):
        pods = [child for child in children if _ANY_POD.search(child)]
        yield from (Path(folder) / pod for pod in pods)
        children[:] = [child for child in children if child not in pods]


def _is_of(name: str, *, uid: str) -> bool:
    return name == f"pod{uid}" or name.endswith(f"-pod{uid.replace('-', '_')}.slice")


def _write(file: Path, text: str) -> None:
    # Without O_CREAT: a group that is gone must not come back as a folder of plain files.
    descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)
