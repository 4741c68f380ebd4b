"""A real Prometheus with the samples of a file, as a gateway's source of curves."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.background import free_ports
from tests.cluster.prometheus import Prometheus


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """What the agent of a node said of a device at a time."""

    at: float
    node: str
    index: int
    model: str = "Tesla V100-SXM2-32GB"
    cluster: str = "one"
    figures: dict[str, float]


def open_metrics(scrapes: Sequence[Scrape]) -> str:
    """The scrapes in OpenMetrics, by metric and time."""
    lines = list[str]()
    for figure in sorted({name for each in scrapes for name in each.figures}):
        lines.append(f"# TYPE dovetail_device_{figure} gauge")
        for each in sorted(scrapes, key=lambda scrape: (scrape.node, scrape.index, scrape.at)):
            labels = {
                "node": each.node, "index": each.index, "uuid": f"{each.node}-{each.index}", "model": each.model,
                "cluster": each.cluster,
            }  # fmt: skip
            text = ",".join(f'{label}="{value}"' for label, value in labels.items())
            if figure in each.figures:
                lines.append(f"dovetail_device_{figure}{{{text}}} {each.figures[figure]} {each.at:.0f}")
    return "\n".join([*lines, "# EOF", ""])


@asynccontextmanager
async def holding(scrapes: Sequence[Scrape], *, folder: Path) -> AsyncIterator[str]:
    """The address of a Prometheus with these samples; the test is skipped where there is none."""
    program, tool = shutil.which("prometheus"), shutil.which("promtool")
    if program is None or tool is None:
        pytest.skip("there is no prometheus")
    (folder / "samples.txt").write_text(open_metrics(scrapes), encoding="utf-8")
    (folder / "prometheus.yml").write_text("{}", encoding="utf-8")
    made = [tool, "tsdb", "create-blocks-from", "openmetrics", str(folder / "samples.txt"), str(folder / "data")]
    await asyncio.to_thread(subprocess.run, made, check=True, capture_output=True)
    (port,) = free_ports(count=1)
    process = await asyncio.create_subprocess_exec(
        program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error",
    )  # fmt: skip
    try:
        found = Prometheus(port)
        await found.until_ready()
        yield found.url
    finally:
        process.terminate()
        await process.wait()
