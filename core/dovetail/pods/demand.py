"""Pods and jobs into requests, and requests into resources. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from dovetail import decoding, names
from dovetail.api.builtin import Pod, PodSpec
from dovetail.api.gpujob import GPUJob, MemoryUse, Mode, ResourceRequest, spec_of
from dovetail.api.reasons import start as says
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import Ranking
from dovetail.engine.model.topology import DEFAULT_LEVELS, Level
from dovetail.formats.quantities import QuantityError, mebibytes, milli
from dovetail.gpu import mig
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.gpu.memory_strategy import AGGRESSIVE, FRACTIONS, fraction_of
from dovetail.gpu.request import WHOLE_MILLI, GPURequest, RequestError, on_device, parse
from dovetail.jobs.batch_job import is_external, is_guests
from dovetail.jobs.size_limits import refusal_of_depth
from dovetail.pods.containers import (
    Parts,
    every_container,
    host_room_mib,
    managed_amounts,
    mode_of,
    parts_of,
    peak,
    requests_dovetail,
)
from dovetail.pods.device_plugin import (
    instance_request,
    mig_devices,
    refuse_no_devices,
    vendor_devices,
    vendor_request,
)
from dovetail.pods.errors import quantity_error, template_error
from dovetail.pods.node_affinity import tolerating
from dovetail.pods.options.annotations import guard_in, priority_in, ranked_job, ranked_pod, warm_in, workload_in
from dovetail.pods.template_types import TemplateSpec
from dovetail.pods.topology import is_apart, topology_of


def as_started(ask: Ask, *, job: GPUJob, use: MemoryUse | None) -> Ask:
    """What each worker requests of what its spec says: the accepted right size, with the estimated memory of `use`.

    A run keeps the size of its plan, so a size that is accepted meanwhile counts from the next start on.
    """
    return estimated(_of_right_size(ask, job=job), use=use)


def takes_right_size(job: GPUJob) -> bool:
    """Whether the request of the job can shrink: Dovetail alone makes its pods, and it may share devices."""
    spec = job.spec
    return not (is_guests(job) or is_external(job) or spec.reservation is not None or spec.mode == "Exclusive")


def right_size_of(job: GPUJob) -> GPURequest | None:
    """What its owner has accepted as enough of each device; None for nothing. Raises `RequestError`."""
    text = job.spec.right_size
    if text is None:
        return None
    try:
        return parse(text)
    except RequestError as error:
        raise RequestError(
            error.text, field="rightSize", problem=error.problem, position=error.position, example="8G,0.5"
        ) from error


def _of_right_size(ask: Ask, *, job: GPUJob) -> Ask:
    gpu, placement = ask.gpu, job.status.placement
    # A run goes on as it was planned, also when the size of its plan is withdrawn.
    size = right_size_of(job) if placement is None else parse(placement.worker.request)
    # A vendor's plugin and MIG give whole devices and instances.
    if size is None or gpu is None or gpu.mig or ask.resource or not takes_right_size(job):
        return ask
    smaller = _at_most(gpu, size=size)
    return ask if smaller == gpu else replace(ask, gpu=smaller, mode=mode_of(job.spec.mode, request=smaller))


def _at_most(gpu: GPURequest, *, size: GPURequest) -> GPURequest:
    share_milli = min(gpu.share_milli, size.share_milli)
    if not size.names_memory:
        return replace(gpu, share_milli=share_milli)
    if gpu.memory_mib is None or size.memory_mib is None:
        return replace(gpu, share_milli=share_milli, memory_mib=size.memory_mib, memory_percent=size.memory_percent)
    return replace(gpu, share_milli=share_milli, memory_mib=min(gpu.memory_mib, size.memory_mib))


def estimated(ask: Ask, *, use: MemoryUse | None) -> Ask:
    """The request with the estimate as promised memory.

    Never more than the memory that was requested, if any was.
    """
    if use is None or use.estimate_mib is None or ask.gpu is None or ask.mode == "Exclusive":
        return ask
    asked = ask.gpu.memory_mib
    memory_mib = use.estimate_mib if asked is None else min(asked, use.estimate_mib)
    return replace(ask, gpu=replace(ask.gpu, memory_mib=memory_mib), guard_fraction=FRACTIONS[AGGRESSIVE])


# How far a share of the structured form may be from whole thousandths, because of floating point.
_HAIR: Final = 1e-6
T = TypeVar("T")
Spec = TypeVar("Spec", PodSpec, TemplateSpec)
# The container that holds the devices of a reservation.
RESERVATION_CONTAINER: Final = "main"
_RESERVATION_GRACE_SECONDS: Final = 5
# Beyond every machine. The API server accepts quantities whose sums no column of the ledger can hold.
MOST: Final = 1 << 40


def ask_of_pod(pod: Pod, *, ranking: Ranking, vendors: Vendors = DEFAULT_VENDORS) -> Ask | None:
    """The request of a pod, or None for a pod that names none of our resources and no vendor's.

    A pod that names a resource of ours with the amount 0 requests a place by its CPU and memory alone. Raises
    `RequestError` when its annotations contradict its resources: what kube-scheduler and kubelet count must be what we
    promise. `ranking` is that of the pod's namespace; the pod's weights are moved into its bounds, which
    `check_pod` compares. A placeholder asks an autoscaler for a node, and Dovetail for nothing.
    """
    if pod.spec.scheduler_name == names.PLACEHOLDER_SCHEDULER:
        return None
    if (found := vendor_request(pod, vendors=vendors)) is not None:
        return _vendor_ask(pod, resource=found[0], request=found[1], ranking=ranking)
    if not any(requests_dovetail(container) for container in every_container(pod.spec)):
        return None
    if (instances := instance_request(pod)) is not None:
        return _vendor_ask(pod, resource=instances[0], request=instances[1], ranking=ranking)
    asked = parts_of(pod)
    agree(pod, asked=asked)
    cpu_milli, memory_mib = host_request(pod.spec)
    policy, weights = ranked_pod(pod, ranking=ranking)
    warm = warm_in(pod.metadata.annotations)
    if not asked.parts:
        return Ask(gpu=None, policy=policy, weights=weights, cpu_milli=cpu_milli, memory_mib=memory_mib, warm=warm)
    first, *others = asked.parts
    priority_in(pod.metadata.annotations)
    return Ask(
        gpu=first.request,
        mode=asked.mode,
        policy=policy,
        weights=weights,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        guard_fraction=guard_in(pod.metadata.annotations),
        workload=workload_in(pod.metadata.annotations),
        more=tuple(part.request for part in others),
        host_room_mib=0 if others or asked.lent else host_room_mib(pod.spec, container=first.index),
        warm=warm,
    )


def _vendor_ask(pod: Pod, *, resource: str, request: GPURequest, ranking: Ranking) -> Ask:
    cpu_milli, memory_mib = host_request(pod.spec)
    policy, weights = ranked_pod(pod, ranking=ranking)
    return Ask(
        gpu=request,
        policy=policy,
        weights=weights,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        resource=resource,
        warm=warm_in(pod.metadata.annotations),
    )


def agree(pod: Pod, *, asked: Parts, missing_ok: bool = False) -> None:
    """Check that each container's resources equal its request. Raises `RequestError`.

    `missing_ok` accepts a container without resources.
    """
    for index, container in enumerate(every_container(pod.spec)):
        request = asked.request(index)
        amounts = managed_amounts(container)
        if request is not None and (amounts or not missing_ok):
            _agree(request, mode=asked.mode, asked=amounts)


def ask_of_job(
    job: GPUJob, *, ranking: Ranking, vendors: Vendors = DEFAULT_VENDORS, levels: tuple[Level, ...] = DEFAULT_LEVELS
) -> Ask:
    """The request of each worker of a job on managed nodes; `asks_by_kind` has all alternatives.

    `ranking` is that of the job's namespace; the job's weights are moved into its bounds, which
    `check_job` compares. `levels` are those that a job's topology may name, from wide to narrow. Raises
    `RequestError`.
    """
    request = request_of_job(job)
    right_size_of(job)
    if (refusal := refusal_of_depth(job.spec.template.spec, field="spec.template.spec")) is not None:
        raise RequestError(job.metadata.name, field="job", problem=refusal, example="containers: [{name: main}]")
    said = template_spec(job)
    # Code that later adds to the spec relies on lists where lists belong.
    spec, where = _read(said, as_type=PodSpec, job=job), _read(said, as_type=TemplateSpec, job=job)
    _check_left_to_the_queue(said)
    cpu_milli, memory_mib = host_request(spec)
    policy, weights = ranked_job(job, ranking=ranking)
    strategy = job.spec.memory.strategy
    refuse_no_devices(spec, vendors=vendors)
    if asked := _of_vendors(spec, vendors=vendors):
        raise RequestError(
            next(iter(asked)), field="spec.template", problem=says.COUNT_IN_SPEC(),
            example=f"gpu: {sum(asked.values())} and no such resource in the template",
        )  # fmt: skip
    return Ask(
        gpu=request,
        mode="Exclusive" if request is None else mode_of(job.spec.mode, request=request),
        policy=policy,
        weights=weights,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        guard_fraction=None if strategy is None else fraction_of(strategy),
        workload=job.spec.workload,
        host_room_mib=host_room_mib(spec, container=0),
        apart=is_apart(job, where=where),
        topology=topology_of(job, where=where, levels=levels),
        warm=warm_in(job.spec.template.metadata.annotations),
    )


def _check_left_to_the_queue(said: Mapping[str, Any]) -> None:
    """Refuse fields that the queue overrides although the job depends on them.

    These fields say where and when pods run. Raises `RequestError`.
    """
    if node := said.get("nodeName"):
        raise RequestError(
            str(node), field="spec.template.spec.nodeName", problem=says.QUEUE_PLACES(),
            example=f'nodeSelector: {{kubernetes.io/hostname: "{node}"}}',
        )  # fmt: skip
    if gates := said.get("schedulingGates"):
        raise RequestError(
            str(gates), field="spec.template.spec.schedulingGates", problem=says.QUEUE_TIMES(),
            example="suspend: true",
        )  # fmt: skip


def _of_vendors(spec: PodSpec, *, vendors: Vendors) -> dict[str, int]:
    try:
        return vendor_devices(spec, vendors=vendors) | mig_devices(spec)
    except QuantityError as error:
        raise quantity_error(spec, text=error.text) from error


def template_spec(job: GPUJob) -> dict[str, Any]:
    """A copy of the pod spec of a job, without null values, which the API server also drops."""
    spec: dict[str, Any] = _without_nulls(written_spec(job))
    return spec


def written_spec(job: GPUJob) -> dict[str, Any]:
    """The pod spec of a job; for a reservation, one container that waits. With GPUs, it tolerates the vendor's taint.

    Decodes the template, which is stored as text: a reader that needs few fields calls `fields_of`.
    """
    spec = _spec_of(job)
    return tolerating(spec, resources=resources) if (resources := _vendors_of(job)) else spec


def _vendors_of(job: GPUJob) -> tuple[str, ...]:
    """The vendors' resources by which nodes for the job may be tainted; none for a job without a readable request."""
    try:
        request = request_of_job(job)
    except RequestError:
        return ()
    return () if request is None else DEFAULT_VENDORS.taints_for(request)


