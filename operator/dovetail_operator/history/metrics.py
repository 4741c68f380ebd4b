"""What was used, by whom, for whoever pays: GPU seconds of jobs that have ended, by namespace and user."""

from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from dovetail.api.historyquery import OTHERS, JobRecord

# So many series at most; what is beyond is summed up under this name.
MOST_SERIES: Final = 500


class UsedCollector(Collector):
    """Sums that go on where an earlier operator left off."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, str], float] = {}

    def start(self, used: Mapping[tuple[str, str], float]) -> None:
        """Begin with what the store adds up to."""
        self._used = dict(used)

    def add(self, record: JobRecord) -> None:
        """A job has ended."""
        key = record.namespace, record.user
        self._used[key] = self._used.get(key, 0.0) + record.gpu_seconds

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The largest ones by name, the rest as one."""
        family = CounterMetricFamily(
            "dovetail_gpu_seconds", "GPU seconds of jobs that have ended.", labels=["namespace", "user"]
        )
        ordered = sorted(self._used.items(), key=lambda item: -item[1])
        for (namespace, user), seconds in ordered[:MOST_SERIES]:
            family.add_metric([namespace, user], seconds)
        if rest := ordered[MOST_SERIES:]:
            family.add_metric([OTHERS, OTHERS], sum(seconds for _, seconds in rest))
        return [family]
