"""The fields of built-in objects that Dovetail reads; decoding drops the rest. Data only, no I/O.

Ten thousand pods so read take some 27 MiB, where generic dictionaries take ten times that: add a field only when
something reads it.
"""

from typing import Literal

from msgspec import field
from msgspec.structs import force_setattr

from dovetail import names
from dovetail.api.meta import Described, ObjectMeta
from dovetail.formats.quantities import Quantity


class _Read(Described, frozen=True, kw_only=True, gc=False):
    # Frozen trees of texts hold no cycles: Python's garbage collector need not walk through the whole cache again and
    # again. Sequences are tuples for the same reason: all empty ones are one object, and each pod has nine, where nine
    # empty lists take 500 bytes and as long to collect as all else of the pod.
    pass


class Condition(_Read, frozen=True, kw_only=True):
    """A condition of a built-in object; unlike ours, most of its fields may be missing."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Resources(_Read, frozen=True, kw_only=True):
    """What a container asks for."""

    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}


class FieldRef(_Read, frozen=True, kw_only=True):
    """A field of the pod, such as `metadata.annotations['key']`."""

    field_path: str


class EnvSource(_Read, frozen=True, kw_only=True):
    """Where a variable's value comes from; only fields of the pod are of interest."""

    field_ref: FieldRef | None = None


class EnvVar(_Read, frozen=True, kw_only=True):
    """One variable of a container."""

    name: str
    value: str = ""
    value_from: EnvSource | None = None


class Container(_Read, frozen=True, kw_only=True):
    """A container of a pod."""

    name: str = ""
    resources: Resources = Resources()
    env: tuple[EnvVar, ...] = ()
    restart_policy: str | None = None


class PodClaim(_Read, frozen=True, kw_only=True):
    """A resource claim that a pod uses, by its name within the pod."""

    name: str = ""


class SchedulingGate(_Read, frozen=True, kw_only=True):
    """What keeps a pod from the scheduler until it is removed."""

    name: str = ""


class PodSpec(_Read, frozen=True, kw_only=True):
    """What a pod asks for and where it is."""

    node_name: str = ""
    scheduler_name: str = ""
    priority: int | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class StateWaiting(_Read, frozen=True, kw_only=True):
    """Why a container has not started."""

    reason: str = ""
    message: str = ""


class StateRunning(_Read, frozen=True, kw_only=True):
    """Since when a container runs."""

    started_at: str | None = None


