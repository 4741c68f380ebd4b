"""What a watch event changes besides the ledger: holds, quotas, tenancies, and which pods wait."""

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import ReservedRoom
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import EventType
from dovetail_extender.decide.filter_score import Decisions
from dovetail_extender.decide.unschedulable import Waiting
from dovetail_extender.holds.planned_workers import PlannedJob


class EventHandlers:
    """Passes the events of pods, GPUJobs and GPUQuotas on."""

    def __init__(self, *, decisions: Decisions, waiting: Waiting) -> None:
        self._nominations = decisions.nominations
        self._plans = decisions.plans
        self._quotas = decisions.quotas
        self._tenancies = decisions.tenancies
        self._waiting = waiting

    def pod_event(self, event: EventType, pod: Pod) -> None:
        """A pod has changed. The ledger has it already."""
        gone = event == "DELETED"
        if gone or pod.spec.node_name:
            self._waiting.forget(pod.metadata.uid)
        (self._nominations.pod_gone if gone else self._nominations.pod_changed)(pod)
        (self._plans.pod_gone if gone else self._plans.pod_changed)(pod)
        self._quotas.pod_event(event, pod)

    def quota_event(self, event: EventType, quota: GPUQuota) -> None:
        """A quota has changed, and with it the room that is kept for it."""
        self._quotas.quota_event(event, quota)
        self._tenancies.quota_event(event, quota)
        kept = [] if event == "DELETED" else quota.status.kept
        room = ReservedRoom(time="", nodes=[], kept=kept) if kept else None
        self._plans.reserved.job_changed(f"quota/{quota.metadata.name}", room=room)

    def job_event(self, event: EventType, job: PlannedJob) -> None:
        """A GPUJob has changed: its plan, and the workers that count against quotas."""
        gone = event == "DELETED"
        (self._plans.job_gone if gone else self._plans.job_changed)(job)
        (self._tenancies.job_gone if gone else self._tenancies.job_changed)(job)
        placement = None if gone else job.status.placement
        workers = 0 if placement is None else sum(node.workers for node in placement.nodes)
        self._quotas.job_planned(namespace=job.metadata.namespace, uid=job.metadata.uid, workers=workers)
