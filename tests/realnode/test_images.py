"""The product's images: refused requests, and one that is built and run where it will be."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from dovetail_sandbox import realnode
from tests.realnode.conftest import RealSandbox

SCRIPT = Path(__file__).parents[2] / "images" / "build.sh"


def build(*names: str, path: str | None = None) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | ({"PATH": path} if path else {})
    bash = shutil.which("bash") or "/bin/bash"
    return subprocess.run([bash, SCRIPT, *names], capture_output=True, text=True, check=False, env=environment)


def test_an_unknown_image_is_refused_with_those_that_there_are() -> None:
    done = build("scheduler")
    assert done.returncode == 1
    assert (
        done.stderr
        == "images: unknown image 'scheduler': one of operator extender agent webhook certificates gateway cli\n"
    )


def test_missing_programs_are_named_with_the_command_that_installs_them(tmp_path: Path) -> None:
    for program in ("dirname", "date"):
        (tmp_path / program).symlink_to(shutil.which(program) or program)
    done = build("agent", path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "images: needs buildah mmdebstrap: apt-get install --no-install-recommends buildah mmdebstrap\n"
    )


POD = """
apiVersion: v1
kind: Pod
metadata: {name: agent-image}
spec:
  restartPolicy: Never
  nodeName: real-0
  tolerations: [{key: dovetail.dev/real-node, operator: Exists}]
  containers:
  - name: agent
    image: dovetail.local/agent:dev
    imagePullPolicy: Never
    args: [--help]
    securityContext:
      runAsNonRoot: true
      readOnlyRootFilesystem: true
      allowPrivilegeEscalation: false
      capabilities: {drop: [ALL]}
      seccompProfile: {type: RuntimeDefault}
"""


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.realnode
def test_a_deployables_image_runs_without_privileges(sandbox: RealSandbox) -> None:
    built = build("agent")
    assert built.returncode == 0, built.stderr
    realnode.import_images(sandbox.folder, Path(built.stdout.strip()), ctr=sandbox.control_plane.binaries["ctr"])
    sandbox.kubectl("create", "-f", "-", "--namespace=default", stdin=POD)
    sandbox.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/agent-image", "--timeout=60s")
    assert sandbox.kubectl("logs", "agent-image").startswith("usage: dovetail-agent")
    sandbox.kubectl("delete", "pod", "agent-image")
