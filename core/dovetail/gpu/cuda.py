"""CUDA versions: which one a container or a framework is built for, and which one a driver supports. Pure.

A driver supports every CUDA version up to its own. Since CUDA 11, programs of a newer minor version run on it as well,
except code that is compiled at run time (NVIDIA's "CUDA Compatibility", minor version compatibility).
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_VERSION: Final = re.compile(r"(\d+)\.(\d+)")
# As in nvidia/cuda:12.4.1-base and pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime.
_IN_IMAGE: Final = re.compile(r"cuda[:_-]?v?(\d+\.\d+)")
_REQUIRED: Final = re.compile(r"cuda>=(\d+\.\d+)")

# The newest CUDA version of each branch of NVIDIA's driver, from "CUDA Toolkit and Corresponding Driver Versions".
_OF_DRIVER: Final[Mapping[int, tuple[int, int]]] = {
    450: (11, 0), 455: (11, 1), 460: (11, 2), 465: (11, 3), 470: (11, 4), 495: (11, 5), 510: (11, 6), 515: (11, 7),
    520: (11, 8), 525: (12, 0), 530: (12, 1), 535: (12, 2), 545: (12, 3), 550: (12, 4), 555: (12, 5), 560: (12, 6),
    565: (12, 7), 570: (12, 8), 575: (12, 9), 580: (13, 0),
}  # fmt: skip


class CudaVersion(NamedTuple):
    """A version of CUDA, without its patch level."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


class Built(NamedTuple):
    """The CUDA version that something is built for, and what says so: a variable or the image's name."""

    version: CudaVersion
    source: str


def parse(text: str) -> CudaVersion | None:
    """The version that a text begins with, such as `12.4.1`; None for another text."""
    found = _VERSION.match(text)
    return CudaVersion(int(found[1]), int(found[2])) if found else None


def built_for(*, image: str, variables: Mapping[str, str]) -> Built | None:
    """The CUDA version of a container, by the variables of NVIDIA's images or by the image's name; None if unknown."""
    required = _REQUIRED.search(variables.get("NVIDIA_REQUIRE_CUDA", ""))
    in_image = _IN_IMAGE.search(image)
    said = (
        ("NVIDIA_REQUIRE_CUDA", required[1] if required else ""),
        ("CUDA_VERSION", variables.get("CUDA_VERSION", "")),
        (f"image {image}", in_image[1] if in_image else ""),
    )
    for source, text in said:
        if version := parse(text):
            return Built(version, source)
    return None


def of_driver(version: str) -> CudaVersion | None:
    """The newest CUDA version that a driver such as `550.54.15` supports.

    None for a driver before 450 or newer than the table.
    """
    found = parse(version)
    if found is None or found.major >= max(_OF_DRIVER) + 10:
        return None
    branches = [branch for branch in _OF_DRIVER if branch <= found.major]
    return CudaVersion(*_OF_DRIVER[max(branches)]) if branches else None


def driver_for(version: CudaVersion) -> int | None:
    """The first branch of the driver that supports a CUDA version; None for one beyond the table."""
    return next((branch for branch, newest in _OF_DRIVER.items() if newest >= version), None)


def problem(built: CudaVersion, *, driver: CudaVersion) -> str:
    """Why a program for `built` does not run, or not as usual, on a driver that supports `driver`; empty if it runs."""
    if built <= driver:
        return ""
    if built.major > driver.major:
        return f"it is built for CUDA {built} and the driver supports {driver}: CUDA does not start"
    return (
        f"it is built for CUDA {built} and the driver supports {driver}: "
        "code that is compiled at run time, such as PTX and Triton kernels, may fail"
    )


def remedy(built: CudaVersion, *, driver: CudaVersion, instead: str) -> str:
    """What to do about `problem`: a newer driver, or `instead` for an older CUDA."""
    branch = driver_for(built)
    newer = f"a driver of branch {branch} or newer" if branch else f"a driver that supports CUDA {built}"
    return f"install {newer}, or use {instead} for CUDA {driver}"
