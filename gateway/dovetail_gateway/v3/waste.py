"""v3: right sizes of jobs, and what is wrong with nodes."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dovetail.answers.owners import project_of, user_of
from dovetail.api.gpujob import GPUJob
from dovetail.formats.timestamps import timestamp
from dovetail.jobs.memory_use import name_of_runs
from dovetail.jobs.right_sizes import right_size
from dovetail.query.doctor.findings import Finding
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.answers import Answers
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.table import Answer, Call, Nothing, Strictly
from dovetail_gateway.v3.paging import page
from dovetail_gateway.v3.types.waste import (
    NodeFinding,
    NodeFindings,
    RightSizeFilter,
    RightSizePage,
    RightSizeRow,
)

# So many findings, and so many nodes of each, are sent: more are for `dovetail doctor`.
_MOST_FINDINGS: Final = 100
_MOST_NODES: Final = 8
# Sort keys are text: what saves more has the smaller key.
_LARGEST: Final = 10_000_000


class Waste:
    """The handlers of right sizes and findings."""

    def __init__(self, cache: ClusterCache, *, answers: Answers) -> None:
        self._cache = cache
        self._answers = answers

    async def list_right_sizes(self, call: Call[Nothing, RightSizeFilter, Any]) -> Answer:
        """A page of right sizes, those that save the most GPUs first."""
        wanted = call.query
        rows = {_key(row): row for row in _rows(self._latest(call.sees, namespace=wanted.namespace))}
        chosen, after = page(sorted(rows), cursor=wanted.cursor, limit=wanted.limit)
        return Answer(value=RightSizePage(items=[rows[key] for key in chosen], next=after, total=len(rows)))

    def _latest(self, sees: Visibility, *, namespace: str | None) -> Iterable[GPUJob]:
        """Of each user's runs of one name the latest one that has measurements."""
        found: dict[tuple[str, str, str], GPUJob] = {}
        for job in self._cache.jobs.values():
            here, status = job.metadata.namespace, job.status
            if not sees.sees(here) or namespace not in {None, here} or not (status.memory or status.measured):
                continue
            key = (*name_of_runs(job), user_of(job) or "")
            if key not in found or found[key].metadata.creation_timestamp < job.metadata.creation_timestamp:
                found[key] = job
        return found.values()

    async def list_findings(self, call: Call[Nothing, Strictly, Any]) -> Answer:
        """What is wrong with nodes."""
        findings, at = await self._answers.node_findings(who=call.who, sees=call.sees)
        rows = grouped(findings)
        return Answer(value=NodeFindings(items=rows[:_MOST_FINDINGS], total=len(rows), as_of=timestamp(at)))


def _rows(jobs: Iterable[GPUJob]) -> Iterable[RightSizeRow]:
    for job in jobs:
        if (found := right_size(job)) is not None:
            yield RightSizeRow(
                namespace=job.metadata.namespace,
                name=name_of_runs(job)[1],
                job=job.metadata.name,
                number=job.status.number,
                user=user_of(job) or "",
                project=project_of(job),
                phase=job.status.phase or "Queued",
                request=found.request,
                suggested=found.suggested,
                saved_gpus=found.saved_gpus,
                promised_mib=found.promised_mib,
                peak_mib=found.peak_mib,
                mean_utilization=found.mean_utilization,
                device_seconds=found.device_seconds,
                runs=found.runs,
                basis=found.basis,
            )


def _key(row: RightSizeRow) -> str:
    saved = max(0, _LARGEST - round(row.saved_gpus * 1000))
    return f"{saved:08d} {row.namespace}/{row.name} {row.user}"


def grouped(findings: Sequence[Finding]) -> list[NodeFinding]:
    """The problems among the findings, one row for all nodes with the same one: errors first, then the most nodes."""
    found: dict[tuple[str, str], list[Finding]] = {}
    for each in findings:
        if each.level in {"warning", "error"}:
            found.setdefault((each.level, each.message), []).append(each)
    rows = [
        NodeFinding(
            level="error" if level == "error" else "warning",
            message=message,
            nodes=[each.subject for each in same if each.subject][:_MOST_NODES],
            count=len(same),
            fix=same[0].fix,
        )
        for (level, message), same in found.items()
    ]
    return sorted(rows, key=lambda row: (row.level != "error", -row.count, row.message))
