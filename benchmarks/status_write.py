"""Measure the CPU that kube-apiserver takes for one write of a GPUJob's status, by the CRDs of two checkouts.

An etcd and a kube-apiserver of their own, without any other program. Each write is one of a whole status, with another
phase and message than the one before. The CRDs of this checkout and of `--other` follow each other in a new order each
round; compare the medians.

    python benchmarks/status_write.py --other CHECKOUT [--rounds 4] [--writes 200] [--json FILE]
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import secrets
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import queue_plane
import turns
from counts import count

from dovetail.api.resources import GPUJOBS
from dovetail.kube.auth.connection import load_connection
from dovetail.kube.client import Client
from dovetail_sandbox import progress
from dovetail_sandbox.programs import locate

# After a CRD has changed, the API server builds its schemas again.
SETTLING_SECONDS: Final = 6.0
WARM: Final = 30
_NAMESPACE: Final = "default"
_TIME: Final = "2026-01-01T00:00:00Z"
STATUS: Final[dict[str, Any]] = {
    "number": 17, "request": "1", "gpus": 1, "nodeList": "gpu-0", "nodes": ["gpu-0"], "attempt": 1,
    "workersActive": 1, "workersReady": 1, "admittedTime": _TIME,
    "placement": {"generation": 1, "nodes": [{"name": "gpu-0", "workers": 1}], "worker": {"request": "1"}},
    "devices": [
        {"worker": 0, "index": 0, "node": "gpu-0", "uuid": "GPU-gpu-0-0", "model": "V100", "shareMilli": 1000,
         "memoryMiB": 32768}
    ],
    "conditions": [
        {"type": kind, "status": "True", "reason": kind, "message": "It is so", "lastTransitionTime": _TIME}
        for kind in ("Admitted", "DevicesHealthy", "Running")
    ],
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A kube-apiserver without anything else."""

    process: int
    kubeconfig: Path
    kubectl: Path

    def apply(self, crds: Path) -> None:
        """Put these CRDs in force."""
        command = [self.kubectl, f"--kubeconfig={self.kubeconfig}", "apply", "--server-side", "--force-conflicts"]
        subprocess.run([*command, f"--filename={crds}"], check=True, capture_output=True)

    def cpu_seconds(self) -> float:
        """What it has taken so far."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument(
        "--other", type=Path, required=True, help="another checkout, whose CRD runs in turns with this"
    )
    options.add_argument("--rounds", type=count, default=4, help="turns of each (default: %(default)s)")
    options.add_argument("--writes", type=count, default=200, help="writes of a turn (default: %(default)s)")
    options.add_argument("--json", type=Path, default=Path("out/status_write.json"), help="where it is written too")
    args = options.parse_args()
    checkouts = {"this": turns.HERE, "other": args.other.resolve()}
    crds = {name: path / "helm" / "dovetail" / "crd-files" / "gpujobs.yaml" for name, path in checkouts.items()}
    with tempfile.TemporaryDirectory() as folder, server(Path(folder)) as made:
        found = asyncio.run(measure(made, crds=crds, rounds=args.rounds, writes=args.writes))
    queue_plane.report(found, path=args.json)


async def measure(made: Server, *, crds: dict[str, Path], rounds: int, writes: int) -> dict[str, Any]:
    """Milliseconds for a write by checkout: each round's, and the median."""
    taken: dict[str, list[float]] = {name: [] for name in crds}
    order, rng = list(crds), random.Random(1)
    async with Client(load_connection(made.kubeconfig), deadline_seconds=60.0) as client:
        made.apply(crds["this"])
        await asyncio.sleep(SETTLING_SECONDS)
        await client.create(GPUJOBS, body=queue_plane.job("x"), as_type=dict[str, Any], namespace=_NAMESPACE)
        for _ in range(rounds):
            rng.shuffle(order)
            for name in order:
                await asyncio.to_thread(made.apply, crds[name])
                await asyncio.sleep(SETTLING_SECONDS)
                await _write(client, WARM)
                began = made.cpu_seconds()
                await _write(client, writes)
                taken[name].append(round(1000 * (made.cpu_seconds() - began) / writes, 2))
    return {"medians": {name: statistics.median(each) for name, each in taken.items()}, "rounds": taken}


async def _write(client: Client, count: int) -> None:
    job = await client.get(GPUJOBS, name="x", as_type=dict[str, Any], namespace=_NAMESPACE)
    for at in range(count):
        running = {"phase": "Running", "startTime": _TIME} if at % 2 else {"phase": "Queued", "reason": "Resources"}
        job["status"] = {**STATUS, **running, "message": f"Message {at}"}
        job = await client.update(
            GPUJOBS, name="x", body=job, as_type=dict[str, Any], namespace=_NAMESPACE, subresource="status"
        )


@contextlib.contextmanager
def server(folder: Path) -> Iterator[Server]:
    """An etcd and a kube-apiserver on loopback; ended at the end."""
    programs = locate.resolve(["etcd", "kube-apiserver", "kubectl"], report=progress.reporter())
    store, peers, api = (_free_port() for _ in range(3))
    token, key = secrets.token_hex(16), folder / "key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n', encoding="utf-8")
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(port=api, token=token)), encoding="utf-8")
    etcd = [f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{store}", "--unsafe-no-fsync"]
    etcd += [f"--advertise-client-urls=http://127.0.0.1:{store}", f"--listen-peer-urls=http://127.0.0.1:{peers}"]
    etcd += [f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}"]
    etcd += [f"--initial-cluster=default=http://127.0.0.1:{peers}"]
    serving = [f"--etcd-servers=http://127.0.0.1:{store}", "--bind-address=127.0.0.1", f"--secure-port={api}"]
    serving += [f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"]
    serving += ["--service-account-issuer=https://localhost", f"--token-auth-file={folder}/tokens.csv"]
    serving += [f"--cert-dir={folder}/certificates", "--service-cluster-ip-range=10.0.0.0/24"]
    with _running([programs["etcd"], *etcd]), _running([programs["kube-apiserver"], *serving]) as process:
        made = Server(process=process, kubeconfig=kubeconfig, kubectl=programs["kubectl"])
        _until_ready(made)
        yield made


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def _kubeconfig(*, port: int, token: str) -> dict[str, Any]:
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": token}}],
    }


@contextlib.contextmanager
def _running(command: list[Any]) -> Iterator[int]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


def _until_ready(made: Server, *, limit_seconds: float = 120.0) -> None:
    asked, began = [made.kubectl, f"--kubeconfig={made.kubeconfig}", "get", "--raw", "/readyz"], time.monotonic()
    while subprocess.run(asked, check=False, capture_output=True).returncode:
        if time.monotonic() > began + limit_seconds:
            raise SystemExit(f"kube-apiserver is not ready after {limit_seconds:.0f} s")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
