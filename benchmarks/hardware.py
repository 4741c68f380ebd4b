"""Measure what a machine with NVIDIA devices does. Run it as root, on a node without other work; writes Markdown.

It checks NVML against `nvidia-smi`; a process that computes; an MPS client that is refused beyond its limit, and what a
root client can do to the others (`hardware_mps.py`); two CUDA processes of which one is frozen; a process that moves to
the host and back, with times; and the cost of reading the devices. The agent's own code does each check. A failed check
does not stop the others.

    python benchmarks/hardware.py [--mib 4096] [--seconds 60] [--out out/hardware.md]
"""

import argparse
import ctypes
import itertools
import mmap
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import hardware_mps
from counts import count

from dovetail.api.builtin import Node
from dovetail.api.meta import ObjectMeta
from dovetail_agent.checkpoint import probe
from dovetail_agent.checkpoint.helper_process import HelperCalls
from dovetail_agent.devices.cuda import Context, Driver
from dovetail_agent.devices.discovery import opened
from dovetail_agent.devices.model import Inventory, Process, Provider, Sample
from dovetail_agent.mps.control import PROGRAM
from dovetail_agent.mps.devices import NvmlDevices
from dovetail_agent.turns.cgroup_freezer import Freezing, freezer_at

HERE: Final = Node(metadata=ObjectMeta(name="here", uid="here"))
SMI: Final = ("uuid", "name", "memory.total", "memory.used", "temperature.gpu")
# Memory moves while two programs read it, and so does warmth.
NEAR_MIB: Final = 64
NEAR_CELSIUS: Final = 3
MOST_PERCENT: Final = 0.5
MOST_MIB: Final = 80
BUSY_MIB: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The result of one check: whether it passed, and a sentence with numbers."""

    what: str
    holds: bool
    said: str


def main() -> None:
    """Run all checks and write the results. Exit code 1 if a check fails that Dovetail relies on."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--mib", type=count, default=4096, help="how much memory a process that is moved takes (4096)")
    options.add_argument("--seconds", type=float, default=60.0, help="how long the cost of looking is measured (60)")
    options.add_argument("--program", default=PROGRAM, help=f"MPS's control program ({PROGRAM})")
    options.add_argument("--out", type=Path, default=Path("out/hardware.md"))
    args = options.parse_args()
    checks: dict[str, Callable[[], tuple[bool, str]]] = {
        "NVML agrees with nvidia-smi": against_smi,
        "a process that computes is seen": at_work,
        **{what: partial(check, args.program) for what, check in hardware_mps.CHECKS.items()},
        "of two CUDA processes the frozen one stops": frozen,
        "a process goes to the host and comes back": lambda: moved(args.mib),
        "looking costs little": lambda: cost(args.seconds),
    }
    found = [tried(what, check) for what, check in checks.items()]
    asked = [tried(what, partial(check, args.program)) for what, check in hardware_mps.QUESTIONS.items()]
    text = page([*found, *asked])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    sys.exit(0 if all(each.holds for each in found) else 1)


def tried(what: str, check: Callable[[], tuple[bool, str]]) -> Found:
    """The check's result; an exception counts as a failed check."""
    try:
        holds, said = check()
    except Exception as error:  # noqa: BLE001 - the others go on
        traceback.print_exc()
        holds, said = False, f"{type(error).__name__}: {error}"
    return Found(what=what, holds=holds, said=said)


def page(found: Sequence[Found]) -> str:
    """The table, with the description of the machine."""
    rows = [f"| {each.what} | {'yes' if each.holds else 'no'} | {each.said} |" for each in found]
    now = datetime.now(UTC).strftime("%Y-%m-%d")
    return "\n".join([f"## {machine()}, {now}", "", "| | | |", "|---|---|---|", *rows]) + "\n"


def machine() -> str:
    """The devices and the driver."""
    try:
        inventory, _ = looked()
    except Exception as error:  # noqa: BLE001 - the page says so
        return f"cards that cannot be read ({error})"
    models = sorted({device.model for device in inventory.devices})
    return f"{len(inventory.devices)} x {', '.join(models)}, driver {inventory.driver_version}"


def looked() -> tuple[Inventory, Sample]:
    """One read by the agent's own code."""
    with opened("nvml", node="here", look_every=timedelta(seconds=5)) as provider:
        inventory = provider.inventory(HERE)
        return inventory, provider.sample(inventory, node=HERE, tenants=(), now=datetime.now(UTC))


