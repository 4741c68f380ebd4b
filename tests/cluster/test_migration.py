"""The walk of docs/migration.md for a cluster: its line makes the values, and a script's calls need no token."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import yaml

from dovetail_cli.cluster import audit
from dovetail_sandbox.cluster import Cluster
from tests.cluster.conftest import NODES
from tests.cluster.sandboxes import sandbox_with
from tests.migration_page import walk
from tests.polling import PATIENCE_SECONDS, until

pytestmark = pytest.mark.cluster
TRAINING: Final = {"model": "m", "num_classes": 1, "train_path": "data/t", "val_path": "data/v", "save_path": "out"}
# The volume that the page's line names, as a cluster of its reader has it.
CLAIM: Final = """
{apiVersion: v1, kind: PersistentVolume, metadata: {name: service-data}, spec: {capacity: {storage: 1Gi},
 accessModes: [ReadWriteMany], storageClassName: own, hostPath: {path: /service},
 claimRef: {namespace: default, name: service-data}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: service-data, namespace: default},
 spec: {accessModes: [ReadWriteMany], storageClassName: own, volumeName: service-data,
 resources: {requests: {storage: 1Gi}}}}
"""


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose chart has the values of the page's line for a model service."""
    file = tmp_path_factory.mktemp("migration") / "migrate.yaml"
    _, *words = shlex.split(walk("v2").splitlines()[0].removesuffix(" > migrate.yaml"))
    with file.open("wb") as output:
        subprocess.run([sys.executable, "-m", "dovetail_cli", *words], stdout=output, check=True)
    with sandbox_with(nodes_file=NODES, values_file=file) as made:
        kubectl(made, "apply", "--filename=-", stdin=CLAIM)
        until(lambda: bool(ask(made, "GET", "/api/v2/resources/gpu").get("devices")))
        yield made
        assert not audit.prove(kubeconfig=str(made.kubeconfig), context=None).items


def kubectl(made: Cluster, *words: str, stdin: str | None = None) -> str:
    program = next((Path.home() / ".cache" / "dovetail" / "bin").glob("kubectl-*/kubectl"))
    command = [str(program), f"--kubeconfig={made.kubeconfig}", *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True).stdout


def ask(made: Cluster, method: str, path: str, *, body: Any = None) -> Any:
    """The answer to a call without a token, whatever its status."""
    url = made.status().gateway + path
    return httpx2.request(method, url, json=body, timeout=PATIENCE_SECONDS).json()


def pods(made: Cluster, *, job: str) -> Any:
    selected = f"--selector=dovetail.dev/job={job}"
    return yaml.safe_load(kubectl(made, "get", "pods", "--namespace=default", selected, "--output=yaml"))["items"]


def test_a_training_runs_what_the_page_s_line_says_where_its_paths_are(moved: Cluster) -> None:
    name = ask(moved, "POST", "/api/v2/training/start", body=TRAINING | {"device": "cuda:0"})["task_id"]
    task = f"/api/v2/tasks/{name}"
    until(lambda: ask(moved, "GET", task)["status"] == "running", what=lambda: str(ask(moved, "GET", task)))
    (pod,) = pods(moved, job=name)
    (container,) = pod["spec"]["containers"]
    assert container["command"] == ["python", "train.py", "--data", "$(TASK_TRAIN_PATH)", "--out", "$(TASK_SAVE_PATH)"]
    assert {"name": "TASK_TRAIN_PATH", "value": "data/t"} in container["env"]
    assert (container["workingDir"], container["volumeMounts"][0]["mountPath"]) == ("/service", "/service")
    assert ask(moved, "POST", f"/api/v2/tasks/{name}/cancel")["task_id"] == name


def test_limits_allocations_and_their_release_need_no_further_right(moved: Cluster) -> None:
    limits = ask(moved, "POST", "/api/v2/resources/config", body={"max_concurrent": {"cuda:0": {"training": 2}}})
    assert limits["limits"]["cuda:0"]["training"] == 2
    body = {"gpu_count": 1, "gpu_type": "V100", "memory_gb": 32.0}
    found = ask(moved, "POST", "/api/v1/gpu/allocate", body=body)
    assert found["success"], found
    assert ask(moved, "DELETE", f"/api/v1/gpu/allocations/{found['allocation_id']}")["released"]
