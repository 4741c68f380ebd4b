"""Builds our stand-ins for the libraries of AMD, Intel and Ascend, and writes the scenarios that they play."""

import atexit
import ctypes
import functools
import importlib.util
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent
LIBRARIES: Final = {
    "amd": ("amdsmi.c", "libamd_smi.so"),
    "intel": ("zes.c", "libze_loader.so.1"),
    "ascend": ("dcmi.c", "libdcmi.so"),
}
MODELS: Final = {
    "amd": "AMD Instinct MI300X",
    "intel": "Intel(R) Data Center GPU Max 1550",
    "ascend": "910B3",
}
BUSY: Final = {
    "total": 65536, "used": 5700, "util": 80, "celsius": 61, "watts": 350, "sm": 1700, "mem": 1300,
    "ecc_corrected": 3, "ecc_uncorrected": 0, "rows": 0,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class VendorScenario:
    """What such a library plays. `figures` differ from a busy card's, by card; None is one that is not supported."""

    vendor: str
    cards: int = 2
    driver: str = "6.14.14"
    model: str = ""
    figures: Mapping[int, Mapping[str, int | None]] = field(default_factory=dict)
    processes: Sequence[tuple[int, int, int]] = ()  # card, pid, MiB
    answers: Sequence[tuple[str, int, int]] = ()
    delays_ms: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """As the library reads it."""
        lines = [f"driver {self.driver}", f"cards {self.cards}"]
        for card in range(self.cards):
            lines.append(f"model {card} {self.model or MODELS[self.vendor]}")
            figures = BUSY | dict(self.figures.get(card, {}))
            lines += [f"card {card} {key} {value}" for key, value in figures.items() if value is not None]
        lines += [f"process {card} {pid} {mib}" for card, pid, mib in self.processes]
        lines += [f"answer {call} {card} {code}" for call, card, code in self.answers]
        lines += [f"delay {call} {milliseconds}" for call, milliseconds in self.delays_ms.items()]
        return "\n".join(lines) + "\n"


@functools.cache
def built_vendor(vendor: str) -> Path:
    """A ROCm-like folder with the library in its `lib`. Skips without a compiler, and for AMD without its binding."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler: apt-get install gcc libc6-dev")
    folder = Path(tempfile.mkdtemp(prefix=f"dovetail-{vendor}-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "lib").mkdir()
    source, library = LIBRARIES[vendor]
    sources = [str(HERE / source), *([str(_other_functions(folder))] if vendor == "amd" else [])]
    command = ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", f"-I{HERE}"]
    subprocess.run([*command, "-o", str(folder / "lib" / library), *sources, "-lpthread"], check=True)
    return folder


def library_of(vendor: str) -> Path:
    """The library itself."""
    return built_vendor(vendor) / "lib" / LIBRARIES[vendor][1]


class VendorStub:
    """The library, loaded into this process."""

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor
        self.library = ctypes.CDLL(str(library_of(vendor)))

    def play(self, **scenario: Any) -> None:
        """From now on."""
        self.library.stub_load(VendorScenario(vendor=self.vendor, **scenario).text().encode())


def _other_functions(folder: Path) -> Path:
    """The functions that AMD's binding looks up and our stand-in does not play."""
    found = importlib.util.find_spec("amdsmi")
    if found is None or found.origin is None:
        pytest.skip("needs AMD's binding: pip install amdsmi")
    binding = Path(found.origin).with_name("amdsmi_wrapper.py").read_text(encoding="utf-8")
    wanted = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", binding))
    played = set(
        re.findall(r"^(?:int|void) (amdsmi_\w+)\(", (HERE / "amdsmi.c").read_text(encoding="utf-8"), re.MULTILINE)
    )
    path = folder / "others.c"
    path.write_text(
        "".join(f"int {name}(void) {{ return 2; }}\n" for name in sorted(wanted - played)), encoding="utf-8"
    )
    return path
