"""Builds our stand-in for NVIDIA's library, and writes the scenarios that it plays."""

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("nvml.c")
LIBRARY = "libnvidia-ml.so.1"
UNINITIALIZED, NOT_SUPPORTED, DRIVER_NOT_LOADED, GPU_IS_LOST = 1, 3, 9, 15
INSUFFICIENT_RESOURCES = 23
# The driver's ids of an H100's profiles.
ONE, TWO, THREE, FOUR, SEVEN = 19, 14, 9, 5, 0
H100 = {
    "total": 81559, "reserved": 551, "used": 0, "util": 0, "celsius": 31, "power": 70_400, "sm": 1980, "mem": 2619,
    "throttle": 1, "major": 9, "minor": 0, "ecc_corrected": 0, "ecc_uncorrected": 0, "rows": 0,
    "mode": 0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process on a card, or on the MIG device `slice` of it. Kind c, g or m (compute, graphics, under MPS)."""

    pid: int
    mib: int
    card: int = 0
    slice: int = -1
    kind: str = "c"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What the library plays.

    `figures` differ from an idle H100's, by card. `answers` are (call, card, code), `first_answers` are (call, card,
    code, how often). `slices` are MIG devices by memory alone, `instances` those of a profile's id at a memory slice.
    """

    cards: int = 2
    model: str = "NVIDIA H100 80GB HBM3"
    driver: str = "580.65.06"
    figures: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    processes: Sequence[Process] = ()
    slices: Mapping[int, Sequence[int]] = field(default_factory=dict)
    instances: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    peers: Mapping[int, Sequence[int]] = field(default_factory=dict)
    answers: Sequence[tuple[str, int, int]] = ()
    first_answers: Sequence[tuple[str, int, int, int]] = ()
    delays_ms: Mapping[str, int] = field(default_factory=dict)
    xids: Sequence[tuple[int, int]] = ()
    busy: Sequence[tuple[int, int, int]] = ()  # card, pid, percent

    def text(self) -> str:
        """As the library reads it."""
        lines = [f"driver {self.driver}", "cuda 13000", f"cards {self.cards}"]
        for card in range(self.cards):
            lines.append(f"model {card} {self.model}")
            figures = H100 | {"mig": int(card in {*self.slices, *self.instances})} | dict(self.figures.get(card, {}))
            lines += [f"card {card} {key} {value}" for key, value in figures.items()]
        lines += [f"slice {card} {at} {mib}" for card, sizes in self.slices.items() for at, mib in enumerate(sizes)]
        lines += [
            f"instance {card} {place} {profile} {start}"
            for card, instances in self.instances.items()
            for place, (profile, start) in enumerate(instances)
        ]
        lines += [f"process {each.card} {each.slice} {each.pid} {each.kind} {each.mib}" for each in self.processes]
        lines += [f"peer {card} {other}" for card, others in self.peers.items() for other in others]
        lines += [f"answer {call} {card} {code}" for call, card, code in self.answers]
        lines += [f"answer {call} {card} {code} {times}" for call, card, code, times in self.first_answers]
        lines += [f"delay {call} {milliseconds}" for call, milliseconds in self.delays_ms.items()]
        lines += [f"xid {card} {xid}" for card, xid in self.xids]
        lines += [f"busy {card} {pid} {percent}" for card, pid, percent in self.busy]
        return "\n".join(lines) + "\n"


@functools.cache
def built(*, old_driver: bool = False) -> Path:
    """A folder with the library; an old driver's lacks the second versions of its calls. Skips without a compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc: apt-get install gcc libc6-dev")
    folder = Path(tempfile.mkdtemp(prefix="dovetail-nvml-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    flags = ["-DOLD_DRIVER"] if old_driver else []
    command = ["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", *flags]
    subprocess.run([*command, "-o", str(folder / LIBRARY), str(SOURCE), "-lpthread"], check=True)
    return folder


class Stub:
    """The library, loaded into this process."""

    def __init__(self, *, old_driver: bool = False) -> None:
        self.library = ctypes.CDLL(str(built(old_driver=old_driver) / LIBRARY))

    def play(self, scenario: Scenario) -> None:
        """From now on."""
        self.library.stub_load(scenario.text().encode(errors="surrogateescape"))


def card_uuid(index: int) -> str:
    """The UUID of a card as the library has it."""
    return f"GPU-00000000-0000-4000-8000-{index:012d}"
