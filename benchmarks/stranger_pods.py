"""Measure what a pod that is none of Dovetail's costs kube-apiserver because of the chart's policies and webhook.

A real kube-apiserver and etcd; all other programs that follow pods are paused. Each pod is created, gets a status and
is deleted with plain requests. Batches without our policies, with those of this checkout, and with those of `--other`
follow each other in a new order each round. What the policies cost is the difference within a round.

Fixed before a change is measured: 20 rounds of 100 pods in each state, so 2,000 pods of each, in at most nine minutes
on an idle machine. A round is rejected if kube-apiserver was started again in it, and for no other reason; with fewer
than 10 rounds left it fails. The exit code is 1 if the mean cost of this checkout's policies exceeds the target.

    python benchmarks/stranger_pods.py [--rounds 20] [--pods 100] [--other CHECKOUT] [--target 0.4] [--json FILE]
"""

import argparse
import asyncio
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import api_rules
import plane
import queue_plane
import turns
from counts import count

from dovetail import names
from dovetail.api.resources import PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeError
from dovetail_sandbox.cluster import Cluster

WITHOUT: Final = "without"
KINDS: Final = (*api_rules.POLICIES, *api_rules.WEBHOOKS)
FEWEST_ROUNDS: Final = 10
# Student's t, two-sided, 95 %, by degrees of freedom.
_T95: Final = {9: 2.262, 10: 2.228, 11: 2.201, 12: 2.179, 14: 2.145, 19: 2.093, 29: 2.045}
_NAMESPACE: Final = "bench"


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--rounds", type=count, default=20, help="rounds of all states (default: %(default)s)")
    options.add_argument("--pods", type=count, default=100, help="pods of a state in a round (default: %(default)s)")
    options.add_argument("--other", type=Path, help="another checkout, whose chart's policies run in turns with these")
    options.add_argument("--json", type=Path, default=Path("out/stranger_pods.json"), help="where it is written too")
    options.add_argument(
        "--target", type=float, default=0.4, help="highest cost that is met, in ms of CPU a pod (default: %(default)s)"
    )
    args = options.parse_args()
    without = ["agent", "operator", "gateway"]
    nodes = "- {name: none, count: 1}\n"
    with queue_plane.sandbox(nodes=nodes, without=without) as made, tempfile.TemporaryDirectory() as folder:
        files = api_rules.write(made, kinds=KINDS, other=args.other, folder=Path(folder))
        for name in ("extender", "kube-scheduler", "webhook"):
            made.stop(name)
        with queue_plane.paused(made, *plane.PAUSED):
            found = asyncio.run(measure(made, files=files, rounds=args.rounds, pods=args.pods))
    queue_plane.report(found, path=args.json)
    cost = found["costs"]["this"]
    is_met = cost["ms"] <= args.target
    print(
        f"{cost['ms']:g} ms a pod, 95 %: {cost['from']:g} to {cost['to']:g}; at most {args.target:g}: "
        + ("met" if is_met else "missed")
    )
    return 0 if is_met else 1


async def measure(made: Cluster, *, files: Mapping[str, Path], rounds: int, pods: int) -> dict[str, Any]:
    """Milliseconds of kube-apiserver for a pod, by state; one value for each round that counts."""
    order, rng = [WITHOUT, *files], random.Random(1)
    taken: list[dict[str, float]] = []
    rejected = 0
    async with plane.client_of(made) as client:
        await _switch(made, client, files=files, to="this")
        await _batch(client, pods=pods, prefix="warm")
        for at in range(rounds):
            rng.shuffle(order)
            pid, found = made.pid("kube-apiserver"), dict[str, float]()
            for name in order:
                await _switch(made, client, files=files, to=name)
                with turns.measured(made) as used:
                    await _batch(client, pods=pods, prefix=f"{name}-{at}")
                found[name] = 1000 * used.cpu_seconds["kube-apiserver"] / pods
            if made.pid("kube-apiserver") == pid:
                taken.append(found)
            else:
                rejected += 1
    return {"rounds": taken, "rejected": rejected, "pods": pods, "costs": costs(taken)}


def costs(taken: Sequence[dict[str, float]]) -> dict[str, Any]:
    """The mean cost of each state's policies for a pod in ms, with its 95 % interval, and that of a pod without any."""
    if len(taken) < FEWEST_ROUNDS:
        raise SystemExit(f"only {len(taken)} rounds count, and {FEWEST_ROUNDS} are needed")
    found: dict[str, Any] = {WITHOUT: round(statistics.mean(each[WITHOUT] for each in taken), 3)}
    for name in taken[0].keys() - {WITHOUT}:
        differences = [each[name] - each[WITHOUT] for each in taken]
        t = _T95[max(degrees for degrees in _T95 if degrees <= len(taken) - 1)]
        half = t * statistics.stdev(differences) / math.sqrt(len(taken))
        mean = statistics.mean(differences)
        found[name] = {"ms": round(mean, 3), "from": round(mean - half, 3), "to": round(mean + half, 3)}
    return found


async def _switch(made: Cluster, client: Client, *, files: Mapping[str, Path], to: str) -> None:
    """Put these policies in force in place of all others."""
    await api_rules.use(made, files=files, name=None if to == WITHOUT else to)
    async with asyncio.timeout(60):
        while await _is_refused(client) != (to != WITHOUT):  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.2)
    # The server compiles all of them before it reads the next.
    await asyncio.sleep(2)


async def _is_refused(client: Client) -> bool:
    """Whether a pod is refused that only the policies refuse; one that is not is deleted."""
    body = _pod("probe") | {"metadata": {"name": "probe", "annotations": {names.ALLOCATION: "{}"}}}
    try:
        await client.create(PODS, body=body, as_type=dict[str, Any], namespace=_NAMESPACE)
    except KubeError:
        return True
    await client.delete(PODS, name="probe", namespace=_NAMESPACE, grace_period_seconds=0)
    return False


async def _batch(client: Client, *, pods: int, prefix: str) -> None:
    for at in range(pods):
        name = f"{prefix}-{at}"
        await client.create(PODS, body=_pod(name), as_type=dict[str, Any], namespace=_NAMESPACE)
        status = {"status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}}
        await client.patch(
            PODS, name=name, patch=status, as_type=dict[str, Any], namespace=_NAMESPACE, subresource="status"
        )
        await client.delete(PODS, name=name, namespace=_NAMESPACE, grace_period_seconds=0)


def _pod(name: str) -> dict[str, Any]:
    """A pod as others make it: labels, annotations, two containers with variables, probes and volumes."""
    container = {
        "image": "registry.example/app:1",
        "env": [{"name": f"VARIABLE_{at}", "value": "value"} for at in range(8)],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    return {
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/name": "app", "app.kubernetes.io/instance": "one", "pod-template-hash": "1"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
        },
        "spec": {
            "schedulerName": "none",
            "automountServiceAccountToken": False,
            "containers": [container | {"name": "app"}, container | {"name": "sidecar"}],
            "volumes": [{"name": "data", "emptyDir": {}}],
        },
    }


if __name__ == "__main__":
    sys.exit(main())
