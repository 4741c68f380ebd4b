"""The answers about nodes and devices. Types only."""

from typing import ClassVar, Literal

import msgspec

from dovetail.answers import Page, Row
from dovetail.api.gpujob import Workload
from dovetail.api.gpunode import Cause, Enforcement
from dovetail.gpu.request import WHOLE_MILLI

Runs = Literal["Containers", "Processes", "Nothing"]


class TenantRow(Row, frozen=True, kw_only=True):
    """A pod that holds a device or a share of it.

    `job` is its job's number, null for other pods; `workload` is what it counts as for tenant limits, null for neither.
    `usedMiB` is what its processes use of the device's memory, null where processes cannot be attributed to pods.
    """

    namespace: str
    pod: str
    job: int | None
    share_milli: int
    memory_mib: int
    workload: Workload | None
    used_mib: int | None

    @property
    def holder(self) -> str:
        """`job 5`, or `pod notebook`."""
        return f"pod {self.pod}" if self.job is None else f"job {self.job}"

    def called(self, *, namespace: str) -> str:
        """A name such as `job 5`, with its share if below 1, and its namespace if not `namespace`."""
        details = [] if self.namespace == namespace else [self.namespace]
        details += [] if self.share_milli == WHOLE_MILLI else [f"{self.share_milli / WHOLE_MILLI:g}"]
        return f"{self.holder} ({', '.join(details)})" if details else self.holder


class OtherTenants(Row, frozen=True, kw_only=True):
    """The tenants of a device whose namespaces you may not list, summed up."""

    tenants: int
    share_milli: int
    memory_mib: int


class DeviceRow(Row, frozen=True, kw_only=True):
    """A device. `takesWork` says whether it takes new work; if not, `cause` and `message` say why, in one sentence.

    `available` says whether a job could take it whole now. `usedMiB`, `utilization`, `temperatureCelsius` and
    `powerWatts` are of `measuredAt`; they are null for a device that cannot report, and where its driver reports none.
    Where `stale`, they are too old to count. `migProfile` is the profile of a MIG instance, such as `1g.10gb`; empty
    for a GPU.
    """

    node: str
    index: int
    uuid: str
    vendor: str
    model: str
    mig_profile: str
    compute_capability: str
    memory_mib: int
    used_mib: int | None
    utilization: float | None
    temperature_celsius: int | None
    power_watts: int | None
    measured_at: str | None
    stale: bool
    health: Literal["Healthy", "Unhealthy"]
    health_reason: str
    cordoned: bool
    takes_work: bool
    cause: Cause | Literal[""]
    message: str
    available: bool
    strangers: int
    tenants: list[TenantRow]
    others: OtherTenants | None


class NodeRow(Row, frozen=True, kw_only=True):
    """A node with GPUs. `takesWork` says whether one of its devices takes new work; if not, `message` says why.

    `stale` says why the figures of its devices do not count; empty where they do. `rack` is its domain of the network's
    level of this name; empty without one. `runs` says how it runs a job's program: in a container, as a process of the
    machine itself, or not at all on a simulated node. `cpus` and `hostMemoryMiB` are what pods may get of the host;
    null where the node is gone or may not be read.
    """

    # The columns of a table of nodes in a notebook.
    COLUMNS: ClassVar = ("name", "models", "gpus", "takes_work", "message", "pool", "rack")

    name: str
    takes_work: bool
    message: str
    stale: str
    pool: str
    rack: str
    driver_version: str
    runtime_version: str
    runs: Runs
    cpus: float | None
    host_memory_mib: int | None
    enforces: str
    enforcement: Enforcement
    observed_at: str | None
    devices: list[DeviceRow]

    @property
    def models(self) -> list[str]:
        """The models of its devices, each once."""
        return list(dict.fromkeys(each.model for each in self.devices))

    @property
    def gpus(self) -> int:
        """The number of its devices."""
        return len(self.devices)


class TenantCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of tenants by the workload that they count as for tenant limits."""

    training: int = 0
    inference: int = 0
    unspecified: int = 0

    def __str__(self) -> str:
        """The kinds that there are, such as `1 training, 2 inference`; empty without any."""
        counts = msgspec.structs.asdict(self)
        return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


class Totals(Row, frozen=True, kw_only=True):
    """Sums over devices.

    total_gpus                the number of GPUs; one that is split into MIG instances is none of them
    available_gpus            how many of them a job could take as a whole
    held_gpus                 how many of them pods hold, also as shares
    total_mig_instances       the number of MIG instances
    available_mig_instances   how many of them a job could take
    held_mig_instances        how many of them pods hold
    utilization               the mean utilization of the GPUs that report it, from 0 to 1; None without any
    memory_used_mib           the memory of GPUs and instances in use, in MiB, where they report it
    memory_total_mib          their memory, in MiB
    tenants                   their holders by kind
    """

    total_gpus: int
    available_gpus: int
    held_gpus: int
    total_mig_instances: int
    available_mig_instances: int
    held_mig_instances: int
    utilization: float | None
    memory_used_mib: int
    memory_total_mib: int
    tenants: TenantCounts


class InventoryRow(Totals, frozen=True, kw_only=True):
    """All devices of a cluster: their sums, whether the scheduler runs, in words, and the nodes by name."""

    scheduler: str
    nodes: list[NodeRow]


class Overview(Totals, frozen=True, kw_only=True):
    """The cluster at one time: sums over its devices, the jobs that you may list, and the nodes by name.

    time          when it was read (RFC 3339)
    jobs_running  the number of jobs that run
    jobs_waiting  the number of jobs that wait in the queue, or start
    """

    time: str
    jobs_running: int
    jobs_waiting: int
    nodes: list[NodeRow]


class NodeList(Page[NodeRow], frozen=True, kw_only=True):
    """A page of nodes."""


class DeviceList(Row, frozen=True, kw_only=True):
    """The devices of a page of nodes."""

    items: list[DeviceRow]
    next: str | None
