"""PyTorch and TensorFlow themselves, set up with the settings of a gateway: `make e2e` has them."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face
from tests.sdk.conftest import reservations

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
ROOT = Path(__file__).parents[2]
DEBIAN = "/usr/bin/python3"
DEBIANS_TORCH = Path("/usr/lib/python3/dist-packages/torch")
NO_GPU = "{} sees no GPU on this machine: it computes on the CPU"


def interpreter(folder: Path, *, packages: list[str], system: bool) -> Path:
    """An interpreter with these packages and what the SDK needs; with Debian's packages if `system`."""
    options = ["--system-site-packages", "--python", DEBIAN] if system else ["--python", sys.executable]
    uv = [sys.executable, "-m", "uv"]
    subprocess.run([*uv, "venv", "--quiet", *options, folder], check=True)
    python = folder / "bin" / "python"
    wanted = ["msgspec", "httpx2", "lazy-loader", *packages]
    done = subprocess.run(
        [*uv, "pip", "install", "--quiet", "--python", python, *wanted], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"{', '.join(wanted)} cannot be installed: {done.stderr[-300:]}")
    return python


async def shown(python: Path, *, framework: str, url: str) -> dict[str, Any]:
    environment = {"PYTHONPATH": f"{ROOT / 'core'}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    process = await asyncio.create_subprocess_exec(
        python, "-m", "tests.sdk.frameworks", framework, url, "red-token",
        cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    found: dict[str, Any] = json.loads(out.decode().splitlines()[-1])
    return found


@pytest.mark.skipif(not DEBIANS_TORCH.exists(), reason="apt-get install python3-torch")
@pytest.mark.usefixtures("scheduling")
async def test_pytorch_computes_in_16_bits_and_trains(api: GatewayApiServer, gateway: Face, tmp_path: Path) -> None:
    python = await asyncio.to_thread(interpreter, tmp_path / "venv", packages=[], system=True)
    found = await shown(python, framework="pytorch", url=gateway.url)
    assert found["dtype"] == ("torch.float16" if found["gpus"] else "torch.bfloat16")
    assert found["widths"] == [[8, 2], [4, 8], [3, 4]]
    assert found["gpus"] or found["why"] == f"{NO_GPU.format('PyTorch')}; the allocated GPUs are on b"
    assert found["losses"][-1] < found["losses"][0]
    assert reservations(api) == []


@pytest.mark.usefixtures("scheduling")
async def test_tensorflow_computes_in_16_bits_and_trains(api: GatewayApiServer, gateway: Face, tmp_path: Path) -> None:
    python = await asyncio.to_thread(interpreter, tmp_path / "venv", packages=["tensorflow-cpu"], system=False)
    found = await shown(python, framework="tensorflow", url=gateway.url)
    assert (found["policy"], found["hidden"], found["dtype"]) == ("mixed_float16", "float16", "float32")
    assert found["widths"] == [[2, 8], [8, 4], [4, 3]]
    assert found["gpus"] or found["why"] == f"{NO_GPU.format('TensorFlow')}; the allocated GPUs are on b"
    assert found["losses"][-1] < found["losses"][0]
    assert reservations(api) == []
