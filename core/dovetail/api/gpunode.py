"""GPUNode: one cluster-scoped object a node, named as it. Its agent writes the status; people write the spec."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from dovetail.api.meta import Condition, Described, ObjectMeta, Timestamp
from dovetail.names import API_VERSION

KIND: Final = "GPUNode"
Health = Literal["Healthy", "Unhealthy"]
Taint = Literal["", "Strangers"]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Mib = Annotated[int, Meta(ge=0)]
NumaNode = Annotated[int, Meta(ge=0)]


class TenantLimits(Described, frozen=True, kw_only=True):
    """How many tenants of a workload may share one device; what is not said is the configured number."""

    training: Annotated[Annotated[int, Meta(ge=0, le=48)] | None, Meta(description="How many that say Training.")] = (
        None
    )
    inference: Annotated[Annotated[int, Meta(ge=0, le=48)] | None, Meta(description="How many that say Inference.")] = (
        None
    )


class GPUNodeSpec(Described, frozen=True, kw_only=True):
    """What people decide about a node's devices."""

    cordoned: Annotated[
        list[str],
        Meta(description="UUIDs of devices that take no new work; work that is there stays.", max_length=128),
    ] = []
    tenant_limits: Annotated[
        dict[str, TenantLimits],
        Meta(description="Tenant limits of single devices, by UUID, in the place of the configured ones."),
    ] = {}
    mended: Annotated[
        dict[str, Timestamp],
        Meta(description="When a person mended a device, by UUID: its faults of before count no more (RFC 3339)."),
    ] = {}


