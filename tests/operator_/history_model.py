"""What records add up to, by plain Python: the model that the database's own sums are compared with."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, median

from dovetail.api.historyquery import Grouping, HistorySums, JobRecord


def summed(records: Iterable[JobRecord], *, by: Grouping) -> list[HistorySums]:
    """What records add up to, by group; the group with the most GPU time first."""
    groups: dict[str, list[JobRecord]] = defaultdict(list)
    for record in records:
        groups[_group(record, by=by)].append(record)
    found = [_sums(group, members) for group, members in groups.items()]
    return sorted(found, key=lambda sums: (-sums.gpu_seconds, sums.group))


def _group(record: JobRecord, *, by: Grouping) -> str:
    match by:
        case "User":
            return record.user
        case "Name":
            return record.name
        case "Project":
            return record.project
        case "Day":
            return (record.ended or "")[:10]
        case _:
            return ""


def _sums(group: str, records: Sequence[JobRecord]) -> HistorySums:
    waits = sorted(record.wait_seconds for record in records if record.wait_seconds is not None)
    measured = [
        (record.mean_utilization, record.gpu_seconds)
        for record in records
        if record.mean_utilization is not None and record.gpu_seconds > 0
    ]
    weight = sum(seconds for _, seconds in measured)
    return HistorySums(
        group=group,
        jobs=len(records),
        by_phase=dict(sorted(Counter(record.phase for record in records).items())),
        gpu_seconds=sum(record.gpu_seconds for record in records),
        run_seconds=sum(record.run_seconds for record in records),
        mean_wait_seconds=fmean(waits) if waits else None,
        median_wait_seconds=median(waits) if waits else None,
        # The smallest value that at least 95 % do not exceed.
        p95_wait_seconds=waits[-(-95 * len(waits) // 100) - 1] if waits else None,
        peak_mib=max((record.peak_mib for record in records), default=0),
        mean_utilization=sum(mean * seconds for mean, seconds in measured) / weight if weight else None,
    )
