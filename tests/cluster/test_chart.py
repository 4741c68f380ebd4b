"""The chart against a real API server: its schemas, its dry run, its admission."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.kube.client import Client
from dovetail.kube.resources import NAMESPACES, PODS
from dovetail_sandbox import binaries
from dovetail_sandbox.progress import Lines
from tests.chart.generated import CHART
from tests.chart.openapi import FILE_TEMPLATE, schemas

pytestmark = pytest.mark.cluster

FORMS = {"per-node agents": "false", "one agent for simulated nodes": "true"}


def rendered(*, simulation: str, namespace: str = "dovetail-system") -> str:
    helm = binaries.resolve(["helm"], report=Lines(sys.stderr))["helm"]
    done = subprocess.run(
        [helm, "template", "dovetail", CHART, "-n", namespace, f"--set=simulation.enabled={simulation}"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.fixture
async def schema_folder(client: Client, tmp_path: Path) -> Path:
    openapi = json.loads(await client._send("GET", "/openapi/v2", deadline_seconds=60))
    for name, schema in schemas(openapi):
        tmp_path.joinpath(name).write_text(json.dumps(schema), encoding="utf-8")
    return tmp_path


def kubeconform(text: str, *, schema_folder: Path) -> subprocess.CompletedProcess[str]:
    program = binaries.resolve(["kubeconform"], report=Lines(sys.stderr))["kubeconform"]
    return subprocess.run(
        [program, "-strict", "-summary", "-schema-location", f"{schema_folder}/{FILE_TEMPLATE}", "-"],
        input=text, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("simulation", FORMS.values(), ids=FORMS)
async def test_every_object_has_the_shape_that_the_api_server_publishes(schema_folder: Path, simulation: str) -> None:
    done = kubeconform(rendered(simulation=simulation), schema_folder=schema_folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Skipped: 0" in done.stdout


async def test_a_misspelt_field_would_be_found(schema_folder: Path) -> None:
    broken = rendered(simulation="true").replace("readOnlyRootFilesystem", "readOnlyRootFileSystem", 1)
    done = kubeconform(broken, schema_folder=schema_folder)
    assert done.returncode != 0
    assert "readOnlyRootFileSystem" in done.stdout


@pytest.mark.parametrize("simulation", FORMS.values(), ids=FORMS)
async def test_the_api_server_takes_every_object(client: Client, simulation: str) -> None:
    for manifest in yaml.safe_load_all(rendered(simulation=simulation)):
        if manifest:
            await _dry_run(client, manifest)


@pytest.mark.parametrize("simulation", FORMS.values(), ids=FORMS)
async def test_every_pod_passes_pod_security_restricted(client: Client, namespace: str, simulation: str) -> None:
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await client.patch(NAMESPACES, namespace, label, as_type=dict)
    for manifest in yaml.safe_load_all(rendered(simulation=simulation, namespace=namespace)):
        if manifest and "template" in manifest.get("spec", {}):
            template = manifest["spec"]["template"]
            spec = template["spec"] | {"serviceAccountName": "default"}
            pod = {"metadata": {"name": manifest["metadata"]["name"]}, "spec": spec}
            await client.create(PODS, pod, as_type=dict, namespace=namespace, dry_run=True)


async def _dry_run(client: Client, manifest: dict[str, Any]) -> None:
    """Server-side apply without effect: defaulting, validation, CEL and admission all have their say."""
    version, meta = manifest["apiVersion"], manifest["metadata"]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    kinds = json.loads(await client._send("GET", root, deadline_seconds=30))["resources"]
    (plural,) = [each["name"] for each in kinds if each["kind"] == manifest["kind"] and "/" not in each["name"]]
    parts = ["namespaces", meta["namespace"], plural] if "namespace" in meta else [plural]
    await client._send(
        "PATCH",
        "/".join([root, *parts, meta["name"]]),
        query={"fieldManager": "test", "force": "true", "dryRun": "All", "fieldValidation": "Strict"},
        body=manifest,
        content_type="application/apply-patch+yaml",
        deadline_seconds=30,
    )
