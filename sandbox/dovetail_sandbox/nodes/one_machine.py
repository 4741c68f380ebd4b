"""What the control plane of one's own machine leaves out, and how often Go's programs collect garbage. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

# Go's garbage collector takes a fifth of a busy API server's CPU time. Below this memory, it and its clients collect
# less often.
SELDOM_COLLECTED_GIB: Final = 4
# On one's own machine. A limit that is too low would make them collect without end.
_EARLY_PERCENT: Final = 30
_API_SERVER_LIMIT: Final = "700MiB"
_OTHERS_LIMIT: Final = "250MiB"

# What makes the pods of jobs, removes what belongs to nothing, and gives a new namespace what it needs. Endpoints,
# volumes, quotas of Kubernetes, autoscaling and the other kinds of workloads are no part of a queue on one machine.
CONTROLLERS: Final = (
    "job-controller",
    "garbage-collector-controller",
    "pod-garbage-collector-controller",
    "ttl-after-finished-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "root-ca-certificate-publisher-controller",
    "clusterrole-aggregation-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
)
# What keeps versions of objects beyond those that watches need: every write would take memory for more than a minute.
FEATURE_GATES: Final = "ListFromCacheSnapshot=false,DetectCacheInconsistency=false"
# etcd keeps each version of an object for one to two of these intervals, by default of 5 min: while jobs start at full
# speed, versions take a megabyte a second.
API_SERVER: Final = {"etcd-compaction-interval": "1m"}
# etcd keeps the last 5,000 writes in memory, by default, for members that are behind. It is alone.
ETCD_ENTRIES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """How often Go programs collect garbage: their environments."""

    api_server: Mapping[str, str]
    others: Mapping[str, str]

    @classmethod
    def of_many_nodes(cls, api_server_gibibytes: int) -> "Collection":
        """Collect seldom, up to so many GiB: garbage collection takes a fifth of a busy API server's CPU time."""
        return cls(
            api_server=collected(percent=400, limit=f"{api_server_gibibytes}GiB"),
            others=collected(percent=400, limit=f"{SELDOM_COLLECTED_GIB}GiB"),
        )

    @classmethod
    def of_one_machine(cls) -> "Collection":
        """Collect early: the memory is the jobs'."""
        return cls(
            api_server=collected(percent=_EARLY_PERCENT, limit=_API_SERVER_LIMIT),
            others=collected(percent=_EARLY_PERCENT, limit=_OTHERS_LIMIT),
        )

    @property
    def of_api_server(self) -> list[dict[str, str]]:
        """The variables of kube-apiserver, as kwokctl has them."""
        return _variables(self.api_server)

    @property
    def of_others(self) -> list[dict[str, str]]:
        """The variables of the other programs."""
        return _variables(self.others)


def _variables(environment: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in environment.items()]


def collected(*, percent: int, limit: str) -> dict[str, str]:
    """The environment of a Go program that collects garbage once its heap has grown by so many percent.

    Near the limit, such as 4GiB, it collects more often.
    """
    return {"GOGC": str(percent), "GOMEMLIMIT": limit}
