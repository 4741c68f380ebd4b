"""The examples of pods that people copy are completed, and not refused."""

from pathlib import Path

import pytest
import yaml

from dovetail import names
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail_webhook.mutation import patch_of_pod

FILES = sorted(Path(__file__).parents[2].joinpath("examples").glob("*.yaml"))
EXAMPLES = [path for path in FILES if "kind: Deployment" in path.read_text(encoding="utf-8")]


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_s_pods_are_completed(path: Path) -> None:
    template = yaml.safe_load(path.read_text(encoding="utf-8"))["spec"]["template"]
    patch = patch_of_pod(template, subresource="", policy="Balanced", vendors=DEFAULT_VENDORS)
    assert {"op": "add", "path": "/spec/schedulerName", "value": names.SCHEDULER_NAME} in patch
