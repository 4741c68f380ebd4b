"""Reports tenants above their memory promise, posts events, and kills if the policy says so.

`Evict` is the operator's task: it reads the report, because an agent has no right to delete pods. `Kill` is the agent's
own, because it frees memory at once: SIGKILL to the processes of that pod on that device, each only if it is still the
process that was seen. If that fails, because no process is visible or the right is missing, the report asks the
operator to evict.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from dovetail.api.gpunode import GPUNodeStatus, Overuse
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.reasons.codes import MEMORY_OVER_PROMISE
from dovetail.kube.event_recorder import EventRecorder
from dovetail.logs import get_logger
from dovetail_agent.devices.model import Process
from dovetail_agent.feature.events import warn_pod
from dovetail_agent.feature.protocol import Feature, Seen
from dovetail_agent.guards.memory import GuardRules, overuses, sentence
from dovetail_agent.processes.identity import KillResult, kill_same

log = get_logger(__name__)
REASON: Final = MEMORY_OVER_PROMISE.code
_MIB: Final = 1 << 20


def _kill(process: Process) -> KillResult:
    return kill_same(process.pid, began=process.started, pod_uid=process.pod_uid)


class MemoryGuardFeature(Feature):
    """The memory guard of all nodes that an agent serves."""

    name = "memory-guard"

    def __init__(
        self,
        events: EventRecorder,
        *,
        rules: GuardRules,
        kill: Callable[[Process], KillResult] = _kill,
    ) -> None:
        self._events = events
        self._rules = rules
        self._kill = kill
        self._above: dict[str, list[Overuse]] = {}
        self._ended: Counter[str] = Counter()
        self._unkillable: set[str] = set()

    def amend(self, status: GPUNodeStatus, *, seen: Seen) -> GPUNodeStatus:
        """Add the tenants above their promise to the status; `evict` asks the operator."""
        found = overuses(seen, rules=self._rules)
        self._unkillable &= {each.uid for each in found} | self._elsewhere(seen)
        found = [msgspec.structs.replace(each, evict=each.ends and self._asks_operator(each)) for each in found]
        self._above[seen.node.metadata.name] = found
        return msgspec.structs.replace(status, overuses=found)

    def forget(self, node: str) -> None:
        """Drop a node, and who was above a promise there."""
        self._above.pop(node, None)

    async def act(self, seen: Seen, *, status: GPUNodeStatus) -> None:
        """Post events about changes, and kill the tenants that the policy ends."""
        before = {(each.uid, each.device): each for each in (seen.previous.overuses if seen.previous else ())}
        tenants = {tenant.uid: tenant for tenant in seen.tenants}
        for each in status.overuses:
            tenant = tenants.get(each.uid)
            if tenant is None:
                continue
            known = before.get((each.uid, each.device))
            if known is None:
                self._post_event(tenant, seen=seen, overuse=each, then=self._threat())
            if each.evict and not (known and known.evict):
                self._ended["evict"] += 1
                self._post_event(tenant, seen=seen, overuse=each, then="; it is to be evicted")
            if each.ends and not each.evict:
                await self._end(tenant, overuse=each, seen=seen)

    async def _end(self, tenant: NodeTenant, *, overuse: Overuse, seen: Seen) -> None:
        processes = [process for process in _processes(seen, overuse=overuse) if process.pod_uid == overuse.uid]
        pod = f"{tenant.namespace}/{tenant.name}"
        try:
            results = {process.pid: self._kill(process) for process in processes}
        except OSError as error:
            log.warning("cannot kill", pod=pod, pids=[process.pid for process in processes], error=str(error))
            processes, results = [], {}
        if not processes:
            self._unkillable.add(overuse.uid)
        if replaced := [pid for pid, result in results.items() if result == "Replaced"]:
            log.warning("not killed: the process of that number is another by now", pod=pod, pids=replaced)
        killed = [pid for pid, result in results.items() if result == "Killed"]
        if not killed:
            return
        self._ended["kill"] += 1
        which = ", ".join(map(str, killed))
        self._post_event(tenant, seen=seen, overuse=overuse, then=f"; killed: process {which}")

    def _asks_operator(self, overuse: Overuse) -> bool:
        return self._rules.policy == "Evict" or overuse.uid in self._unkillable

    def _elsewhere(self, seen: Seen) -> set[str]:
        return {each.uid for node, found in self._above.items() if node != seen.node.metadata.name for each in found}

    def _threat(self) -> str:
        if self._rules.policy == "Warn":
            return ""
        return f"; it is ended unless that is over in {self._rules.grace.total_seconds():g} s"

    def _post_event(self, tenant: NodeTenant, *, seen: Seen, overuse: Overuse, then: str) -> None:
        node = seen.node.metadata.name
        said = f"It {sentence(overuse, node=node)}{then}"
        log.warning("memory over promise", pod=f"{tenant.namespace}/{tenant.name}", said=said)
        warn_pod(self._events, tenant=tenant, node=node, reason=REASON, message=said)

    def metrics(self) -> Iterable[Metric]:
        """Memory above promises by device in bytes, and how many tenants were ended for it."""
        above = GaugeMetricFamily(
            "dovetail_device_over_promise_bytes",
            "Memory that tenants use beyond what each was promised.",
            labels=["node", "index", "uuid"],
        )
        for labels, mib in _by_device(self._above).items():
            above.add_metric(labels, mib * _MIB)
        yield above
        ended = CounterMetricFamily(
            "dovetail_memory_guard_ended", "Tenants ended for using more than their promise.", labels=["how"]
        )
        for how in ("evict", "kill"):
            ended.add_metric([how], self._ended[how])
        yield ended


def _processes(seen: Seen, *, overuse: Overuse) -> Iterator[Process]:
    if seen.inventory is not None and seen.sample is not None:
        for info, sample in zip(seen.inventory.devices, seen.sample.devices, strict=True):
            if info.uuid == overuse.device:
                yield from sample.processes or ()


def _by_device(above: dict[str, list[Overuse]]) -> Counter[tuple[str, str, str]]:
    sums: Counter[tuple[str, str, str]] = Counter()
    for node, found in above.items():
        for each in found:
            sums[node, str(each.index), each.device] += each.used_mib - each.promised_mib
    return sums