def _spec_of(job: GPUJob) -> dict[str, Any]:
    held = job.spec.reservation
    if held is None:
        return spec_of(job.spec.template)
    container: dict[str, Any] = {"name": RESERVATION_CONTAINER, "image": held.image}
    if held.command:
        container["command"] = held.command
    # A container that waits has no work to finish.
    return {"containers": [container], "terminationGracePeriodSeconds": _RESERVATION_GRACE_SECONDS}


def fields_of(job: GPUJob, *, as_type: type[T]) -> T:
    """The fields of a job's pod spec that `as_type` names. Raises `UnreadableError`."""
    if job.spec.reservation is not None:
        return decoding.convert(written_spec(job), as_type=as_type, strict=False)
    return decoding.decode(job.spec.template.spec, as_type=as_type)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _read(said: Mapping[str, Any], *, as_type: type[Spec], job: GPUJob) -> Spec:
    try:
        return decoding.convert(said, as_type=as_type, strict=False)
    except decoding.UnreadableError as error:
        raise template_error(error, job=job.metadata.name) from error


def request_of_job(job: GPUJob) -> GPURequest | None:
    """The request of a job in either form; None for `device: cpu`. Raises `RequestError`."""
    if job.spec.resources is not None:
        return request_of_resources(job.spec.resources)
    return parse("" if job.spec.gpu is None else job.spec.gpu)


