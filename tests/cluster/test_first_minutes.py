"""The first ten minutes with kubectl on a cluster, as docs/first-minutes.md tells them."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from dovetail_sandbox.cluster import Cluster
from tests import commands, first_minutes
from tests.cluster.jobs import Jobs
from tests.first_minutes import Shell
from tests.local_node.machine import kubectl_program

pytestmark = pytest.mark.cluster

TOLD = first_minutes.transcripts(first_minutes.PAGE.read_text(encoding="utf-8"))["With kubectl"]


async def test_the_first_minutes_with_kubectl(sandbox: Cluster, namespace: str, jobs: Jobs, tmp_path: Path) -> None:
    work = tmp_path / "ada" / "work"
    work.mkdir(parents=True)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(sandbox.kubeconfig.read_bytes())
    program = kubectl_program()
    path = f"{program.parent}:{commands.folder()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
    shell = Shell(work=work, environment=environment, words={"kwok-admin": "ada", namespace: "default"})
    shell.type(f"kubectl config set-context --current --namespace {namespace}")
    wrong = await asyncio.to_thread(first_minutes.replay, TOLD, shell=shell)
    assert not wrong, "\n".join(wrong)
