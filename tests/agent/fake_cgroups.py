"""A cgroup tree of plain files, and a kernel that follows what is written there whenever somebody sleeps."""

from pathlib import Path

UID = "0b8a4d5e-7c1f-4b6e-9a55-2f8f6f1d3c90"
OTHER = "11111111-2222-3333-4444-555555555555"


class FakeKernel:
    """Both versions. `late` is how many sleeps a group takes to freeze; None: it never does."""

    def __init__(self, root: Path, *, version: int) -> None:
        self.late: int | None = 0
        self.seconds = 0.0
        self.mount = root
        self._version = version
        self._root = root if version == 2 else root / "freezer"
        self._root.mkdir(parents=True, exist_ok=True)
        (self._root / ("cgroup.controllers" if version == 2 else "cgroup.procs")).touch()

    def clock(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.tick()

    def add(self, path: str) -> Path:
        group = self._root / path
        group.mkdir(parents=True)
        if self._version == 2:
            (group / "cgroup.freeze").write_text("0\n")
            (group / "cgroup.events").write_text("populated 1\nfrozen 0\n")
        else:
            (group / "freezer.state").write_text("THAWED\n")
        return group

    def tick(self) -> None:
        """One step of the kernel: v2 says in cgroup.events what has become of a wish."""
        if self.late is not None and self.late > 0:
            self.late -= 1
            return
        for wish in self._root.rglob("cgroup.freeze"):
            frozen = wish.read_text().strip() == "1" and self.late is not None
            (wish.parent / "cgroup.events").write_text(f"populated 1\nfrozen {int(frozen)}\n")

    def stands(self, group: Path) -> bool:
        """Whether its processes were told to stand still."""
        if self._version == 2:
            return (group / "cgroup.freeze").read_text().strip() == "1"
        return (group / "freezer.state").read_text().strip() != "THAWED"
