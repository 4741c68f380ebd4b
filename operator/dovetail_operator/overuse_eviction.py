"""Evicts pods of no GPUJob that an agent wants ended for their memory. Their owner makes them anew, or nobody does.

By the eviction API, so that disruption budgets hold: one that forbids it is asked again, ever later.
"""

import random
from collections.abc import Callable
from typing import Any, Final

from dovetail.api.gpunode import GPUNode, Overuse
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, KubeError, NotFound
from dovetail.kube.resources import PODS
from dovetail.logs import get_logger
from dovetail.workqueue import WorkQueue

log = get_logger("dovetail.operator")
_HANDS: Final = 4


class PodEvictions:
    """Feed it every report, then `run` it. `is_of_a_job` tells by UID whether a pod is a GPUJob's: that ends."""

    def __init__(self, client: Client, *, is_of_a_job: Callable[[str], bool]) -> None:
        self._client = client
        self._is_of_a_job = is_of_a_job
        self._wanted: dict[str, dict[str, Overuse]] = {}
        self._queue = WorkQueue()

    def changed(self, gpunode: GPUNode) -> None:
        """A report was seen."""
        node = gpunode.metadata.name
        self._wanted[node] = {each.uid: each for each in gpunode.status.overuses if each.evict}
        for uid in self._wanted[node]:
            self._queue.add(f"{node}/{uid}")

    def gone(self, node: str) -> None:
        """Nobody reports of that node any more."""
        self._wanted.pop(node, None)

    async def run(self) -> None:
        """Evict until cancelled."""
        rng = random.Random()  # noqa: S311 - spreads retries, guards nothing
        await self._queue.serve(self._evict, hands=_HANDS, failed=_tried_again, rng=rng, retried=KubeError)

    async def _evict(self, key: str) -> None:
        node, uid = key.split("/")
        wanted = self._wanted.get(node, {}).get(uid)
        if wanted is None or self._is_of_a_job(uid):
            return
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": wanted.name, "namespace": wanted.namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        try:
            await self._client.create(
                PODS, body, as_type=dict[str, Any], namespace=wanted.namespace, name=wanted.name, subresource="eviction"
            )
        except (NotFound, Conflict):  # it is gone, or another has its name
            return
        log.info("pod evicted", pod=f"{wanted.namespace}/{wanted.name}", used_mib=wanted.used_mib, node=node)


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log.warning("eviction is tried again", pod_uid=key, error=str(error), wait_seconds=round(wait, 1))
