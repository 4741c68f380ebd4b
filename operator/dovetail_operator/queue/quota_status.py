"""Writes the use of each GPUQuota into its status.

A changed count is written within 2 s, use that only time adds every 60 s. Past use has to survive a restart of the
operator. Between two writes it follows from the jobs themselves.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import msgspec

from dovetail.api.gpuquota import GPUQuota, GPUQuotaStatus
from dovetail.api.resources import GPUQUOTAS
from dovetail.formats.durations import moment
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, Invalid, KubeError, NotFound
from dovetail.logs import get_logger
from dovetail.process.guarded_loops import repeat
from dovetail_operator.state.state import State
from dovetail_operator.state.usage import Counts, children_of_jobs, counted_jobs
from dovetail_operator.writes.jobs import difference

log = get_logger("dovetail.operator.quotas")

_LOOK_SECONDS: Final = 2.0
_NOTE_SECONDS: Final = 60.0


class QuotaStatusWriter:
    """Keeps the status of all GPUQuotas current."""

    def __init__(self, client: Client, *, state: State, now: Callable[[], datetime]) -> None:
        self._client = client
        self._state = state
        self._now = now
        self._usage = Counts()

    async def run(self) -> None:
        """Check every 2 s until cancelled."""
        await repeat(self._note, every_seconds=_LOOK_SECONDS, what="the status of quotas")

    async def _note(self) -> None:
        try:
            await self.write()
        except KubeError as error:
            log.warning("a quota's status is written later", error=str(error))

    async def write(self) -> None:
        """Write the statuses that have changed."""
        quotas = self._state.store.quotas
        if not quotas.all:
            return
        # Timestamps have whole seconds, so the use is computed up to a whole second.
        now = self._now().replace(microsecond=0)
        children = children_of_jobs(self._state)
        grace_seconds = self._state.preemption.reclaim_grace_seconds
        quotas.observe(self._state.store.view.ledger, now=now, grace_seconds=grace_seconds)
        counted = counted_jobs(self._state, waiting=self._state.decisions.verdicts, cache=self._usage)
        capacity = self._state.store.quotas.capacity(self._state.store.view.ledger)
        statuses = quotas.compute_statuses(counted, now=now, children=children, capacity=capacity)
        for quota in quotas.all:
            status = statuses[quota.metadata.name]
            if is_news(quota.status, after=status, now=now):
                await self._write(quota, status=status)

    async def _write(self, quota: GPUQuota, *, status: GPUQuotaStatus) -> None:
        patch: dict[str, Any] = {
            "metadata": {"resourceVersion": quota.metadata.resource_version, "uid": quota.metadata.uid},
            "status": difference(quota.status, after=status),
        }
        try:
            await self._client.patch(
                GPUQUOTAS, name=quota.metadata.name, patch=patch, as_type=GPUQuota, subresource="status"
            )
        except (Conflict, NotFound):
            # The watch brings the newest version, and the next check compares with it.
            return
        except Invalid as error:
            # A quota that was there before the CRD had its newest rules costs only its own status.
            log.warning("a quota's status is refused", quota=quota.metadata.name, error=str(error))


def is_news(before: GPUQuotaStatus, *, after: GPUQuotaStatus, now: datetime) -> bool:
    """Whether to write a status: a count has changed, or the use was written 60 s ago."""
    if _counts(before) != _counts(after):
        return True
    if before.uses == after.uses:
        return False
    return before.as_of is None or (now - moment(before.as_of)).total_seconds() >= _NOTE_SECONDS


def _counts(status: GPUQuotaStatus) -> GPUQuotaStatus:
    """The status without the fields that time alone changes."""
    uses = [msgspec.structs.replace(use, gpu_seconds=0.0) for use in status.uses]
    uses.sort(key=lambda use: use.who)
    return msgspec.structs.replace(status, as_of=None, uses=uses)
