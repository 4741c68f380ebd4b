"""Which jobs fit on whole devices that are free for everyone, by sums of the API server's objects alone. Pure.

It errs on one side: what it says fits, fits. It leaves out nodes with taints, nodes on which anything is kept or about
to change, shares of devices, and jobs with other requirements than a pool and a node selector.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Node, Pod, PodSpec, Resources, is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import Device, GPUNode
from dovetail.audit.device_kinds import unwanted
from dovetail.audit.jobs import request_of
from dovetail.decoding import UnreadableError, convert, decode
from dovetail.formats.quantities import QuantityError, mebibytes, milli, whole
from dovetail.gpu.request import GPURequest
from dovetail.pods.template_types import TemplateSpec

_NODE_SELECTOR_ONLY: Final = ("affinity", "topologySpreadConstraints", "hostNetwork", "resourceClaims", "nodeName")
_COUNTED: Final = frozenset({"cpu", "memory", *names.MANAGED_RESOURCES})
_CLOSING: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNode:
    """What a node has for everyone: its free whole devices, and its host's resources that no pod requests."""

    labels: Mapping[str, str]
    devices: Sequence[Device]
    cpu_milli: int
    memory_mib: int
    pods: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """Where a worker may go, and what each of its containers requests."""

    node_selector: Mapping[str, str]
    amounts: Sequence[Resources]


def open_nodes(
    *,
    nodes: Iterable[Node],
    gpunodes: Iterable[GPUNode],
    pods: Iterable[Pod],
    promised: AbstractSet[tuple[str, str]],
) -> dict[str, OpenNode]:
    """The nodes with devices that are free for everyone, by name.

    `promised` are the devices that pods hold, by node and UUID.
    """
    reports = {each.metadata.name: each for each in gpunodes}
    used: dict[str, Counter[str]] = {}
    for pod in pods:
        if pod.spec.node_name and not is_terminated(pod):
            used.setdefault(pod.spec.node_name, Counter()).update(_requested(pod))
    found = {}
    for node in nodes:
        name, report = node.metadata.name, reports.get(node.metadata.name)
        if report is None or not _is_open(node, report=report):
            continue
        devices = [each for each in report.status.devices if _is_free(each, node=report, promised=promised)]
        if not devices:
            # Thousands of jobs may wait, and on a busy cluster most nodes have none.
            continue
        there, taken = node.status.allocatable, used.get(name, Counter())
        found[name] = OpenNode(
            labels=node.metadata.labels,
            devices=devices,
            cpu_milli=milli(there.get("cpu", "0")) - taken["cpu"],
            memory_mib=mebibytes(there.get("memory", "0"), rounding="down") - taken["memory"],
            pods=whole(there.get("pods", "0"), rounding="down") - taken["pods"],
        )
    return found


def fits(
    job: GPUJob, *, nodes: Mapping[str, OpenNode], pools: AbstractSet[str] | None, memory_specs: Mapping[str, float]
) -> bool:
    """Whether all workers of the job, or its fewest, fit on free whole devices of open nodes of these pools."""
    request, template = request_of(job), _template_of(job)
    if request is None or template is None or not _is_plain(job, request=request):
        return False
    try:
        cpu, memory = _sum(template, resource="cpu"), _sum(template, resource="memory")
    except QuantityError:
        return False
    places, needed = 0, job.spec.min_workers or job.spec.workers
    for node in nodes.values():
        labels = node.labels.items() >= template.node_selector.items()
        pool = node.labels.get(names.LABEL_POOL)
        if not labels or (pools is not None and pool not in pools) or job.spec.pool not in {None, pool}:
            continue
        count = sum(not unwanted(request, devices=[each], memory_specs=memory_specs) for each in node.devices)
        room = [count // request.count, node.pods]
        room += [node.cpu_milli // cpu] if cpu else []
        room += [node.memory_mib // memory] if memory else []
        places += max(0, min(room))
        if places >= needed:
            return True
    return False


def _is_open(node: Node, *, report: GPUNode) -> bool:
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    agent = next((each for each in report.status.conditions if each.type == "Ready"), None)
    return (
        not node.spec.unschedulable
        and node.metadata.deletion_timestamp is None
        and not any(taint.effect in _CLOSING for taint in node.spec.taints)
        and ready is not None
        and ready.status == "True"
        and (agent is None or agent.status == "True")
        and node.metadata.labels.get(names.LABEL_MANAGED) == "true"
        and not report.spec.reshape
    )


def _is_free(device: Device, *, node: GPUNode, promised: AbstractSet[tuple[str, str]]) -> bool:
    return (
        (node.metadata.name, device.uuid) not in promised
        and device.uuid not in node.spec.cordoned
        and device.health == "Healthy"
        and not (device.taint or device.strangers or device.foreign_mib or device.mig_profile)
    )


def _is_plain(job: GPUJob, *, request: GPURequest) -> bool:
    """Whether the job asks for nothing but whole GPUs of any node."""
    topology, mode = job.spec.topology, job.spec.mode
    return (
        request.whole
        and request.count > 0
        and not request.mig
        and request.device_index is None
        and mode in {None, "Exclusive"}
        and (topology is None or (topology.required is None and topology.sub_groups is None))
    )


def _template_of(job: GPUJob) -> _Template | None:
    """The parts of the template that decide where a worker may go; None if it has others."""
    try:
        said = decode(job.spec.template.spec, as_type=dict[str, Any])
        spec, where = convert(said, as_type=PodSpec), convert(said, as_type=TemplateSpec)
    except UnreadableError:
        return None
    others = any(said.get(key) for key in _NODE_SELECTOR_ONLY)
    claims = any("persistentVolumeClaim" in each or "ephemeral" in each for each in said.get("volumes", ()))
    ports = any(port.host_port for each in (*where.containers, *where.init_containers) for port in each.ports)
    amounts = [each.resources for each in (*spec.containers, *spec.init_containers)]
    asked = {name for each in amounts for name in (*each.requests, *each.limits)}
    if others or claims or ports or asked - _COUNTED:
        return None
    return _Template(node_selector=where.node_selector, amounts=amounts)


def _sum(template: _Template, *, resource: str) -> int:
    """What all containers of a worker request: more than it takes at any one time."""
    read = milli if resource == "cpu" else mebibytes
    return sum(read(each.requests.get(resource) or each.limits.get(resource) or "0") for each in template.amounts)


def _requested(pod: Pod) -> dict[str, int]:
    containers = [*pod.spec.containers, *pod.spec.init_containers]
    found = {"cpu": 0, "memory": 0, "pods": 1}
    for container in containers:
        amounts = {**container.resources.limits, **container.resources.requests}
        found["cpu"] += milli(amounts.get("cpu") or "0")
        found["memory"] += mebibytes(amounts.get("memory") or "0")
    return found
