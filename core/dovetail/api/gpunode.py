"""GPUNode: one cluster-scoped object for each node, with its name.

The agent writes status; people and the operator write spec.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.meta import Condition, Described, ObjectMeta, Timestamp
from dovetail.gpu.geometry import Slot
from dovetail.names import API_VERSION

KIND: Final = "GPUNode"
# The reasons of a device that no longer answers, and of one whose driver does not.
LOST: Final = "GpuIsLost"
SILENT: Final = "DriverSilent"
Health = Literal["Healthy", "Unhealthy"]
Taint = Literal["", "Strangers"]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Mib = Annotated[int, Meta(ge=0)]
NumaNode = Annotated[int, Meta(ge=0)]
# Why a device takes no new work, in the order in which causes are reported: what must be repaired first comes first.
Cause = Literal[
    "NodeGone", "NodeNotReady", "ServedTwice", "NotManaged", "NodeCordoned", "NodeDrained", "DriverUnreadable",
    "Unhealthy", "Reshaping", "Cordoned", "Strangers",
]  # fmt: skip


class TenantLimits(Described, frozen=True, kw_only=True):
    """How many tenants of a workload may share one device. Unset: the configured number."""

    training: Annotated[
        Annotated[int, Meta(ge=0, le=48)] | None, Meta(description="Tenants with workload Training.")
    ] = None
    inference: Annotated[
        Annotated[int, Meta(ge=0, le=48)] | None, Meta(description="Tenants with workload Inference.")
    ] = None


class Reshape(Described, frozen=True, kw_only=True):
    """A new partition of a GPU in MIG mode. From its first write on, none of the GPU's instances takes new work."""

    profiles: Annotated[
        list[Annotated[str, Meta(max_length=32)]],
        Meta(description="Profiles of the instances that the GPU is to have.", min_length=1, max_length=16),
    ]
    requested_time: Annotated[Timestamp, Meta(description="When this was requested (RFC 3339); it names the request.")]
    job: Annotated[str, Meta(description="UID of the GPUJob that waits for it.", max_length=64)] = ""
    drained: Annotated[
        bool,
        Meta(description="No pod has an instance of the GPU and none gets one any more: the agent may partition it."),
    ] = False


class GPUNodeSpec(Described, frozen=True, kw_only=True):
    """What people decide about a node's devices, and what the operator requests of its agent."""

    cordoned: Annotated[
        list[str],
        Meta(description="UUIDs of devices that take no new work; running work stays.", max_length=128),
    ] = []
    tenant_limits: Annotated[
        dict[str, TenantLimits],
        Meta(description="Tenant limits of single devices, by UUID, instead of the configured ones."),
    ] = {}
    mended: Annotated[
        dict[str, Timestamp],
        Meta(description="When a person repaired a device, by UUID: its earlier faults no longer count (RFC 3339)."),
    ] = {}
    reshape: Annotated[
        dict[str, Reshape],
        Meta(
            description="GPUs that are being partitioned again, by UUID; the operator writes and removes the entries."
        ),
    ] = {}


