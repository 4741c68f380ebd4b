"""Scripts of before run with the extra `legacy` as they are: only what is installed has changed."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face
from tests.sdk.conftest import until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution of the extra, built and installed as a wheel."""
    folder = tmp_path_factory.mktemp("legacy")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder / "wheels"]
    subprocess.run(build, check=True, cwd=ROOT / "legacy", capture_output=True)
    (wheel,) = (folder / "wheels").glob("*.whl")
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target", folder / "site", wheel]
    subprocess.run(install, check=True, capture_output=True)
    return folder / "site"


def test_the_wheel_has_the_old_paths_and_nothing_else(installed: Path) -> None:
    found = {str(path.relative_to(installed)) for path in installed.rglob("*.py")}
    assert found == {
        "backend/__init__.py",
        "backend/algorithm_engine/__init__.py",
        "backend/algorithm_engine/core.py",
        "backend/algorithm_engine/gpu_resource_integration.py",
        "src/__init__.py",
        "src/gpu_memory_guard.py",
        "src/gpu_parser.py",
        "src/gpu_scheduler.py",
        "test_refactored_api.py",
    }


@pytest.mark.usefixtures("scheduling")
async def test_a_script_of_before_runs_as_pasted(
    api: GatewayApiServer, gateway: Face, installed: Path, tmp_path: Path
) -> None:
    api.number("a/cuda:0", "b/cuda:0")
    await until(lambda: gateway.made.cache.device_indexes)
    known = {"DOVETAIL_GATEWAY": gateway.url, "DOVETAIL_TOKEN": "red-token", "PYTHONPATH": str(installed)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, ROOT / "tests" / "sdk" / "published.py", gateway.url,
        cwd=tmp_path, env={**os.environ, **known}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out.decode().splitlines() == [
        "allocated on b",
        "devices 8",
        "nodes ['a', 'b']",
        "cleaned up True",
        "integration PyTorchGPUIntegration",
        "integration TensorFlowGPUIntegration",
        "parsed 8.0 0.5 1 None None",
        "fits True",
        "processed [('pod-1', 'b')]",
        "scheduled on b",
        "trained ('b', 3)",
        "resources ['cuda:0']",
        "tasks 0",
    ]