class Enforcement(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What this node can enforce: found out, never assumed."""

    mps: Annotated[bool, Meta(description="MPS limits of compute and memory are live and were probed.")] = False
    turns: Annotated[bool, Meta(description="Tenants of a device can be frozen and thawed in turns.")] = False
    time_slicing: Annotated[bool, Meta(description="The driver's own time slicing shares a device.")] = False
    mig: Annotated[bool, Meta(description="Devices are split by MIG.")] = False
    checkpoint: Annotated[bool, Meta(description="A tenant's device memory can be moved to the host.")] = False
    reasons: Annotated[
        dict[str, str],
        Meta(description="Why not, one sentence for each that is false; or what limits one that is true."),
    ] = {}


class Links(Described, frozen=True, kw_only=True):
    """Which other devices of its node one reaches better than over the socket, by index."""

    nvlink: Annotated[list[int], Meta(description="Directly by NVLink.", max_length=128)] = []
    switch: Annotated[list[int], Meta(description="Within one PCIe switch.", max_length=128)] = []


class TenantUse(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What one pod uses of a device, as measured."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    used_mib: Annotated[Mib, Meta(description="Memory that its processes use, in MiB.")]


class Fault(Described, frozen=True, kw_only=True, omit_defaults=False):
    """An error after which a device takes no work until its node boots, its driver is loaded anew or it is mended."""

    reason: Annotated[str, Meta(description="As it stands in healthReason, such as Xid79FellOffTheBus.")]
    at: Annotated[Timestamp, Meta(description="When it last came (RFC 3339).")]


class Stranger(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A process on a device that was not given to it: one of no pod, or one of a pod that was given other devices."""

    pid: Annotated[int, Meta(description="Its number on the node.", ge=0)]
    command: Annotated[str, Meta(description="What it calls itself; empty: not known.", max_length=64)] = ""
    uid: Annotated[str, Meta(description="UID of its pod; empty for a process of no pod.", max_length=64)] = ""
    pod: Annotated[str, Meta(description="namespace/name of that pod, where it is one of the node's.")] = ""


class Device(Described, frozen=True, kw_only=True, omit_defaults=False):
    """One device of a node as its agent sees it. None is a value that the driver does not give."""

    index: Annotated[int, Meta(description="Index on the node, from 0, as the driver counts.", ge=0)]
    uuid: Annotated[str, Meta(description="The driver's UUID, such as GPU-5c89….", max_length=128)]
    vendor: Annotated[str, Meta(description="nvidia, amd, intel or ascend.")]
    model: Annotated[str, Meta(description="The model as the driver names it.")]
    memory_mib: Annotated[Mib, Meta(description="Total memory in MiB.")]
    reserved_mib: Annotated[Mib, Meta(description="Memory that the driver keeps for itself, in MiB.")] = 0
    used_mib: Annotated[Mib, Meta(description="Memory in use as measured, in MiB.")] = 0
    foreign_mib: Annotated[Mib, Meta(description="Memory in use beyond what was promised to tenants, in MiB.")] = 0
    tenants: Annotated[
        list[TenantUse],
        Meta(description="What each pod uses, where processes can be told apart; by UID.", max_length=128),
    ] = []
    utilization: Annotated[Ratio, Meta(description="Utilization as measured, a ratio from 0 to 1.")] = 0.0
    temperature_celsius: Annotated[int | None, Meta(description="Temperature in degrees Celsius.")] = None
    power_watts: Annotated[int | None, Meta(description="Power draw in watts.")] = None
    compute_capability: Annotated[
        str, Meta(description="CUDA's compute capability, such as 9.0; empty: not known.")
    ] = ""
    mig_profile: Annotated[str, Meta(description="Profile of a MIG device, such as 1g.10gb; empty: a whole card.")] = ""
    pci_bus_id: Annotated[str, Meta(description="Where it hangs on the PCI bus, such as 0000:3b:00.0.")] = ""
    numa_node: Annotated[NumaNode | None, Meta(description="NUMA node that the device hangs on: its socket.")] = None
    links: Annotated[Links, Meta(description="Devices that this one reaches without its socket.")] = Links()
    health: Annotated[Health, Meta(description="Whether the device may take work.")] = "Healthy"
    health_reason: Annotated[str, Meta(description="Why it is unhealthy; empty when healthy.")] = ""
    strangers: Annotated[
        list[Stranger],
        Meta(description="Processes that use it and were not given it, the first 16 by number.", max_length=16),
    ] = []
    taint: Annotated[
        Taint, Meta(description="Why it takes no new work though it is healthy and not cordoned; empty when it does.")
    ] = ""
    faults: Annotated[
        list[Fault], Meta(description="Errors that still count, though the agent began anew.", max_length=32)
    ] = []


class Assignment(Described, frozen=True, kw_only=True, omit_defaults=False):
    """The devices that kubelet gave to a pod, for a vendor's resource or by a resource claim."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    namespace: Annotated[str, Meta(description="Its namespace.", max_length=63)]
    name: Annotated[str, Meta(description="Its name.", max_length=253)]
    devices: Annotated[
        list[str],
        Meta(
            description="UUIDs of the devices; with ::N behind it a replica of a card that several share.",
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
    used_mib: Annotated[Mib, Meta(description="What it was measured to use when this was written, in MiB.")]
    since: Annotated[Timestamp, Meta(description="Since when it is above its promise (RFC 3339).")]
    ends: Annotated[
        bool, Meta(description="By memory_overuse it has to end: the grace is over, or neighbours lack their memory.")
    ] = False
    evict: Annotated[bool, Meta(description="The operator is to end it.")] = False


class GPUNodeStatus(Described, frozen=True, kw_only=True, omit_defaults=False):
    """What the agent reports, on a change and as a heartbeat."""

    observed_at: Annotated[Timestamp | None, Meta(description="When the agent last looked (RFC 3339).")] = None
    measured_at: Annotated[
        Timestamp | None,
        Meta(description="When the devices were last read (RFC 3339): long before observedAt where a driver hangs."),
    ] = None
    boot_id: Annotated[
        str, Meta(description="Which boot of the node this is of: faults of an earlier one are over.", max_length=128)
    ] = ""
    provider: Annotated[str, Meta(description="Where the figures come from: nvml, simulated, ….")] = ""
    driver_version: Annotated[str, Meta(description="The vendor driver's version.")] = ""
    runtime_version: Annotated[str, Meta(description="The version of CUDA or the vendor's counterpart.")] = ""
    enforcement: Annotated[Enforcement, Meta(description="What this node can enforce.")] = Enforcement()
    cpu_utilization: Annotated[Ratio, Meta(description="The node's CPU load, a ratio from 0 to 1.")] = 0.0
    memory_utilization: Annotated[Ratio, Meta(description="The node's memory in use, a ratio from 0 to 1.")] = 0.0
    devices: Annotated[list[Device], Meta(description="The node's devices by index.", max_length=128)] = []
    assignments: Annotated[
        list[Assignment],
        Meta(description="What kubelet gives out: which pod got which devices.", max_length=128),
    ] = []
    overuses: Annotated[
        list[Overuse], Meta(description="Pods that use more memory than they were promised.", max_length=512)
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
            description="Ready: the agent reads the devices. ProcessesSeen: it tells whose each process on them is. "
            "PodResources: kubelet, where it is asked, says which pod has which."
        ),
    ] = []


class GPUNode(Described, frozen=True, kw_only=True):
    """The devices of one node: what they are, what they do, and whether they may take work."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = KIND
    spec: GPUNodeSpec = GPUNodeSpec()
    status: GPUNodeStatus = GPUNodeStatus()