def request_of_resources(resources: ResourceRequest) -> GPURequest | None:
    """The structured form as a request; None for `device: cpu`. Raises `RequestError`."""
    if resources.mig_profile is not None:
        return _instances_of(resources, profile=resources.mig_profile)
    if resources.device == "cpu":
        return None
    share_milli = round(resources.share * WHOLE_MILLI)
    if not 1 <= share_milli <= WHOLE_MILLI or abs(resources.share * WHOLE_MILLI - share_milli) > _HAIR:
        raise RequestError(
            str(resources.share), field="resources.share",
            problem=says.SHARE_BEYOND(), example="share: 0.5",
        )  # fmt: skip
    request = GPURequest(
        count=resources.count,
        share_milli=share_milli,
        memory_mib=None if resources.memory is None else mebibytes(resources.memory),
        memory_percent=resources.memory_percent,
        models=tuple(resources.models),
        excluded_models=tuple(resources.excluded_models),
        vendor=resources.vendor,
        min_nominal_gb=resources.min_nominal_memory_gb,
    )
    return on_device(request, device=resources.device)


def _instances_of(resources: ResourceRequest, *, profile: str) -> GPURequest:
    meant = ResourceRequest(count=resources.count, models=resources.models, mig_profile=profile)
    normalised = mig.normalised(profile)
    if resources != meant or normalised is None:
        raise RequestError(
            profile, field="resources.migProfile", problem=says.PROFILE_ALONE(),
            example="migProfile: 3g.40gb and count: 2",
        )  # fmt: skip
    return GPURequest(count=resources.count, models=tuple(resources.models), mig=normalised)


