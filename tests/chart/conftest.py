import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests.chart.generated import CHART, IMAGES

Helm = Callable[..., subprocess.CompletedProcess[str]]
Render = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Runs helm; the caller looks at how it ended. Charts are rendered with the images' registry set first."""
    program = locate.resolve(["helm"], report=Lines(sys.stderr))["helm"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command, *rest = arguments
        words = [program, command, *([IMAGES] if command == "template" else []), *rest]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

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
