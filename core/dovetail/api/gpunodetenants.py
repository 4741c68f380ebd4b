"""GPUNodeTenants: one cluster-scoped object for each node, with its name, its pods and their promises.

The operator writes it for the programs of that node, which may not read pods. It holds names, UIDs and promises, and
nothing of a pod's environment, volumes or images.
"""

from typing import Annotated, Final

from msgspec import Meta

from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Mode, Workload
from dovetail.api.meta import Described, ObjectMeta
from dovetail.names import API_VERSION

KIND: Final = "GPUNodeTenants"
# kubelet runs 110 pods by default, and several hundred where a site says so.
MOST_TENANTS: Final = 1024
_Mib = Annotated[int, Meta(ge=0, le=1 << 53)]


class NodeTenant(Described, frozen=True, kw_only=True):
    """A pod that is bound to the node and has not ended."""

    uid: Annotated[str, Meta(description="UID of the pod.", max_length=64)]
    namespace: Annotated[str, Meta(description="Its namespace.", max_length=63)]
    name: Annotated[str, Meta(description="Its name.", max_length=253)]
    job: Annotated[str, Meta(description="The GPUJob whose worker it is.", max_length=253)] = ""
    running: Annotated[bool, Meta(description="Its containers run.")] = False
    leaving: Annotated[bool, Meta(description="It was deleted and is ending.")] = False
    mode: Annotated[Mode, Meta(description="How it uses its devices.")] = "Exclusive"
    devices: Annotated[list[AllocatedDevice], Meta(description="Its devices, by its allocation.", max_length=1024)] = []
    device_containers: Annotated[
        list[Annotated[str, Meta(max_length=63)]],
        Meta(description="The container that has each of `devices`, in their order.", max_length=1024),
    ] = []
    guard_fraction: Annotated[
        float, Meta(description="The part of its devices' memory that may be promised to all tenants.", ge=0, le=1)
    ] = 1.0
    movable: Annotated[bool, Meta(description="Its device memory may move to the host.")] = False
    workload: Annotated[Workload | None, Meta(description="Its workload for tenant limits.")] = None
    priority: Annotated[int, Meta(description="Its weight in turns.", ge=0, le=255)] = 10
    reservation: Annotated[bool, Meta(description="It keeps its devices for work outside the cluster.")] = False
    cpu_milli: Annotated[int, Meta(description="CPU that it requests, in thousandths of a core.", ge=0, le=1 << 53)] = 0
    memory_mib: Annotated[_Mib, Meta(description="Memory that it requests, in MiB.")] = 0
    vendor_devices: Annotated[
        int, Meta(description="Devices that it requests from a vendor's plugin.", ge=0, le=1 << 31)
    ] = 0


class GPUNodeTenantsSpec(Described, frozen=True, kw_only=True):
    """All pods of the node as the operator knows them."""

    tenants: Annotated[
        list[NodeTenant], Meta(description="The pods of the node, by UID.", max_length=MOST_TENANTS)
    ] = []
    answers: Annotated[
        int,
        Meta(
            description="The GPUNode's status.tenantsAsked that this list answers: it names every pod that was bound "
            "to the node at that time.",
            ge=0,
        ),
    ] = 0


class GPUNodeTenants(Described, frozen=True, kw_only=True):
    """The pods of one node and what each was promised."""

    metadata: ObjectMeta
    api_version: str = API_VERSION
    kind: str = KIND
    spec: GPUNodeTenantsSpec = GPUNodeTenantsSpec()


COLUMNS: Final = [
    ("Answers", "integer", ".spec.answers", "The question of the node's agent that this list answers."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the object was made."),
]
