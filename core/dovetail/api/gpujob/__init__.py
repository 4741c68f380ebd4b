"""GPUJob: work that needs GPUs. Users write the spec, the operator writes the status. Data only."""

from dovetail.api.gpujob.job import (
    GPUJob,
)
from dovetail.api.gpujob.parts import (
    Dependency,
    MemoryRequest,
    PodTemplate,
    ResourceRequest,
    TemplateMetadata,
)
from dovetail.api.gpujob.spec import (
    GPUJobSpec,
)
from dovetail.api.gpujob.status import (
    AssignedDevice,
    DependencyStatus,
    EarlierRun,
    GPUJobStatus,
    KeptOnNode,
    MemoryUse,
    Placement,
    PlannedNode,
    PlannedWorker,
    Preemption,
    QueuePlace,
    ReservedRoom,
)
from dovetail.api.gpujob.words import (
    FINISHED,
    KIND,
    MAX_SECONDS,
    DependencyCondition,
    DependencyState,
    MemoryStrategy,
    Mode,
    Phase,
    Policy,
    Reason,
    Workload,
)

__all__ = [
    "FINISHED",
    "KIND",
    "MAX_SECONDS",
    "AssignedDevice",
    "Dependency",
    "DependencyCondition",
    "DependencyState",
    "DependencyStatus",
    "EarlierRun",
    "GPUJob",
    "GPUJobSpec",
    "GPUJobStatus",
    "KeptOnNode",
    "MemoryRequest",
    "MemoryStrategy",
    "MemoryUse",
    "Mode",
    "Phase",
    "Placement",
    "PlannedNode",
    "PlannedWorker",
    "PodTemplate",
    "Policy",
    "Preemption",
    "QueuePlace",
    "Reason",
    "ReservedRoom",
    "ResourceRequest",
    "TemplateMetadata",
    "Workload",
]
