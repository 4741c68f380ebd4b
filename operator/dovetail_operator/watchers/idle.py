"""Applies the idle policy: jobs that leave their GPUs idle are warned, then held or ended."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import find_condition, key_of
from dovetail.api.reasons import events as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.api.resources import GPUJOBS
from dovetail.formats.durations import moment, timestamp
from dovetail.jobs.batch_job import ends_by_eviction
from dovetail.jobs.idle import IdleRules, IdleTimes
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, KubeError, NotFound
from dovetail.logs import get_logger
from dovetail.process.guarded_loops import Guard, repeat
from dovetail_operator.devices.idleness import CONDITION
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.state.state import State
from dovetail_operator.writes.pods import DisruptionRefusedError, record_disruption

log = get_logger("dovetail.operator.idle")

_LOOK_SECONDS: Final = 5.0
_FIELDS: Final = {"Suspend": {"suspend": True}, "End": {"cancel": True}}
_DONE: Final = {"Suspend": says.IS_HELD(), "End": says.IS_ENDED()}


class IdleWatch:
    """Checks all running jobs. `changed` gets the key of each job whose idleness has changed."""

    def __init__(
        self,
        client: Client,
        *,
        state: State,
        rules: IdleRules,
        changed: Callable[[str], None],
        post: Callable[[Announcement], None],
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._state = state
        self._rules = rules
        self._changed = changed
        self._post = post
        self._now = now
        self._times = IdleTimes(rules)
        self._guard = Guard("idle job")
        # The budget that was last said to keep a job, by UID.
        self._kept: dict[str, str] = {}

    async def run(self) -> None:
        """Check repeatedly until cancelled. Returns at once if the policy is off."""
        if self._rules.after_seconds:
            await repeat(self.check, every_seconds=_LOOK_SECONDS, what="idle jobs")

    async def check(self) -> None:
        """Check all jobs once."""
        running = {key: job for key, job in self._state.store.jobs.items() if job.status.phase == "Running"}
        uids = {job.metadata.uid for job in running.values() if job.status.devices}
        self._times.forget_all_but(uids)
        self._kept = {uid: budget for uid, budget in self._kept.items() if uid in uids}
        self._state.decisions.keep_idle(uids)
        for key, job in running.items():
            if job.status.devices:
                with self._guard.around(key):
                    await self._look_at(key, job=job)

    async def _look_at(self, key: str, *, job: GPUJob) -> None:
        uid, now = job.metadata.uid, self._now()
        utilization = self._state.store.utilization_of(job, now=now)
        condition = find_condition(job.status.conditions, type=CONDITION)
        told_at = (
            moment(condition.last_transition_time) if condition is not None and condition.status == "True" else None
        )
        since = self._times.update(uid, utilization=utilization, now=now, told_at=told_at)
        before = self._state.decisions.idle.get(uid)
        if since is None:
            self._kept.pop(uid, None)
            if self._state.decisions.clear_idle(uid):
                self._changed(key)
            return
        if before is None:
            self._state.decisions.set_idle(uid, since=since)
            self._changed(key)
            if told_at is None:
                self._announce(job, why=_idle(since) + self._threat())
        if self._times.is_due(since, utilization=utilization, now=now):
            await self._act(job, since=since)

    async def _act(self, job: GPUJob, *, since: datetime) -> None:
        meta, action = job.metadata, self._rules.action
        patch: dict[str, Any] = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "spec": _FIELDS[action],
        }
        try:
            await self._disrupt(job)
            await self._client.patch(GPUJOBS, name=meta.name, patch=patch, as_type=GPUJob, namespace=meta.namespace)
        except DisruptionRefusedError as refused:
            if self._kept.get(meta.uid) != refused.budget:
                self._kept[meta.uid] = refused.budget
                self._announce(job, why=_idle(since) + says.BUDGET_KEEPS(budget=refused.budget))
            return
        except (Conflict, NotFound):
            # The job changed meanwhile: the next check sees its current state.
            return
        except KubeError as error:
            log.warning("an idle job goes on for now", job=key_of(meta), error=str(error))
            return
        log.info("idle job", job=key_of(meta), action=action)
        self._announce(job, why=_idle(since) + _DONE[action])

    async def _disrupt(self, job: GPUJob) -> None:
        """Count the end of the job's pods in their PodDisruptionBudgets. Raises `DisruptionRefusedError`."""
        if ends_by_eviction(job):
            return
        store = self._state.store
        await record_disruption(
            self._client,
            pods=store.pods.pods_of(store.child_of(job)),
            budgets=store.budgets_of(job.metadata.namespace),
            at=timestamp(self._now()),
        )

    def _threat(self) -> Sentence:
        if self._rules.action == "Warn":
            return NOTHING
        threat = says.WILL_BE_HELD if self._rules.action == "Suspend" else says.WILL_BE_ENDED
        return threat(seconds=self._rules.grace_seconds)

    def _announce(self, job: GPUJob, *, why: Sentence) -> None:
        self._post(Announcement(about=job.metadata, severity="Warning", why=why))


def _idle(since: datetime) -> Sentence:
    return says.IS_IDLE(since=timestamp(since.astimezone(UTC)))
