"""A real Prometheus that scrapes a sandbox, with the chart's rules."""

import asyncio
import json
import shutil
import time
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail_sandbox.cluster import Cluster
from tests.background import free_ports
from tests.chart.generated import CHART


class Prometheus:
    """The server's API at `url`."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        """The data of an answer."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    async def until_ready(self) -> None:
        """Wait until it answers."""
        limit = time.monotonic() + 30
        while time.monotonic() < limit:
            try:
                self.ask("status/buildinfo")
            except OSError:
                await asyncio.sleep(0.2)
            else:
                return
        pytest.fail("Prometheus does not answer")

    def without_data(self, queries: Mapping[str, str]) -> dict[str, str]:
        """The queries, by panel, that have no sample."""
        return {panel: query for panel, query in queries.items() if not self.ask("query", query=query)["result"]}


@asynccontextmanager
async def scraping(sandbox: Cluster, *, folder: Path) -> AsyncIterator[Prometheus]:
    """Prometheus at work; the test is skipped where there is none."""
    program = shutil.which("prometheus") or pytest.skip("there is no prometheus")
    config = {
        **yaml.safe_load(sandbox.prometheus.read_text(encoding="utf-8")),
        "global": {"scrape_interval": "2s", "evaluation_interval": "2s"},
        "rule_files": [str(CHART / "rules" / "dovetail.yaml")],
    }
    file, (port,) = folder / "prometheus.yml", free_ports(count=1)
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    )  # fmt: skip
    try:
        found = Prometheus(port)
        await found.until_ready()
        yield found
    finally:
        process.terminate()
        await process.wait()
