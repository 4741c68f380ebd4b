"""Measure the operator's own CPU for a GPUJob, in turns with the operator of another checkout.

The operator is a process of its own. The API server is a dictionary in this process, which also plays the Job
controller, kube-scheduler and kubelets. So the value is that of the operator's Python alone, without TLS, and other
work on the machine hardly changes it.

- `running`: `--jobs` GPUJobs of one GPU come at a rate and start at once: CPU for each, from its creation until its
  status is Running.
- `reasons`: as many come to the full cluster: CPU for each until its status has a reason.
- `admissions`: `--queue` jobs come at once to nodes on which a job runs for two seconds: CPU for each admission.
- `gang`: one GPUJob with a worker for each GPU: CPU for each pod.

    python benchmarks/operator_cpu.py [--nodes 50] [--rate 40] [--queue 3000] [--rounds 3] [--other CHECKOUT]
        [--json FILE]
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import plane
import queue_plane
import turns
from counts import count
from queue_plane import NAMESPACE

from dovetail import names
from dovetail.api.devices import AllocatedDevice
from dovetail.pods.allocation import Allocation, ContainerAllocation, annotations_of
from tests.poison.api_server import ApiServer

AT = "2026-01-01T00:00:00Z"
RUN_SECONDS = 2.0
SETTLING_SECONDS = 2.0
PROGRAM = "import sys; from dovetail_operator.main import main; sys.exit(main())"
_TICKS = os.sysconf("SC_CLK_TCK")
# Delays of the controllers that the server plays.
_STEP_SECONDS = 0.02


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--nodes", type=count, default=50, help="nodes with 8 GPUs each (default: %(default)s)")
    options.add_argument("--rate", type=float, default=40.0, help="submissions a second (default: %(default)s)")
    options.add_argument("--queue", type=count, default=3_000, help="jobs submitted at once (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=3, help="turns of each checkout (default: %(default)s)")
    options.add_argument("--only", default="", help="one of the measurements alone")
    options.add_argument("--other", type=Path, help="another checkout, whose operator runs in turns with this one")
    options.add_argument("--json", type=Path, default=Path("out/operator_cpu.json"), help="where it is written too")
    args = options.parse_args()
    queue_plane.report(asyncio.run(measure(args)), path=args.json)


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of CPU by measurement and checkout, and the median ratio of the turns."""
    checkouts = ({"other": args.other.resolve()} if args.other else {}) | {"this": turns.HERE}
    kinds = {"running": running, "reasons": reasons, "admissions": admissions, "gang": gang}
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(args.rounds):
        for kind, play in kinds.items():
            if args.only in {"", kind}:
                for name, checkout in checkouts.items():
                    found[kind][name].append(await turn(play, checkout=checkout, args=args))
                    print(f"{kind}, {name}: {found[kind][name][-1]:.2f} ms", flush=True)
    return {kind: _compared(taken) for kind, taken in found.items()}


def _compared(taken: Mapping[str, list[float]]) -> dict[str, Any]:
    result: dict[str, Any] = {f"{name}_ms": round(statistics.median(values), 2) for name, values in taken.items()}
    if "other" in taken:
        ratios = [this / other for this, other in zip(taken["this"], taken["other"], strict=True)]
        result["ratio"] = round(statistics.median(ratios), 3)
    return result


