"""Measure the cost of one agent on its node: CPU, memory, a scrape, and the delay until a change is reported.

A real agent with default settings runs against a real API server. Its devices are those of the tests' C library, which
NVIDIA's own binding loads as it would load the driver's. Each process on a device is a real one. CPU is what the kernel
counts for the agent's threads. A second run has a call that hangs: the heartbeat must continue.

    python benchmarks/agent_cost.py [--devices 8] [--processes 64] [--seconds 120] [--json FILE]
"""

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import plane
from counts import count

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dovetail import names
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpunode import GPUNode
from dovetail.api.resources import GPUNODES, NODES, PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import NotFound
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from dovetail_sandbox.cluster import Cluster
from tests.agent.nvml_stub import GPU_IS_LOST, Process, Scenario, built, card_uuid

NODE: Final = "measured"
SETTLING_SECONDS: Final = 40
SCRAPES: Final = 30
HANGS: Final = "nvmlDeviceGetPowerUsage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The results of one run; the times of changes are None if they were not measured."""

    devices: int
    processes: int
    seconds: float
    cpu_percent: float
    memory_mib: int
    memory_peak_mib: int
    scrape_cpu_ms: float
    scrape_ms_median: float
    scrape_ms_worst: float
    change_seconds: list[float]
    heartbeats_while_hung: int
    measured_age_seconds: float


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--devices", type=count, default=8, help="cards (default: %(default)s)")
    options.add_argument("--processes", type=int, default=64, help="processes on them (default: %(default)s)")
    options.add_argument("--seconds", type=count, default=120, help="how long CPU is counted (default: %(default)s)")
    options.add_argument("--changes", type=int, default=3, help="cards that are lost, one after another (default: 3)")
    options.add_argument("--json", type=Path, default=Path("out/agent_cost.json"), help="where it is written too")
    args = options.parse_args()
    with plane.plane() as made, sleepers(args.processes) as pids:
        cost = asyncio.run(measured(made, args=args, pids=pids))
    print(table(cost))
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(asdict(cost), indent=2), encoding="utf-8")


async def measured(made: Cluster, *, args: argparse.Namespace, pids: Sequence[int]) -> Cost:
    """Run all measurements, with one agent for the load and one for the hung call."""
    async with plane.client_of(made) as client:
        await add_node(client, devices=args.devices)
        with running(made, scenario=scenario(args.devices, pids=pids)) as agent:
            await reported(client, devices=args.devices)
            await asyncio.sleep(SETTLING_SECONDS)
            percent = await cpu_percent(agent.pid, seconds=args.seconds)
            memory, _ = plane.memory_mib(agent.pid)
            counted = cpu_seconds(agent.pid)
            scrapes = await scraped(agent.port)
            scrape_cpu_ms = 1000 * (cpu_seconds(agent.pid) - counted) / SCRAPES
            changes = await changed(client, agent, devices=args.devices, pids=pids, cards=args.changes)
            _, peak = plane.memory_mib(agent.pid)
            print(f"CPU {percent:.2f} %, {memory} MiB (peak {peak}), scrape {max(scrapes):.1f} ms, changes {changes}")
        beats, age = await hung(client, made, devices=args.devices, pids=pids)
    return Cost(
        devices=args.devices,
        processes=args.processes,
        seconds=args.seconds,
        cpu_percent=percent,
        memory_mib=memory,
        memory_peak_mib=peak,
        scrape_cpu_ms=scrape_cpu_ms,
        scrape_ms_median=statistics.median(scrapes),
        scrape_ms_worst=max(scrapes),
        change_seconds=changes,
        heartbeats_while_hung=beats,
        measured_age_seconds=age,
    )


def scenario(devices: int, *, pids: Sequence[int], **more: Any) -> Scenario:
    """Busy devices, with the processes distributed over them."""
    busy = {"used": 40_000, "util": 87, "celsius": 61, "power": 350_000}
    processes = [Process(pid=pid, mib=1000, card=at % devices) for at, pid in enumerate(pids)]
    links = {card: [other for other in range(devices) if other != card] for card in range(devices)}
    return Scenario(
        cards=devices, figures=dict.fromkeys(range(devices), busy), processes=processes, peers=links, **more
    )


@dataclass(frozen=True, slots=True)
class Agent:
    """A running agent: its process, its port, and the file from which its library reads the scenario."""

    pid: int
    port: int
    played: Path

    def play(self, scenario: Scenario) -> None:
        """Play a scenario from the library's next call on."""
        self.played.write_text(scenario.text(), encoding="utf-8")
        os.kill(self.pid, signal.SIGUSR1)


