import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.values_table import CHART

CACHE = Path.home() / ".cache" / "dovetail" / "bin"
Helm = Callable[..., subprocess.CompletedProcess[str]]
Render = Callable[..., list[dict[str, Any]]]


def find_tool(name: str) -> str:
    """The program, as the sandbox has it or as it is installed."""
    found = sorted(CACHE.glob(f"{name}-*/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path, f"{name} is neither in {CACHE} nor on PATH"
    return path


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Runs helm; the caller looks at how it ended."""
    program = find_tool("helm")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.fixture(scope="session")
def render(helm: Helm) -> Render:
    """The objects that the chart makes with some values set, by dotted path."""

    def objects(**values: Any) -> list[dict[str, Any]]:
        sets = [f"--set-json={path.replace('__', '.')}={json.dumps(value)}" for path, value in values.items()]
        done = helm("template", "dovetail", str(CHART), "--namespace=dovetail-system", *sets)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    return objects
