"""GPU seconds of ended jobs by namespace and user, for accounting."""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from dovetail.api.historyquery import OTHERS, JobRecord

# The maximum number of series. All others are summed up under one name.
MOST_SERIES: Final = 500


class UsedCollector(Collector):
    """Sums that continue those of an earlier operator."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], float] = {}

    def start(self, used: Mapping[tuple[str, str], float]) -> None:
        """Set the sums that the store returned."""
        self._used = dict(used)

    def add(self, record: JobRecord) -> None:
        """Add the record of an ended job."""
        key = record.namespace, record.user
        self._used[key] = self._used.get(key, 0.0) + record.gpu_seconds

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The largest sums by namespace and user, and the rest as one."""
        family = CounterMetricFamily(
            "dovetail_gpu_seconds", "GPU seconds of jobs that have ended.", labels=["namespace", "user"]
        )
        ordered = sorted(self._used.items(), key=lambda item: -item[1])
        for (namespace, user), seconds in ordered[:MOST_SERIES]:
            family.add_metric([namespace, user], seconds)
        if rest := ordered[MOST_SERIES:]:
            family.add_metric([OTHERS, OTHERS], sum(seconds for _, seconds in rest))
        return [family]
