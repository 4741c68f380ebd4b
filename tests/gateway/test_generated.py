"""Requests that schemathesis generates from openapi.json, valid and not, with all of its checks on the answers."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

import pytest

from dovetail_gateway.app import Options
from tests.conftest import LONG_SECONDS
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.builders import make_job
from tests.gateway.served import Face, serving

PROGRAM: Final = Path(sys.executable).parent / "schemathesis"
# 422 is also the answer to a value that no schema can refuse, such as a request text.
CONFIG: Final = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

# A job of `dryRun=true` is in the answer and nowhere else.
[checks.ensure_resource_availability]
enabled = false

[[operations]]
include-path-regex = "/api/v3/jobs/.*/(events|explain|logs|position)$"
parameters = { "path.namespace" = "red", "path.name" = "train" }

# No operator runs here, so no queue would ever answer.
[[operations]]
include-operation-id = "v3_create_job"
parameters = { "query.answerSeconds" = 0 }

[[operations]]
include-operation-id = "v3_stream"
enabled = false
"""


@pytest.fixture
async def many(api: GatewayApiServer) -> GatewayApiServer:
    """A cluster with something for each route."""
    api.number(*(f"{node}/cuda:{index}" for node in "ab" for index in range(8)))
    status = {"phase": "Queued", "number": 3, "reason": "Resources", "message": "Need 8 GPUs, only 6 available"}
    api.put("gpujobs", make_job("waits", namespace="red", number=3, user="rita", status=status, gpu=8, workers=2))
    api.log_ends.set()
    return api


async def generate(api: GatewayApiServer, *, folder: Path, examples: int, seed: int = 1) -> tuple[int, str]:
    """Send `examples` requests to each operation; returns how many were sent, and what schemathesis objects to."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    async with serving(api, options=Options(rates=None), wait_seconds=0.01) as face:
        command = [PROGRAM, "--config-file", config, "run", f"{face.url}/openapi.json", "--no-color"]
        options = [
            "--header=Authorization: Bearer admin-token",
            f"--max-examples={examples}",
            "--request-timeout=60",
            "--continue-on-failure",
        ]
        process = await asyncio.create_subprocess_exec(
            *command,
            *options,
            f"--seed={seed}",
            "--generation-database=none",
            cwd=folder,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return answered(face), said.decode() if process.returncode else ""


def answered(face: Face) -> int:
    """How many requests the gateway has answered."""
    found = [sample for metric in face.made.metrics.registry.collect() for sample in metric.samples]
    return sum(int(sample.value) for sample in found if sample.name == "dovetail_gateway_requests_total")


@pytest.mark.timeout(LONG_SECONDS)  # some 20 s on a free machine; a busy one takes ten times that
async def test_no_generated_request_gets_an_answer_that_is_not_documented(
    many: GatewayApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count, objections = await generate(many, folder=tmp_path, examples=15)
    assert not objections, objections
    assert count >= 2_000
    assert "Traceback" not in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_nor_does_any_of_ten_thousand_more(
    many: GatewayApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    count, objections = await generate(many, folder=tmp_path, examples=400, seed=seed)
    assert not objections, objections
    assert count >= 10_000
    assert "Traceback" not in capsys.readouterr().out
