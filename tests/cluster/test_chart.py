"""The chart against a real API server: its schemas, its dry run, its admission."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.api.resources import NAMESPACES, PODS
from dovetail.kube.client import Client
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.programs import locate
from dovetail_sandbox.progress import Lines
from tests.chart.generated import CHART, IMAGES
from tests.chart.openapi import FILE_TEMPLATE, schemas

pytestmark = pytest.mark.cluster

FORMS = {"per-node agents": "false", "one agent for simulated nodes": "true"}


def run(program: str, *arguments: object, text: str = "") -> subprocess.CompletedProcess[str]:
    path = locate.resolve([program], report=Lines(sys.stderr))[program]
    words = [str(path), *map(str, arguments)]
    return subprocess.run(words, input=text, capture_output=True, text=True, timeout=120, check=False)


# All that a node may do beside reporting, each off by default.
FEATURES = ("mps", "agent.turns", "agent.checkpoint", "agent.podResources")


def rendered(*, simulation: str, namespace: str = "dovetail-system", features: bool = False) -> str:
    values = [f"simulation.enabled={simulation}", *(f"{each}.enabled={str(features).lower()}" for each in FEATURES)]
    values.append(f"agent.hostPID={str(features).lower()}")
    done = run("helm", "template", "dovetail", CHART, IMAGES, "-n", namespace, *(f"--set={value}" for value in values))
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def schema_folder(sandbox: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    openapi = run("kubectl", "--kubeconfig", sandbox.kubeconfig, "get", "--raw", "/openapi/v2")
    for name, schema in schemas(json.loads(openapi.stdout)):
        folder.joinpath(name).write_text(json.dumps(schema), encoding="utf-8")
    return folder


def kubeconform(text: str, *, schema_folder: Path) -> subprocess.CompletedProcess[str]:
    location = f"{schema_folder}/{FILE_TEMPLATE}"
    return run("kubeconform", "-strict", "-summary", "-schema-location", location, "-", text=text)


@pytest.mark.parametrize("features", [False, True], ids=["plain", "all features of a node"])
@pytest.mark.parametrize("simulation", FORMS.values(), ids=FORMS)
def test_every_object_has_the_shape_that_the_api_server_publishes(
    schema_folder: Path, simulation: str, features: bool
) -> None:
    done = kubeconform(rendered(simulation=simulation, features=features), schema_folder=schema_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout


@pytest.mark.parametrize("preset", sorted(path.stem for path in CHART.glob("presets/*.yaml")))
def test_every_object_of_a_preset_has_that_shape(schema_folder: Path, preset: str) -> None:
    # The sandbox has no CRDs of the Prometheus operator.
    without = [f"--set=monitoring.{each}.enabled=false" for each in ("podMonitor", "rules")]
    done = run("helm", "template", "dovetail", CHART, IMAGES, "-f", CHART / "presets" / f"{preset}.yaml", *without)
    done = kubeconform(done.stdout, schema_folder=schema_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout
    assert "Valid: 0" not in done.stdout


def test_every_agent_of_a_vendor_has_that_shape(schema_folder: Path) -> None:
    vendors = [f"--set=agent.vendors.{each}.enabled=true" for each in ("nvidia", "amd", "intel", "ascend")]
    more = ("--set=agent.vendors.intel.libraries={/opt/level-zero}", "--set=agent.podResources.enabled=true")
    done = run("helm", "template", "dovetail", CHART, IMAGES, *vendors, *more)
    assert done.returncode == 0, done.stderr
    done = kubeconform(done.stdout, schema_folder=schema_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout


def test_a_misspelt_field_would_be_found(schema_folder: Path) -> None:
    broken = rendered(simulation="true").replace("readOnlyRootFilesystem", "readOnlyRootFileSystem", 1)
    done = kubeconform(broken, schema_folder=schema_folder)
    assert done.returncode != 0
    assert "readOnlyRootFileSystem" in done.stdout


def _without_conversion(document: dict[str, Any]) -> dict[str, Any]:
    """The sandbox's webhook is at a URL, which dovetail-certificates keeps; a Service as well would be refused."""
    if document["kind"] == "CustomResourceDefinition":
        document["spec"].pop("conversion", None)
    return document


@pytest.mark.parametrize("features", [False, True], ids=["plain", "all features of a node"])
@pytest.mark.parametrize("simulation", FORMS.values(), ids=FORMS)
def test_the_api_server_takes_every_object(sandbox: Cluster, simulation: str, features: bool) -> None:
    text = rendered(simulation=simulation, features=features)
    # A pod's account must exist, and Helm creates that of `helm test` for the test alone.
    text = text.replace("serviceAccountName: dovetail-test", "serviceAccountName: default")
    text = yaml.safe_dump_all(map(_without_conversion, yaml.safe_load_all(text)))
    # Without effect, but defaulting, validation, CEL and admission all have their say.
    # As the sandbox itself, or what it set and this does not would stay beside it.
    manager = ("--field-manager=dovetail-sandbox", "--force-conflicts")
    apply = ("apply", "--server-side", *manager, "--dry-run=server", "--validate=strict", "-f", "-")
    done = run("kubectl", "--kubeconfig", sandbox.kubeconfig, *apply, text=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == len([each for each in yaml.safe_load_all(text) if each])


@pytest.mark.parametrize("simulation", FORMS.values(), ids=FORMS)
async def test_every_pod_passes_pod_security_restricted(client: Client, namespace: str, simulation: str) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await client.patch(NAMESPACES, name=namespace, patch=label, as_type=dict)
    for manifest in yaml.safe_load_all(rendered(simulation=simulation, namespace=namespace)):
        if manifest and "template" in manifest.get("spec", {}):
            template = manifest["spec"]["template"]
            spec = template["spec"] | {"serviceAccountName": "default"}
            pod = {"metadata": {"name": manifest["metadata"]["name"]}, "spec": spec}
            await client.create(PODS, body=pod, as_type=dict, namespace=namespace, dry_run=True)
