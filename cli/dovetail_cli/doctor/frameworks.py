"""Checks a machine's frameworks against its driver. It only reads files.

A module of its own: it looks into Python environments, as `dovetail.query.doctor.frameworks` into images; `host` looks
at the node's own files.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from dovetail.answers.doctor import CheckResult, Level
from dovetail.gpu import cuda

_CHECK: Final = "framework"
# Below a prefix, such as that of a virtual environment.
_PACKAGES: Final = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/site-packages")
_SYSTEM: Final = ("usr", "usr/local", "opt/conda")
# The file in which each framework writes what it is built with, and the version of CUDA there.
_FILES: Final = (
    ("PyTorch", "torch/version.py", re.compile(r"^cuda\b.*=\s*['\"](\d+\.\d+)", re.MULTILINE)),
    (
        "TensorFlow",
        "tensorflow/python/platform/build_info.py",
        re.compile(r"['\"]cuda_version['\"]\s*[,:]\s*['\"](\d+\.\d+)"),
    ),
)
_ROCM: Final = re.compile(r"^hip\b.*=\s*['\"]\d|['\"]is_rocm_build['\"]\s*[,:]\s*True", re.MULTILINE)


def judge(root: Path, *, driver_version: str, prefixes: Sequence[Path] = ()) -> Iterator[CheckResult]:
    """Check the frameworks of the system below `root`, and those below these prefixes."""
    driver = cuda.of_driver(driver_version)
    for folder in _folders([*(root / each for each in _SYSTEM), *prefixes]):
        for name, file, version in _FILES:
            if (path := folder / file).is_file():
                text = path.read_text(encoding="utf-8")
                if not _ROCM.search(text):
                    yield _judged(f"{name} in {folder}", found=version.search(text), driver=driver)


def _folders(prefixes: Sequence[Path]) -> list[Path]:
    found = [path.resolve() for prefix in prefixes for pattern in _PACKAGES for path in sorted(prefix.glob(pattern))]
    return list(dict.fromkeys(path for path in found if path.is_dir()))


def _judged(called: str, *, found: re.Match[str] | None, driver: cuda.CudaVersion | None) -> CheckResult:
    built = cuda.parse(found[1]) if found else None
    if built is None:
        message = f"{called} is built without CUDA: it uses no GPU"
        return CheckResult(
            level="warning", check=_CHECK, message=message, fix="install its build for CUDA in that environment"
        )
    if driver is None:
        return CheckResult(level="ok", check=_CHECK, message=f"{called} is built for CUDA {built}")
    if why := cuda.problem(built, driver=driver):
        level: Level = "error" if built.major > driver.major else "warning"
        fix = cuda.remedy(built, driver=driver, instead="a build")
        return CheckResult(level=level, check=_CHECK, message=f"{called}: {why}", fix=fix)
    return CheckResult(
        level="ok", check=_CHECK, message=f"{called} is built for CUDA {built}; the driver supports {driver}"
    )
