import copy
import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml

from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests.chart.generated import CHART, IMAGES

Helm = Callable[..., subprocess.CompletedProcess[str]]
Render = Callable[..., list[dict[str, Any]]]


def objects_in(text: str) -> list[dict[str, Any]]:
    """The objects of a rendered chart. The parser in C takes a tenth of the time."""
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


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
    """The objects that the chart makes with some values set, by dotted path; each set is rendered once."""

    @cache
    def rendered(*sets: str) -> list[dict[str, Any]]:
        done = helm("template", "dovetail", str(CHART), "--namespace=dovetail-system", *sets)
        assert done.returncode == 0, done.stderr
        return objects_in(done.stdout)

    def objects(**values: Any) -> list[dict[str, Any]]:
        sets = [f"--set-json={path.replace('__', '.')}={json.dumps(value)}" for path, value in values.items()]
        return copy.deepcopy(rendered(*sets))

    return objects