def against_smi() -> tuple[bool, str]:
    """Compare every device with the output of `nvidia-smi`."""
    inventory, sample = looked()
    command = ["nvidia-smi", f"--query-gpu={','.join(SMI)}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    by_uuid = {cells[0]: cells for line in lines if (cells := [cell.strip() for cell in line.split(",")])}
    differ = []
    for device, state in zip(inventory.devices, sample.devices, strict=True):
        _, name, total, used, celsius = by_uuid[device.uuid]
        same = device.model == name and abs(device.memory_mib - int(total)) <= 1
        near = abs((state.used_mib or 0) - int(used)) <= NEAR_MIB + device.reserved_mib
        warm = abs((state.temperature_celsius or 0) - int(celsius)) <= NEAR_CELSIUS
        if not (same and near and warm):
            differ.append(device.uuid)
    return not differ, f"{len(by_uuid)} cards" + (f"; different: {', '.join(differ)}" if differ else ", all alike")


def at_work() -> tuple[bool, str]:
    """Run a process that computes; the agent's own look has its PID, its memory and what it uses of the device."""
    with busy() as one, opened("nvml", node="here", look_every=timedelta(seconds=1)) as provider:
        until(lambda: one.passes > 0, seconds=30.0)
        until(lambda: computing(provider, pid=one.pid) is not None, seconds=20.0)
        process = computing(provider, pid=one.pid)
    assert process is not None and process.utilization is not None, "it was there just now"  # noqa: PT018 - no test
    used = process.used_mib or 0
    return (
        used >= BUSY_MIB,
        f"with {BUSY_MIB} MiB of its own it uses {used} MiB and {process.utilization:.0%} of the time",
    )


def computing(provider: Provider, *, pid: int) -> Process | None:
    """The process in the agent's last look, if it had work there."""
    sample = provider.sample(provider.inventory(HERE), node=HERE, tenants=(), now=datetime.now(UTC))
    processes = (process for device in sample.devices for process in device.processes or ())
    return next((process for process in processes if process.pid == pid and process.utilization), None)


def frozen() -> tuple[bool, str]:
    """Run two computing processes; the agent's freezer freezes one for two seconds, the other continues."""
    freezing = freezer_at()
    with busy() as one, busy() as other, group(freezing, one.pid) as folder:
        until(lambda: bool(one.passes and other.passes), seconds=30.0)
        freezing.freeze(folder)
        until(lambda: freezing.state(folder) == "frozen", seconds=10.0)
        before = one.passes, other.passes
        time.sleep(2.0)
        stood, went = one.passes - before[0], other.passes - before[1]
        freezing.thaw(folder)
        until(lambda: one.passes > before[0], seconds=10.0)
    # Work that was queued on the device before the freeze does not count: the process counts, and it is frozen.
    return (
        stood == 0 < went,
        f"in 2 s the frozen one made {stood} passes over its memory, the other {went}; then both went on",
    )


def until(holds: Callable[[], bool], *, seconds: float) -> None:
    """Wait for the condition. Raises `TimeoutError`."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"nothing came of it in {seconds:g} s")
        time.sleep(0.02)


class Busy:
    """A computing process that counts its passes in a place that stays readable while it is frozen."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "passes"
        self._file.write_bytes(bytes(8))
        self.child = subprocess.Popen([sys.executable, __file__, "--compute", str(self._file)], stdin=subprocess.PIPE)
        self.pid = self.child.pid

    @property
    def passes(self) -> int:
        """The number of passes so far."""
        return int.from_bytes(self._file.read_bytes(), "little")


@contextmanager
def busy() -> Iterator[Busy]:
    """Run one on the first device until the context ends."""
    with tempfile.TemporaryDirectory(prefix="dovetail-busy-") as folder:
        made = Busy(Path(folder))
        try:
            yield made
        finally:
            made.child.communicate(timeout=30)


def compute(file: Path) -> None:
    """Compute until the standard input ends."""
    driver = Driver()
    driver.init()
    _context, pointer, size = Context(driver), ctypes.c_uint64(), BUSY_MIB << 20
    driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
    with file.open("r+b") as opened_file, mmap.mmap(opened_file.fileno(), 8) as counted:
        for at in itertools.count(1):
            if select.select([sys.stdin], [], [], 0)[0]:
                return
            driver.call("cuMemsetD8_v2", pointer, ctypes.c_ubyte(at % 256), ctypes.c_size_t(size))
            driver.call("cuCtxSynchronize")
            counted[:8] = at.to_bytes(8, "little")


@contextmanager
def group(freezing: Freezing, pid: int) -> Iterator[Path]:
    """A separate cgroup with that process, which returns to the root cgroup afterwards."""
    folder = freezing.root / f"dovetail-hardware-{pid}"
    folder.mkdir()
    try:
        (folder / "cgroup.procs").write_text(str(pid))
        yield folder
    finally:
        freezing.thaw(folder)
        (freezing.root / "cgroup.procs").write_text(str(pid))
        folder.rmdir()


def moved(mib: int) -> tuple[bool, str]:
    """Run the agent's own probe, and then the same with this much memory, timed."""
    calls, cards = HelperCalls(variables=os.environ), NvmlDevices()
    try:
        verdict = probe.probed(calls, cards=cards, variables=os.environ)
        if not verdict.live:
            return False, verdict.message
        return True, f"{verdict.message}; {timed(calls, cards, mib=mib)}"
    finally:
        calls.stop()


def timed(calls: HelperCalls, cards: NvmlDevices, *, mib: int) -> str:
    """Seconds to move this much memory out and back, and the free memory meanwhile."""
    command = [sys.executable, "-m", "dovetail_agent.checkpoint.probe", str(mib)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None, "it is a pipe"
        if (ready := child.stdout.readline().strip()) != "ready":
            return f"{mib} MiB could not be taken: {ready}"
        held = max(card.free_mib for card in cards.list_devices().values())
        begin = time.monotonic()
        calls.lock(child.pid, timeout_ms=5000)
        calls.checkpoint(child.pid)
        out, away = time.monotonic() - begin, max(card.free_mib for card in cards.list_devices().values())
        begin = time.monotonic()
        calls.restore(child.pid)
        calls.unlock(child.pid)
        back = time.monotonic() - begin
    finally:
        child.communicate(timeout=60)
    room = f"free on the emptiest card {held} MiB, meanwhile {away} MiB"
    return f"{mib} MiB out in {out:.2f} s, back in {back:.2f} s; {room}"


def cost(seconds: float) -> tuple[bool, str]:
    """CPU of the thread that reads the devices at its usual rate, and the memory of the process."""
    with opened("nvml", node="here", look_every=timedelta(seconds=30)):
        before = resource.getrusage(resource.RUSAGE_SELF)
        time.sleep(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    percent, mib = 100 * used / seconds, after.ru_maxrss // 1024
    return percent <= MOST_PERCENT and mib <= MOST_MIB, f"{percent:.2f} % of one core and {mib} MiB, over {seconds:g} s"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--compute"]:
        compute(Path(sys.argv[2]))
    else:
        main()
