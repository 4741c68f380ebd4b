"""A folder like `/proc` for the agent's tests."""

from collections.abc import Mapping
from pathlib import Path

HOST_NAMESPACE = "pid:[4026531836]"


def make_proc(folder: Path, *, pods: Mapping[int, str | None], namespace: str = HOST_NAMESPACE) -> Path:
    """Processes by number, each of a pod by UID or of none, as the namespace of that name shows them."""
    (folder / "self" / "ns").mkdir(parents=True)
    (folder / "self" / "ns" / "pid").symlink_to(namespace)
    for pid, pod in pods.items():
        (folder / str(pid)).mkdir()
        path = f"/kubepods/burstable/pod{pod}/{pid:064x}" if pod else "/user.slice/user-1000.slice"
        (folder / str(pid) / "cgroup").write_text(f"0::{path}\n", encoding="utf-8")
    return folder


def write_load(folder: Path, *, busy: int, idle: int, total_kib: int = 1000, available_kib: int = 250) -> None:
    """`stat` with that many ticks so far, and `meminfo`."""
    (folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n", encoding="utf-8")
    meminfo = f"MemTotal:       {total_kib} kB\nMemFree:  1 kB\nMemAvailable:   {available_kib} kB\n"
    (folder / "meminfo").write_text(meminfo, encoding="utf-8")
