"""The chart's objects against the OpenAPI of each minor version of Kubernetes, as its Go module has it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml

from dovetail_sandbox.programs import catalog, go_build, locate
from dovetail_sandbox.progress import Lines
from tests import go_modules
from tests.chart.conftest import Helm
from tests.chart.generated import CHART
from tests.chart.openapi import FILE_TEMPLATE, schemas

OLDEST: Final = "1.33"
TRIED: Final = catalog.kubernetes_versions()
_OF_OLDEST: Final = ("v1.33.13", Path(__file__).with_name("kubernetes-1.33"))
# Kinds of other projects, which Kubernetes does not publish.
_OF_OTHERS: Final = "CustomResourceDefinition,Certificate,PodMonitor,ServiceMonitor,PrometheusRule"
_PRESETS: Final = sorted(path.stem for path in CHART.glob("presets/*.yaml"))
_FEATURES: Final = ("mps", "agent.turns", "agent.checkpoint", "agent.podResources", "gateway")


def module_of(minor: str) -> tuple[str, Path]:
    """The version of the module, and the folder whose go.sum pins it."""
    if minor == OLDEST:
        return _OF_OLDEST
    tool = catalog.tool("kube-apiserver", kubernetes=minor)
    return tool.version, go_build.module_folder(tool.folder)


@pytest.fixture(scope="session")
def schema_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The schemas of each version that a test has asked for."""
    return {}


@pytest.fixture
def schema_folder(minor: str, schema_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    if minor not in schema_folders:
        folder = tmp_path_factory.mktemp(f"kubernetes-{minor}")
        for name, schema in schemas(json.loads(openapi(minor).read_text(encoding="utf-8"))):
            folder.joinpath(name).write_text(json.dumps(schema), encoding="utf-8")
        schema_folders[minor] = folder
    return schema_folders[minor]


def openapi(minor: str) -> Path:
    """The document that the API server of that version publishes at /openapi/v2."""
    version, folder = module_of(minor)
    module = go_modules.contents(f"k8s.io/kubernetes@{version}", pinned_in=folder)
    return module / "api" / "openapi-spec" / "swagger.json"


def kubeconform(text: str, *, folder: Path) -> subprocess.CompletedProcess[str]:
    program = locate.resolve(["kubeconform"], report=Lines(sys.stderr))["kubeconform"]
    location = f"-schema-location={folder}/{FILE_TEMPLATE}"
    command = [program, "-strict", "-summary", f"-skip={_OF_OTHERS}", location, "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("options", ["", *_PRESETS, "all features"])
@pytest.mark.parametrize("minor", [OLDEST, *TRIED])
def test_each_version_has_every_field_that_the_chart_sets(
    helm: Helm, schema_folder: Path, minor: str, options: str
) -> None:
    features = [f"--set={each}.enabled=true" for each in _FEATURES] + ["--set=agent.hostPID=true"]
    preset = [f"--values={CHART}/presets/{options}.yaml"] if options in _PRESETS else []
    more = features if options == "all features" else preset
    rendered = helm("template", "dovetail", str(CHART), f"--kube-version={minor}.0", *more)
    assert rendered.returncode == 0, rendered.stderr
    done = kubeconform(rendered.stdout, folder=schema_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Valid: 0" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("minor", [OLDEST])
def test_a_field_that_a_version_does_not_have_is_found(schema_folder: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [], "newer": 1}}
    done = kubeconform(yaml.safe_dump(pod), folder=schema_folder)
    assert done.returncode != 0
    assert "newer" in done.stdout


def test_the_chart_accepts_the_oldest_version_that_is_checked_and_none_older(helm: Helm) -> None:
    assert helm("template", "dovetail", str(CHART), f"--kube-version={OLDEST}.0").returncode == 0
    refused = helm("template", "dovetail", str(CHART), "--kube-version=1.32.9")
    assert refused.returncode != 0
    assert "kubeVersion: >=1.33.0-0" in refused.stderr