class Plane(ApiServer):
    """The dictionary, with what the controllers do: `runs` says whether pods start, `ends` after how many seconds."""

    def __init__(self, *, nodes: int) -> None:
        super().__init__()
        self.ends: float | None = None
        self.phases: dict[str, str] = {}
        self.reasons: set[str] = set()
        self.admitted = 0
        self._free: dict[str, list[int]] = {}
        for at in range(nodes):
            shape = plane.NodeShape(name=f"node-{at:04d}")
            self._free[shape.name] = list(range(shape.devices))
            self.put("nodes", plane.node_manifest(shape))
            self.put("gpunodes", plane.gpunode_manifest(shape))

    def put(self, plural: str, subject: dict[str, Any]) -> dict[str, Any]:
        """Store an object, and let the controllers react to it. Events are only counted."""
        meta = subject["metadata"]
        if plural == "events":
            return subject
        is_new = f"{meta.get('namespace', '')}/{meta['name']}" not in self.objects[plural]
        meta.setdefault("generation", 1)
        stored = super().put(plural, subject)
        if plural == "gpujobs":
            status = subject.get("status") or {}
            self.phases[meta["name"]] = status.get("phase") or ""
            if status.get("reason") not in {None, "", "Evaluating"}:
                self.reasons.add(meta["name"])
        elif plural == "jobs" and is_new:
            self.admitted += 1
            asyncio.get_running_loop().create_task(self._serve(subject))
        return stored

    async def _serve(self, child: dict[str, Any]) -> None:
        workers = child["spec"]["completions"]
        if self.ends is not None:
            await asyncio.sleep(self.ends)
            self._finish(child, workers=workers)
            return
        await asyncio.sleep(_STEP_SECONDS)
        nodes = self._planned(child)
        pods = []
        for worker in range(workers):
            pods.append(self.put("pods", self._pod(child, worker=worker)))
            if worker % 10 == 0:
                await asyncio.sleep(0)
        self._job_status(child, active=workers, startTime=AT)
        for worker, pod in enumerate(pods):
            await asyncio.sleep(_STEP_SECONDS if workers == 1 else _STEP_SECONDS / 4)
            self._bind(pod, node=nodes[worker])
            await asyncio.sleep(_STEP_SECONDS if workers == 1 else 0)
            self._start(pod)
        self._job_status(child, active=workers, startTime=AT, ready=workers)

    def _planned(self, child: dict[str, Any]) -> list[str]:
        job = self.objects["gpujobs"][f"{NAMESPACE}/{child['metadata']['name']}"]
        return [node["name"] for node in job["status"]["placement"]["nodes"] for _ in range(node["workers"])]

    def _pod(self, child: dict[str, Any], *, worker: int) -> dict[str, Any]:
        template, meta = child["spec"]["template"], child["metadata"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}
        annotations = {**template["metadata"]["annotations"], names.COMPLETION_INDEX: str(worker)}
        return {
            "metadata": {
                "name": f"{meta['name']}-{worker}",
                "namespace": NAMESPACE,
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
            "status": {"phase": "Pending"},
        }

    def _bind(self, pod: dict[str, Any], *, node: str) -> None:
        index = self._free[node].pop()
        device = AllocatedDevice(uuid=f"GPU-{node}-{index}", index=index, share_milli=1000, memory_mib=32_768)
        allocation = Allocation(
            node=node, mode="Exclusive", containers=[ContainerAllocation(index=0, devices=[device])]
        )
        meta = {**pod["metadata"], "annotations": {**pod["metadata"]["annotations"], **annotations_of(allocation)}}
        scheduled = {"type": "PodScheduled", "status": "True"}
        status = {"phase": "Pending", "conditions": [scheduled]}
        pod |= {"metadata": meta, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        self.put("pods", pod)

    def _start(self, pod: dict[str, Any]) -> None:
        ready = [{"type": name, "status": "True"} for name in ("PodScheduled", "Ready")]
        containers = [{"name": "main", "ready": True, "state": {"running": {"startedAt": AT}}}]
        pod["status"] = {"phase": "Running", "startTime": AT, "conditions": ready, "containerStatuses": containers}
        self.put("pods", pod)

    def _job_status(self, child: dict[str, Any], **status: Any) -> None:
        child["status"] = status
        self.put("jobs", child)

    def _finish(self, child: dict[str, Any], *, workers: int) -> None:
        ended = {"status": "True", "reason": "CompletionsReached", "message": "", "lastTransitionTime": AT}
        conditions = [{"type": "SuccessCriteriaMet", **ended}, {"type": "Complete", **ended}]
        self._job_status(child, startTime=AT, completionTime=AT, succeeded=workers, conditions=conditions)

    def submit(self, name: str, *, workers: int = 1) -> None:
        """Create a GPUJob."""
        body = queue_plane.job(name, workers=workers)
        body["metadata"]["namespace"] = NAMESPACE
        self.put("gpujobs", body)


async def turn(
    play: Callable[[Plane, int, argparse.Namespace], Any],
    *,
    checkout: Path,
    args: argparse.Namespace,
    program: str = PROGRAM,
) -> float:
    """One measurement with the operator of a checkout. Returns CPU milliseconds for each job or pod."""
    async with Plane(nodes=args.nodes).running() as api, _operator(api, checkout=checkout, program=program) as pid:
        return float(await play(api, pid, args))


async def running(api: Plane, pid: int, args: argparse.Namespace) -> float:
    """CPU for each job that starts."""
    count, before = 8 * args.nodes, cpu_ms(pid)
    for at in range(count):
        api.submit(f"job-{at:05d}")
        await asyncio.sleep(1 / args.rate)
    await until(lambda: sum(phase == "Running" for phase in api.phases.values()) >= count)
    await asyncio.sleep(SETTLING_SECONDS)
    return (cpu_ms(pid) - before) / count


async def reasons(api: Plane, pid: int, args: argparse.Namespace) -> float:
    """CPU for each job that gets the reason why it waits."""
    full = args.nodes
    for at in range(full):
        body = queue_plane.job(f"full-{at:05d}", gpu=8)
        body["metadata"]["namespace"] = NAMESPACE
        api.ends = 1e9
        api.put("gpujobs", body)
    await until(lambda: api.admitted >= full)
    await asyncio.sleep(SETTLING_SECONDS)
    count, before = 8 * args.nodes, cpu_ms(pid)
    for at in range(count):
        api.submit(f"asks-{at:05d}")
        await asyncio.sleep(1 / args.rate)
    await until(lambda: sum(name.startswith("asks") for name in api.reasons) >= count)
    await asyncio.sleep(SETTLING_SECONDS)
    return (cpu_ms(pid) - before) / count


async def admissions(api: Plane, pid: int, args: argparse.Namespace) -> float:
    """CPU for each admission of many jobs that come at once, until all are over."""
    api.ends, before = RUN_SECONDS, cpu_ms(pid)
    for at in range(args.queue):
        api.submit(f"job-{at:05d}")
        if at % 100 == 0:
            await asyncio.sleep(0)
    await until(lambda: sum(phase == "Succeeded" for phase in api.phases.values()) >= args.queue)
    return (cpu_ms(pid) - before) / args.queue


async def gang(api: Plane, pid: int, args: argparse.Namespace) -> float:
    """CPU for each pod of one gang."""
    workers, before = 8 * args.nodes, cpu_ms(pid)
    api.submit("gang", workers=workers)

    def runs() -> bool:
        status = api.objects["gpujobs"][f"{NAMESPACE}/gang"].get("status") or {}
        return bool(status.get("workersReady") == workers)

    await until(runs)
    await asyncio.sleep(SETTLING_SECONDS)
    return (cpu_ms(pid) - before) / workers


async def until(met: Callable[[], bool]) -> None:
    """Wait until a condition holds, ten minutes at most."""
    async with asyncio.timeout(600):
        while not met():  # noqa: ASYNC110 - another task of this loop changes it
            await asyncio.sleep(0.1)


def cpu_ms(pid: int) -> float:
    """CPU time of a process so far, in milliseconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / _TICKS


@asynccontextmanager
async def _operator(api: Plane, *, checkout: Path, program: str) -> AsyncIterator[int]:
    """The operator of a checkout on this API server, once it follows all objects."""
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(api.url), encoding="utf-8")
        path = os.pathsep.join(str(checkout / root) for root in turns.ROOTS)
        port = plane.free_port()
        argv = ["-c", program, f"--kubeconfig={kubeconfig}", f"--metrics-port={port}"]
        environment = {**os.environ, "PYTHONPATH": path, "POD_NAMESPACE": "home", "PYTHONDONTWRITEBYTECODE": ""}
        log = Path(folder) / "log"
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(sys.executable, *argv, env=environment, stderr=out)
        try:
            await until(lambda: process.returncode is not None or b"objects listed" in log.read_bytes())
            if process.returncode is not None:
                raise RuntimeError(f"the operator ended: {log.read_text(encoding='utf-8')}")
            await asyncio.sleep(SETTLING_SECONDS)
            yield process.pid
        finally:
            # Nothing of it is kept, and with a queue of another kind it may not end by itself.
            if process.returncode is None:
                process.kill()
            await process.wait()


def _kubeconfig(url: str) -> str:
    return f"""
apiVersion: v1
kind: Config
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {{token: t}}}}]
contexts: [{{name: x, context: {{cluster: c, user: u}}}}]
current-context: x
"""


if __name__ == "__main__":
    main()
