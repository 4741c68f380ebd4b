"""Evicts reported pods without a GPUJob, after `overuse_check` has confirmed the report.

The eviction API respects disruption budgets. An eviction that a budget forbids is retried with a growing delay.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from prometheus_client import Counter

from dovetail.api.builtin import Pod
from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.api.resources import PODS
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.retry import JITTER
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger
from dovetail.process.rate_limit import Allowance, Spending
from dovetail_operator.devices.overuse_check import EndingRules, Refusal, refusal

log = get_logger("dovetail.operator")
_HANDS: Final = 4
# A node has at most some dozen tenants above their promise, and an agent requests one eviction per look (30 s): a
# correct agent stays far below this limit. A stolen token cannot empty its node before users see the first evictions.
OF_A_NODE: Final = Allowance(burst=4, every_seconds=15.0)
# Many nodes at once indicate a wrong model table or policy rather than many greedy pods.
OF_ALL_NODES: Final = Allowance(burst=16, every_seconds=2.0)


class PodEvictions:
    """Pass it every report, then `run` it.

    `pod` finds a pod by namespace and name in the operator's own cache. `is_of_a_job` says by UID whether a pod belongs
    to a GPUJob: then the GPUJob ends instead. `count` counts by `result`: Evicted, or a `Refusal`.
    """

    def __init__(
        self,
        client: Client,
        *,
        is_of_a_job: Callable[[str], bool],
        pod: Callable[[str, str], Pod | None],
        rules: EndingRules,
        count: Counter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._is_of_a_job = is_of_a_job
        self._pod = pod
        self._rules = rules
        self._clock = clock
        self._wanted: dict[str, dict[str, Overuse]] = {}
        # Refused reports that are still current, so that each is counted once: node, pod UID, device.
        self._refused: dict[str, dict[tuple[str, str], Refusal]] = {}
        self._logged: set[tuple[str, Refusal]] = set()
        self._spent: dict[str, Spending] = {}
        self._spent_in_all = Spending(OF_ALL_NODES)
        self._queue = WorkQueue()
        self._count = count

    def changed(self, gpunode: GPUNode) -> None:
        """Take a report."""
        node = gpunode.metadata.name
        self._wanted[node] = {each.uid: each for each in gpunode.status.overuses if each.evict}
        standing = {(each.uid, each.device) for each in self._wanted[node].values()}
        known = self._refused.get(node, {})
        self._refused[node] = {key: why for key, why in known.items() if key in standing}
        for uid in self._wanted[node]:
            self._queue.add(f"{node}/{uid}")

    def gone(self, node: str) -> None:
        """Drop a node whose GPUNode is deleted."""
        self._wanted.pop(node, None)
        self._refused.pop(node, None)
        self._logged = {key for key in self._logged if key[0] != node}

    async def run(self) -> None:
        """Evict until cancelled."""
        await self._queue.serve(self._evict, hands=_HANDS, failed=_tried_again, rng=JITTER)

    async def _evict(self, key: str) -> None:
        node, _, uid = key.partition("/")
        wanted = self._wanted.get(node, {}).get(uid)
        if wanted is None or self._is_of_a_job(uid):
            return
        if why := refusal(wanted, node=node, pod=self._pod(wanted.namespace, wanted.name), rules=self._rules):
            self._refuse(wanted, node=node, why=why)
            return
        if wait := self._wait_seconds(node):
            self._queue.add_later(key, seconds=wait)
            return
        await self._send(wanted, node=node)

    async def _send(self, wanted: Overuse, *, node: str) -> None:
        try:
            await evict(self._client, name=wanted.name, namespace=wanted.namespace, uid=wanted.uid)
        except (NotFound, Conflict):  # it is gone, or another has its name
            return
        self._count.labels("Evicted").inc()
        log.info("pod evicted", pod=f"{wanted.namespace}/{wanted.name}", used_mib=wanted.used_mib, node=node)

    def _wait_seconds(self, node: str) -> float:
        """How many seconds to wait before an eviction may be sent. 0 counts it as sent."""
        now = self._clock()
        self._spent = {name: each for name, each in self._spent.items() if not each.is_full(now=now)}
        mine = self._spent.setdefault(node, Spending(OF_A_NODE))
        wait = max(mine.wait_seconds(now=now), self._spent_in_all.wait_seconds(now=now))
        if not wait:
            mine.spend(now=now)
            self._spent_in_all.spend(now=now)
        return wait

    def _refuse(self, wanted: Overuse, *, node: str, why: Refusal) -> None:
        known, key = self._refused.setdefault(node, {}), (wanted.uid, wanted.device)
        if known.get(key) == why:
            return
        known[key] = why
        self._count.labels(why).inc()
        # Log once per node and reason: a forged report may name another pod each time.
        if (node, why) not in self._logged:
            self._logged.add((node, why))
            log.warning(
                "reported overuse does not end the pod",
                reason=why,
                node=node,
                pod=f"{wanted.namespace}/{wanted.name}",
                pod_uid=wanted.uid,
                device=wanted.device,
            )


async def evict(client: Client, *, name: str, namespace: str, uid: str) -> None:
    """Evict exactly this pod.

    Raises `NotFound` and `Conflict` if it has gone, and `TooManyRequests` if a disruption budget forbids it.
    """
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": uid}},
    }
    await client.create(PODS, body=body, as_type=dict[str, Any], namespace=namespace, name=name, subresource="eviction")


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log.warning("eviction is tried again", pod_uid=key, error=str(error), wait_seconds=round(wait, 1))
