"""The chart of a release: with the released images, packed by Helm."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dovetail_sandbox.errors import SandboxError
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import reporter
from tools.release.errors import ReleaseError

_REGISTRY: Final = re.compile(r"[a-z0-9][a-z0-9.:-]*(?:/[a-z0-9][a-z0-9._-]*)*")


def find_helm() -> Path:
    """The Helm that the tests use too. Raises `SandboxError` if it is not there and cannot be had."""
    return locate.resolve(["helm"], report=reporter())["helm"]


def write_chart(version: str, *, registry: str, into: Path, root: Path) -> Path:
    """Copy the chart into `into`, with the tag of the released images, and with their registry unless it is empty.

    Raises `ReleaseError`.
    """
    if registry and _REGISTRY.fullmatch(registry) is None:
        raise ReleaseError(f"registry '{registry}' is not allowed; use HOST or HOST/PATH in lower case")
    target = into / "dovetail"
    shutil.copytree(root / "helm/dovetail", target)
    values = target / "values.yaml"
    text = values.read_text(encoding="utf-8")
    for line, released in (
        ('  registry: ""\n', f"  registry: {registry}\n" if registry else '  registry: ""\n'),
        ("  tag: dev\n", f'  tag: "{version}"\n'),
    ):
        if text.count(line) != 1:
            raise ReleaseError(f"helm/dovetail/values.yaml has {text.count(line)} lines '{line.strip()}' instead of 1")
        text = text.replace(line, released)
    values.write_text(text, encoding="utf-8")
    return target


def package_chart(chart: Path, *, into: Path, epoch: int, helm: Callable[[], Path] = find_helm) -> None:
    """Pack a chart. Raises `ReleaseError`, also without Helm.

    Helm 4 writes the files' own times and nothing else that differs from one run to the next.
    """
    for path in [chart, *chart.rglob("*")]:
        os.utime(path, (epoch, epoch))
    try:
        program = helm()
    except SandboxError as error:
        raise ReleaseError(f"the chart needs Helm, and there is none: {error}") from error
    words: list[str | Path] = [program, "package", chart, "--destination", into]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"helm package: {done.stderr.strip()}")