@contextmanager
def running(made: Cluster, *, scenario: Scenario, config: str = "{}") -> Iterator[Agent]:
    """An agent as the DaemonSet starts it."""
    with tempfile.TemporaryDirectory() as folder:
        played, settings = Path(folder, "played"), Path(folder, "gpu_config.yaml")
        played.write_text(scenario.text(), encoding="utf-8")
        settings.write_text(config, encoding="utf-8")
        port = plane.free_port()
        environment = {"LD_LIBRARY_PATH": str(built()), "NVML_STUB_SCENARIO": str(played)}
        command = [f"--config={settings}", "--provider=nvml", f"--node={NODE}", f"--metrics-port={port}"]
        process = subprocess.Popen(
            [sys.executable, "-m", "dovetail_agent.main", *command],
            env=os.environ | environment | {"KUBECONFIG": str(made.kubeconfig)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Agent(process.pid, port, played)
        finally:
            process.terminate()
            process.wait(30)


@contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """Idle processes that the devices report."""
    started = [subprocess.Popen(["sleep", "3600"]) for _ in range(count)]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


async def add_node(client: Client, *, devices: int) -> None:
    """Create the Node, and a pod for each device, bound with its allocation."""
    host = {"cpu": "96", "memory": "768Gi", "pods": "110"}
    node = {
        "metadata": {"name": NODE, "labels": {names.LABEL_MANAGED: "true"}},
        "status": {"capacity": host, "allocatable": host},
    }
    await client.create(NODES, body=node, as_type=dict[str, Any])
    for index in range(devices):
        device = AllocatedDevice(uuid=card_uuid(index), index=index, share_milli=1000, memory_mib=81008)
        containers = [ContainerAllocation(index=0, devices=[device])]
        body = plane.pod(f"tenant-{index}", gpu="1", milli=1000)
        body["metadata"]["annotations"] |= annotations_of(
            Allocation(node=NODE, mode="Exclusive", containers=containers)
        )
        body["spec"]["nodeName"] = NODE
        await client.create(PODS, body=body, as_type=dict[str, Any], namespace="default")


async def cpu_percent(pid: int, *, seconds: float) -> float:
    """CPU use in percent of one core, over that time."""
    before, began = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - began)


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads as the kernel's scheduler counts it, in nanoseconds each."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


async def scraped(port: int) -> list[float]:
    """Milliseconds of each scrape."""
    took = []
    async with aiohttp.ClientSession() as session:
        for _ in range(SCRAPES):
            began = time.perf_counter()
            async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                text = await answer.text()
            took.append(1000 * (time.perf_counter() - began))
            assert "dovetail_device_utilization_ratio" in text
    return took


async def changed(client: Client, agent: Agent, *, devices: int, pids: Sequence[int], cards: int) -> list[float]:
    """Seconds from a device's loss until the API server has it, for several devices at irregular moments."""
    took = []
    for card in range(cards):
        await asyncio.sleep(3.7 * (card + 1))
        lost = [("*", each, GPU_IS_LOST) for each in range(card + 1)]
        began = time.monotonic()
        agent.play(scenario(devices, pids=pids, answers=lost))
        await until(client, lambda node, card=card: node.status.devices[card].health == "Unhealthy")
        took.append(time.monotonic() - began)
    return took


async def hung(client: Client, made: Cluster, *, devices: int, pids: Sequence[int]) -> tuple[int, float]:
    """Heartbeats in 40 s while a call hangs, and the age of the data that they reported."""
    beat = "{monitor_update_interval: 5, heartbeat_interval: 5}"
    stuck = scenario(devices, pids=pids, delays_ms={HANGS: 600_000})
    with running(made, scenario=scenario(devices, pids=pids), config=beat) as agent:
        before = await reported(client, devices=devices, after=time.time())
        agent.play(stuck)
        reports, last = set(), before
        end = time.monotonic() + 40
        while time.monotonic() < end:
            last = await client.get(GPUNODES, name=NODE, as_type=GPUNode)
            reports.add(last.status.observed_at)
            await asyncio.sleep(0.5)
    return len(reports) - 1, seconds_of(last.status.observed_at) - seconds_of(last.status.measured_at)


async def reported(client: Client, *, devices: int, after: float = 0.0) -> GPUNode:
    """Wait until an agent that started then has reported the node's devices."""
    return await until(
        client,
        lambda node: (
            len(node.status.devices) == devices
            and all(device.health == "Healthy" for device in node.status.devices)
            and seconds_of(node.status.observed_at) >= after
        ),
    )


async def until(client: Client, holds: Callable[[GPUNode], bool]) -> GPUNode:
    """Wait until the condition holds, and return the GPUNode."""
    get: Callable[[], Awaitable[GPUNode]] = lambda: client.get(GPUNODES, name=NODE, as_type=GPUNode)  # noqa: E731 - short
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            node = await get()
        except NotFound:
            node = None
        if node is not None and holds(node):
            return node
        await asyncio.sleep(0.05)
    raise TimeoutError("the report did not come in 120 s")


def seconds_of(timestamp: str | None) -> float:
    """Seconds since 1970."""
    return datetime.fromisoformat(timestamp).timestamp() if timestamp else 0.0


def table(cost: Cost) -> str:
    """The table for docs/performance.md."""
    changes = ", ".join(f"{seconds:.1f}" for seconds in cost.change_seconds)
    head = "| devices | processes | CPU of one core | memory (peak) | scrape: CPU, median (worst) | delay | hung call |"
    row = (
        f"| {cost.devices} | {cost.processes} | {cost.cpu_percent:.2f} % "
        f"| {cost.memory_mib} ({cost.memory_peak_mib}) MiB "
        f"| {cost.scrape_cpu_ms:.1f}, {cost.scrape_ms_median:.1f} ({cost.scrape_ms_worst:.1f}) ms | {changes} s "
        f"| {cost.heartbeats_while_hung} heartbeats in 40 s, figures {cost.measured_age_seconds:.0f} s old |"
    )
    return f"{head}\n|---|---|---|---|---|---|---|\n{row}"


if __name__ == "__main__":
    main()