class StateTerminated(_Read, frozen=True, kw_only=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(_Read, frozen=True, kw_only=True):
    """At most one is set."""

    waiting: StateWaiting | None = None
    running: StateRunning | None = None
    terminated: StateTerminated | None = None


class ContainerStatus(_Read, frozen=True, kw_only=True):
    """How a container is."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class ClaimedResource(_Read, frozen=True, kw_only=True):
    """An extended resource of a container that is served by a resource claim."""

    container_name: str = ""
    resource_name: str = ""


class ExtendedResourceClaimStatus(_Read, frozen=True, kw_only=True):
    """Which of a pod's extended resources are served by the claim that the scheduler made for it."""

    request_mappings: tuple[ClaimedResource, ...] = ()


class PodStatus(_Read, frozen=True, kw_only=True):
    """How a pod is."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(_Read, frozen=True, kw_only=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def is_terminal(phase: str) -> bool:
    """Whether a pod in this phase stays in it: Succeeded or Failed."""
    return phase in {"Succeeded", "Failed"}


def is_terminated(pod: Pod) -> bool:
    """Whether the pod's containers have ended for good."""
    return is_terminal(pod.status.phase)


class Taint(_Read, frozen=True, kw_only=True):
    """Keeps pods off a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(_Read, frozen=True, kw_only=True):
    """What people said about a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeInfo(_Read, frozen=True, kw_only=True):
    """What a node's kubelet says of its machine."""

    boot_id: str = field(name="bootID", default="")
    container_runtime_version: str = ""


class NodeStatus(_Read, frozen=True, kw_only=True):
    """What a node has."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()


class Node(_Read, frozen=True, kw_only=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class TemplateLabels(_Read, frozen=True, kw_only=True):
    """The label of a template that is read: the job's number."""

    job_number: str = field(name=names.LABEL_JOB_NUMBER, default="")


class TemplateAnnotations(_Read, frozen=True, kw_only=True):
    """The annotation of a template that is read: the plan of its pods. Users' own may have 256 KiB."""

    plan: str | None = field(name=names.PLAN, default=None)


class TemplateMetadata(_Read, frozen=True, kw_only=True):
    """What all pods of a template have in their metadata. Its time of creation is null in older API servers."""

    labels: TemplateLabels = TemplateLabels()
    annotations: TemplateAnnotations = TemplateAnnotations()


class PodTemplate(_Read, frozen=True, kw_only=True):
    """What a batch Job says of its pods, as far as it is read."""

    metadata: TemplateMetadata = TemplateMetadata()


class JobSpec(_Read, frozen=True, kw_only=True):
    """What a batch Job is to do."""

    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    suspend: bool = False
    template: PodTemplate = PodTemplate()


class JobStatus(_Read, frozen=True, kw_only=True):
    """How far a batch Job is; `failed` counts pods, and `failed_indexes` names those that have failed for good."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    failed_indexes: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    conditions: tuple[Condition, ...] = ()


class Job(_Read, frozen=True, kw_only=True):
    """A batch Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ObjectReference(_Read, frozen=True, kw_only=True):
    """The object that an event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


Severity = Literal["Normal", "Warning"]


class Event(_Read, frozen=True, kw_only=True):
    """Something that happened to an object. Times are null where the writer uses the other ones."""

    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    reporting_component: str = ""


class ConfigMap(_Read, frozen=True, kw_only=True):
    """Texts by name."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class LeaseSpec(_Read, frozen=True, kw_only=True):
    """Who holds a Lease; times are of the holder's own clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(_Read, frozen=True, kw_only=True):
    """A right that one holds at a time."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class DeploymentStatus(_Read, frozen=True, kw_only=True):
    """How many of its pods can serve."""

    available_replicas: int = 0


class Deployment(_Read, frozen=True, kw_only=True):
    """A Deployment."""

    metadata: ObjectMeta = ObjectMeta()
    status: DeploymentStatus = DeploymentStatus()


class NamespaceStatus(_Read, frozen=True, kw_only=True):
    """Active, or Terminating."""

    phase: str = ""


class Namespace(_Read, frozen=True, kw_only=True):
    """A namespace."""

    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()


class BindingSubject(_Read, frozen=True, kw_only=True):
    """Whom a binding gives a role: a User, a Group, or a ServiceAccount of a namespace."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleBinding(_Read, frozen=True, kw_only=True):
    """Who has rights in a namespace; which ones, only the API server knows."""

    metadata: ObjectMeta
    subjects: list[BindingSubject] | None = None


class SelectorRequirement(_Read, frozen=True, kw_only=True):
    """What a selector of labels or of nodes requires of one label or field."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelector(_Read, frozen=True, kw_only=True):
    """Selects by labels; an empty selector selects all."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class NodeTerm(_Read, frozen=True, kw_only=True):
    """Expressions that must all be true."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(_Read, frozen=True, kw_only=True):
    """Nodes by label and field: those of which one of the terms is true."""

    node_selector_terms: list[NodeTerm] | None = None


class _Reach(_Read, frozen=True, kw_only=True):
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None


class SliceDevice(_Reach, frozen=True, kw_only=True):
    """A device of a ResourceSlice: from which nodes it can be used. v1beta1 says it below `basic`."""

    basic: _Reach | None = None


class ResourceSliceSpec(_Reach, frozen=True, kw_only=True):
    """Whose devices a ResourceSlice has, and from which nodes they can be used."""

    driver: str
    per_device_node_selection: bool | None = None
    # v1beta1 writes null for none.
    devices: list[SliceDevice] | None = None

    def __post_init__(self) -> None:
        # Up to 128 devices, each of which says nothing unless all do.
        if not self.per_device_node_selection:
            force_setattr(self, "devices", None)


class ResourceSlice(_Read, frozen=True, kw_only=True):
    """Devices that a driver of dynamic resource allocation offers."""

    metadata: ObjectMeta
    spec: ResourceSliceSpec