def resources_of(ask: Ask) -> dict[str, str]:
    """The extended resources that a container with this request needs, as kube-scheduler counts."""
    gpu = ask.gpu
    if gpu is None:
        return {}
    if ask.resource and gpu.mig:
        # kube-scheduler calls the extender for pods that name a resource of ours, also with the amount 0.
        return {ask.resource: str(gpu.count), names.GPU_MILLI: "0"}
    if ask.resource:
        return {ask.resource: str(gpu.count)}
    # A node's sum has 1000 for each GPU and for each MIG instance.
    milli_asked = str(gpu.count * gpu.share_milli)
    resources = {names.GPU_TURN: str(gpu.count)} if ask.mode == "TimeShared" else {names.GPU_MILLI: milli_asked}
    if gpu.memory_mib is not None:
        resources[names.GPU_MEMORY_MIB] = str(gpu.count * gpu.memory_mib)
    return resources


def host_request(spec: PodSpec) -> tuple[int, int]:
    """CPU in milli and memory in MiB that a pod takes of its node.

    By Kubernetes' rule for init containers and sidecars. An amount beyond every machine counts as more than any node
    has. Raises `RequestError` for an invalid quantity.
    """
    try:
        return min(MOST, peak(spec, resource="cpu", read=milli)), min(
            MOST, peak(spec, resource="memory", read=mebibytes)
        )
    except QuantityError as error:
        raise quantity_error(spec, text=error.text) from error


def _agree(request: GPURequest, *, mode: Mode, asked: Mapping[str, int]) -> None:
    expected = resources_of(Ask(gpu=request, mode=mode))
    if {name: str(amount) for name, amount in asked.items()} != expected:
        found = ", ".join(f"{name}: {amount}" for name, amount in asked.items())
        wanted = ", ".join(f"{name}: {amount}" for name, amount in expected.items())
        raise RequestError(
            str(request), problem=says.RESOURCES_DIFFER(found=found, wanted=wanted),
            example=wanted,
        )  # fmt: skip
