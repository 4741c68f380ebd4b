"""GPUQuotas over pods that belong to no plan: limits and pools of their namespace. Pure.

The queue applies quotas to GPUJobs before a pod exists. This module applies them to all other pods, and counts what the
pods of GPUJobs use and what is planned for them. A pod has no user, so quotas of users do not bind it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dovetail import names
from dovetail.api.builtin import Node, Pod
from dovetail.api.gpuquota import GPUQuota, GPUQuotaSpec
from dovetail.api.meta import EventType
from dovetail.api.reasons.catalog import about_pod
from dovetail.api.reasons.refusals import OUTSIDE_POOL
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.refusals import Refusal
from dovetail.queue.limits.device_memory import memory_of, memory_of_claim, model_of_claim
from dovetail.queue.limits.limits import Limit, Takes, limits_of, milli_of, model_of
from dovetail.queue.limits.pools import pools_of
from dovetail.queue.limits.priorities import bound_of
from dovetail.queue.limits.quotas import weight_refusal
from dovetail.queue.limits.subjects import Subject, binding
from dovetail.queue.model.gate import Refused
from dovetail.queue.quota_tree.resources import GPUS, MEMORY, counts_model
from dovetail.queue.quota_tree.tree import counts_memory


@dataclass(slots=True)
class PodQuotas:
    """The quotas, and the claims of each namespace.

    The caller must pass on every change of quotas, pods and planned jobs.
    """

    ledger: Ledger
    nodes: Mapping[str, Node]
    _quotas: dict[str, GPUQuota] = field(default_factory=dict)
    # Keys of claims in the ledger, by namespace: UIDs of pods, and for each job's UID the number of planned workers,
    # whose holds have the key `UID/worker`.
    _pods: dict[str, set[str]] = field(default_factory=dict)
    _jobs: dict[str, dict[str, int]] = field(default_factory=dict)

    # --- changes -----------------------------------------------------------------------------------------------

    def quota_event(self, event: EventType, quota: GPUQuota) -> None:
        """Take in a change of a GPUQuota."""
        name = quota.metadata.name
        if event == "DELETED":
            self._quotas.pop(name, None)
        elif quota.spec.users or quota.spec.projects or not _says_anything(quota.spec):
            # This quota does not bind pods.
            self._quotas.pop(name, None)
        else:
            self._quotas[name] = quota

    def pod_event(self, event: EventType, pod: Pod) -> None:
        """Take in a change of a pod."""
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        keys = self._pods.setdefault(namespace, set())
        (keys.discard if event == "DELETED" else keys.add)(uid)
        if not keys:
            del self._pods[namespace]

    def job_planned(self, *, namespace: str, uid: str, workers: int) -> None:
        """Set how many workers of a GPUJob have room under a plan; 0 removes the job."""
        jobs = self._jobs.setdefault(namespace, {})
        if workers:
            jobs[uid] = workers
        else:
            jobs.pop(uid, None)
        if not jobs:
            del self._jobs[namespace]

    @property
    def binding(self) -> list[str]:
        """The names of the quotas that bind pods."""
        return list(self._quotas)

    # --- questions ---------------------------------------------------------------------------------------------

    def refusal(self, pod: Pod, *, ask: Ask) -> Refusal | None:
        """Why quotas keep the pod from every node now; None if they admit it."""
        if not self._quotas:
            return None
        subject, quotas = Subject(namespace=pod.metadata.namespace), list(self._quotas.values())
        pools = pools_of(quotas, subject=subject)
        if isinstance(pools, Refused):
            return _refusal(pools)
        if (
            beyond := weight_refusal(pod.metadata.annotations, ask=ask, bound=bound_of(quotas, subject=subject))
        ) is not None:
            return _refusal(beyond)
        for limit in limits_of(quotas, subject=subject, takes=self._takes(ask), jobs=0).start:
            used = self._used(limit, subject=subject, but=pod.metadata.uid)
            refused = limit.refusal(used)
            if refused is not None:
                return _refusal(refused)
        return None

    def allowed(self, pod: Pod, *, nodes: Sequence[str]) -> tuple[Sequence[str], dict[str, Refusal]]:
        """The nodes in the pools that quotas allow the pod, and a refusal for each other node."""
        if not self._quotas:
            return nodes, {}
        pools = pools_of(self._quotas.values(), subject=Subject(namespace=pod.metadata.namespace))
        if isinstance(pools, Refused) or not pools:
            return nodes, {}
        text = OUTSIDE_POOL(pools=" or ".join(pools), namespace=pod.metadata.namespace).message
        outside = Refusal(kind="Quota", message=text, text=text)
        inside = [name for name in nodes if self._pool_of(name) in pools]
        return inside, dict.fromkeys(set(nodes).difference(inside), outside)

    def _pool_of(self, node: str) -> str | None:
        known = self.nodes.get(node)
        return None if known is None else known.metadata.labels.get(names.LABEL_POOL)

    def _takes(self, ask: Ask) -> Takes:
        memory = 0
        if counts_memory(self._quotas.values()):
            memory = memory_of(ask, workers=1, ledger=self.ledger, cards=self.ledger.models())
        return Takes(milli=milli_of(ask, workers=1), memory_mib=memory, model=model_of(ask))

    def _used(self, limit: Limit, *, subject: Subject, but: str) -> int:
        """What is in use of a quota's limit, in its unit, without the pod's own."""
        quota = self._quotas[limit.quota]
        if quota.spec.per == "Namespace":
            return self._in_use(subject.namespace, limit=limit, but=but)
        namespaces, quotas = self._pods.keys() | self._jobs.keys(), self._quotas.values()
        return sum(
            self._in_use(each, limit=limit, but=but)
            for each in namespaces
            if quota in binding(quotas, subject=Subject(namespace=each))
        )

    def _in_use(self, namespace: str, *, limit: Limit, but: str) -> int:
        pods = self._pods.get(namespace, set()) - {but}
        planned = [
            f"{uid}/{worker}" for uid, workers in self._jobs.get(namespace, {}).items() for worker in range(workers)
        ]
        claims = (self.ledger.claim(key) for key in (*pods, *planned))
        return sum(self._counts(claim, limit=limit) for claim in claims if claim is not None)

    def _counts(self, claim: Claim, *, limit: Limit) -> int:
        if limit.resource == MEMORY:
            return memory_of_claim(claim, ledger=self.ledger)
        if limit.resource == GPUS or counts_model(limit.resource, requested=model_of_claim(claim, ledger=self.ledger)):
            return claim.milli
        return 0


def _says_anything(spec: GPUQuotaSpec) -> bool:
    most = spec.limits
    # A quota with a parent brings the limits of those above it, and makes its parent apply to no one else.
    said = (most.gpus, most.memory, spec.max_priority, spec.parent)
    return bool(spec.pools or most.models) or any(each is not None for each in said)


def _refusal(refused: Refused) -> Refusal:
    text = about_pod(refused).message
    return Refusal(kind="Quota", message=text, text=text)
