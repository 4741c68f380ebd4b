"""Audits the caches from time to time, so that a broken promise raises an alert without anyone asking.

`dovetail audit` reads the API server instead, by the same rules.
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from dovetail import names
from dovetail.answers.questions import Audit, Finding, FindingKind
from dovetail.api.builtin import Node, Pod, ResourceSlice
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.audit.allocations import OLDER_THAN_SECONDS, Rules, audit
from dovetail.kube.client import Client
from dovetail.kube.errors import Forbidden
from dovetail.kube.resource_slices import list_slices
from dovetail.logs import get_logger
from dovetail.process.guarded_loops import repeat
from dovetail.query.audit import confirmed, is_final

log = get_logger("dovetail.operator.audit")

# A new leader first lets statuses settle.
_FIRST_AFTER_SECONDS: Final = 60.0
_EVERY_SECONDS: Final = 600.0
# Between two looks at what may put itself right.
_PAUSE_SECONDS: Final = 5.0
_LOOKS: Final = int(OLDER_THAN_SECONDS / _PAUSE_SECONDS)


class AuditWatch:
    """Audits the informers' objects repeatedly. The other parts of the operator do not depend on what it finds."""

    def __init__(
        self,
        client: Client,
        *,
        nodes: Callable[[], Iterable[Node]],
        gpunodes: Callable[[], Iterable[GPUNode]],
        pods: Callable[[], Iterable[Pod]],
        jobs: Callable[[], Iterable[GPUJob]],
        rules: Rules,
        registry: CollectorRegistry,
        now: Callable[[], datetime],
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._gpunodes = gpunodes
        self._pods = pods
        self._jobs = jobs
        self._rules = rules
        self._collector = _Findings()
        self._now = now
        self._pause_seconds = pause_seconds
        registry.register(self._collector)

    async def run(self) -> None:
        """Audit repeatedly until cancelled."""
        await repeat(self.audit, every_seconds=_EVERY_SECONDS, first_after_seconds=_FIRST_AFTER_SECONDS, what="audit")

    async def audit(self) -> None:
        """Audit once. What is put right within the rules' `older_than_seconds` does not count."""
        report = await self._look()
        # Counted and not timed, because the wall clock may be set meanwhile.
        for _ in range(_LOOKS):
            if is_final(report):
                break
            await asyncio.sleep(self._pause_seconds)
            report = confirmed(report, again=await self._look())
        for finding in report.items:
            if finding not in self._collector.findings:
                log.error("audit finding", kind=finding.kind, subject=finding.subject, finding=finding.message)
        self._collector.findings = report.items
        self._collector.audited_at = self._now()

    async def _look(self) -> Audit:
        slices = await self._slices()
        # The lists are of one moment; the sums of thousands of pods must not hold up the event loop.
        return await asyncio.to_thread(
            audit,
            nodes=list(self._nodes()),
            gpunodes=list(self._gpunodes()),
            pods=list(self._pods()),
            jobs=list(self._jobs()),
            rules=self._rules,
            slices=slices,
            now=self._now(),
        )

    async def _slices(self) -> Sequence[ResourceSlice]:
        try:
            return await list_slices(self._client, drivers=names.GPU_DRIVERS)
        except Forbidden:
            return ()


class _Findings(Collector):
    """The findings of the latest audit by kind, and when it was made. Nothing before the first one."""

    def __init__(self) -> None:
        self.findings: Sequence[Finding] = ()
        self.audited_at: datetime | None = None

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The metric families."""
        found = GaugeMetricFamily("dovetail_audit_findings", "Findings of the latest audit.", labels=["kind"])
        at = GaugeMetricFamily("dovetail_audit_timestamp_seconds", "When the latest audit was made.")
        if self.audited_at is not None:
            at.add_metric([], self.audited_at.timestamp())
            kinds = Tally(finding.kind for finding in self.findings)
            for kind in get_args(FindingKind):
                found.add_metric([kind], kinds[kind])
        return [found, at]