class Enforcement(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What this node can enforce: tested, never assumed."""

    mps: Annotated[bool, Meta(description="MPS limits of compute and memory are active and were probed.")] = False
    turns: Annotated[bool, Meta(description="Tenants of a device can be frozen and thawed in turns.")] = False
    time_slicing: Annotated[bool, Meta(description="The driver's own time slicing shares a device.")] = False
    mig: Annotated[bool, Meta(description="Devices are partitioned by MIG.")] = False
    checkpoint: Annotated[bool, Meta(description="A tenant's device memory can be moved to the host.")] = False
    reasons: Annotated[
        dict[str, str],
        Meta(description="Why not, one sentence for each that is false; or what limits one that is true."),
    ] = {}


class Links(Described, frozen=True, kw_only=True):
    """The devices of its node that a device reaches without the socket, by index."""

    nvlink: Annotated[list[int], Meta(description="Directly by NVLink.", max_length=128)] = []
    switch: Annotated[list[int], Meta(description="Within one PCIe switch.", max_length=128)] = []


class TenantUse(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The measured use of a device by one pod."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    used_mib: Annotated[Mib, Meta(description="Memory that its processes use, in MiB.")]


class TenantTotal(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What was measured of a device since a pod holds it."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    peak_mib: Annotated[Mib, Meta(description="The most memory that its processes used at a reading, in MiB.")] = 0
    mean_utilization: Annotated[Ratio, Meta(description="Mean utilization of the device, a ratio from 0 to 1.")] = 0.0
    seconds: Annotated[float, Meta(description="How long that was measured, in seconds.", ge=0)] = 0.0


class Fault(Described, frozen=True, kw_only=True, omit_defaults=False):
    """An error after which a device takes no work until its node boots, its driver is reloaded or it is repaired."""

    reason: Annotated[str, Meta(description="The reason as in healthReason, such as Xid79FellOffTheBus.")]
    at: Annotated[Timestamp, Meta(description="When it last occurred (RFC 3339).")]


class Stranger(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A process on a device without an allocation: a process of no pod, or of a pod with other devices."""

    pid: Annotated[int, Meta(description="Its process id on the node.", ge=0)]
    command: Annotated[str, Meta(description="Its command; empty: not known.", max_length=64)] = ""
    uid: Annotated[str, Meta(description="UID of its pod; empty for a process of no pod.", max_length=64)] = ""
    pod: Annotated[str, Meta(description="namespace/name of that pod, if it is one of the node's.")] = ""


class Device(Described, frozen=True, kw_only=True, omit_defaults=False):
    """One device of a node as its agent sees it. None is a value that the driver does not report."""

    index: Annotated[int, Meta(description="Index on the node, from 0, as the driver counts.", ge=0)]
    uuid: Annotated[str, Meta(description="The driver's UUID, such as GPU-5c89….", max_length=128)]
    vendor: Annotated[str, Meta(description="nvidia, amd, intel or ascend.")]
    model: Annotated[str, Meta(description="The model as the driver names it.")]
    memory_mib: Annotated[Mib, Meta(description="Total memory in MiB.")]
    reserved_mib: Annotated[Mib, Meta(description="Memory that the driver keeps for itself, in MiB.")] = 0
    used_mib: Annotated[Mib, Meta(description="Measured memory in use, in MiB.")] = 0
    foreign_mib: Annotated[Mib, Meta(description="Memory in use beyond what was promised to tenants, in MiB.")] = 0
    tenants: Annotated[
        list[TenantUse],
        Meta(description="The use of each pod, if processes can be attributed to pods; by UID.", max_length=128),
    ] = []
    totals: Annotated[
        list[TenantTotal],
        Meta(description="What was measured since each pod holds it, at this report; by UID.", max_length=128),
    ] = []
    utilization: Annotated[Ratio, Meta(description="Measured utilization, a ratio from 0 to 1.")] = 0.0
    temperature_celsius: Annotated[int | None, Meta(description="Temperature in degrees Celsius.")] = None
    power_watts: Annotated[int | None, Meta(description="Power draw in watts.")] = None
    compute_capability: Annotated[
        str, Meta(description="CUDA's compute capability, such as 9.0; empty: not known.")
    ] = ""
    mig_profile: Annotated[str, Meta(description="Profile of a MIG device, such as 1g.10gb; empty: not MIG.")] = ""
    parent: Annotated[str, Meta(description="UUID of the GPU that a MIG device is part of.", max_length=128)] = ""
    pci_bus_id: Annotated[str, Meta(description="Its address on the PCI bus, such as 0000:3b:00.0.")] = ""
    numa_node: Annotated[NumaNode | None, Meta(description="NUMA node of the device: its socket.")] = None
    links: Annotated[Links, Meta(description="Devices that this one reaches without its socket.")] = Links()
    health: Annotated[Health, Meta(description="Whether the device may take work.")] = "Healthy"
    health_reason: Annotated[str, Meta(description="Why it is unhealthy; empty when healthy.")] = ""
    strangers: Annotated[
        list[Stranger],
        Meta(description="Processes that use it without an allocation, the first 16 by process id.", max_length=16),
    ] = []
    taint: Annotated[
        Taint, Meta(description="Why it takes no new work although it is healthy and not cordoned; empty if it does.")
    ] = ""
    faults: Annotated[
        list[Fault], Meta(description="Errors that still count after a restart of the agent.", max_length=32)
    ] = []


class Assignment(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The devices that kubelet gave to a pod, for a vendor's resource or by a resource claim."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    namespace: Annotated[str, Meta(description="Its namespace.", max_length=63)]
    name: Annotated[str, Meta(description="Its name.", max_length=253)]
    devices: Annotated[
        list[str],
        Meta(
            description="UUIDs of the devices; the suffix ::N marks a replica of a device that several share.",
            max_length=128,
        ),
    ]


class Overuse(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A pod that uses more of a device's memory than it was promised."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    namespace: Annotated[str, Meta(description="Its namespace.", max_length=63)]
    name: Annotated[str, Meta(description="Its name.", max_length=253)]
    device: Annotated[str, Meta(description="UUID of the device.", max_length=128)]
    index: Annotated[int, Meta(description="Index of the device on the node.", ge=0)]
    promised_mib: Annotated[Mib, Meta(description="What it was promised, in MiB.")]
    used_mib: Annotated[Mib, Meta(description="Its measured use when this was written, in MiB.")]
    since: Annotated[Timestamp, Meta(description="Since when it is above its promise (RFC 3339).")]
    ends: Annotated[
        bool, Meta(description="By memory_overuse it must end: the grace is over, or neighbors lack their memory.")
    ] = False
    evict: Annotated[bool, Meta(description="The operator must end it.")] = False


class ReshapableCard(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A GPU in MIG mode that the agent can partition again, and how the last request for that ended."""

    uuid: Annotated[str, Meta(description="UUID of the GPU.", max_length=128)]
    index: Annotated[int, Meta(description="Index of the GPU on the node.", ge=0)]
    model: Annotated[str, Meta(description="The model as the driver names it.")]
    slots: Annotated[
        list[Slot], Meta(description="The profiles that it can have, as its driver says.", max_length=32)
    ] = []
    answered: Annotated[
        Timestamp | None, Meta(description="The requestedTime of the last request that the agent has finished.")
    ] = None
    finished_time: Annotated[Timestamp | None, Meta(description="When that was (RFC 3339).")] = None
    problem: Annotated[str, Meta(description="Why that request failed; empty if it did not.", max_length=1024)] = ""


class GPUNodeStatus(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What the agent reports, on a change and as a heartbeat."""

    observed_at: Annotated[Timestamp | None, Meta(description="When the agent last reported (RFC 3339).")] = None
    measured_at: Annotated[
        Timestamp | None,
        Meta(description="When the devices were last read (RFC 3339): long before observedAt if a driver hangs."),
    ] = None
    boot_id: Annotated[
        str, Meta(description="The boot of the node: faults of an earlier boot are over.", max_length=128)
    ] = ""
    provider: Annotated[str, Meta(description="The source of the data: nvml, simulated, ….")] = ""
    driver_version: Annotated[str, Meta(description="The vendor driver's version.")] = ""
    runtime_version: Annotated[str, Meta(description="The version of CUDA or the vendor's equivalent.")] = ""
    enforcement: Annotated[Enforcement, Meta(description="What this node can enforce.")] = Enforcement()
    gpus: Annotated[int, Meta(description="Number of the node's devices; each MIG instance counts.", ge=0)] = 0
    free: Annotated[
        str,
        Meta(
            description="How many of them no pod on the node was promised, such as 5.5: half a GPU is 0.5. Unhealthy "
            "devices do not count. Room that a plan keeps for pods to come does.",
            max_length=16,
        ),
    ] = ""
    cpu_utilization: Annotated[Ratio, Meta(description="The node's CPU load, a ratio from 0 to 1.")] = 0.0
    memory_utilization: Annotated[Ratio, Meta(description="The node's memory in use, a ratio from 0 to 1.")] = 0.0
    devices: Annotated[list[Device], Meta(description="The node's devices by index.", max_length=128)] = []
    reshapable: Annotated[
        list[ReshapableCard],
        Meta(description="GPUs in MIG mode that the agent can partition again, by index.", max_length=128),
    ] = []
    assignments: Annotated[
        list[Assignment],
        Meta(description="The devices that kubelet gave to each pod.", max_length=128),
    ] = []
    overuses: Annotated[
        list[Overuse], Meta(description="Pods that use more memory than promised.", max_length=512)
    ] = []
    tenants_asked: Annotated[
        int,
        Meta(
            description="Number of the agent's last question whether GPUNodeTenants names every pod of the node: it "
            "asks when it sees a process that the list does not explain. The operator's answer repeats the number.",
            ge=0,
        ),
    ] = 0
    conditions: Annotated[
        list[Condition],
        Meta(
            description="Ready: the agent reads the devices. ProcessesSeen: it attributes their processes to pods. "
            "PodResources: kubelet reports which pod has which device."
        ),
    ] = []


class GPUNode(Described, frozen=True, kw_only=True):
    """The devices of one node: what they are, what they do, and whether they may take work."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = KIND
    spec: GPUNodeSpec = GPUNodeSpec()
    status: GPUNodeStatus = GPUNodeStatus()
