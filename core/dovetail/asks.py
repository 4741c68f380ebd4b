"""Pods and jobs into what they ask, and what they ask into resources. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob, Mode, Policy, ResourceRequest
from dovetail.engine.claims import Ask
from dovetail.engine.ledger import MODE_CODES
from dovetail.kube.objects import Container, Pod, PodSpec
from dovetail.kube.quantity import Quantity, QuantityError, mebibytes, milli, whole
from dovetail.requests import WHOLE_MILLI, GPURequest, RequestError, parse

POLICIES: Final[tuple[Policy, ...]] = ("Spread", "Pack", "Balanced")
# Beyond every machine. The API server takes quantities whose sums no column of the ledger could hold.
MOST: Final = 1 << 40


def ask_of_pod(pod: Pod, *, default_policy: Policy) -> Ask | None:
    """What a pod asks, or None for a pod that asks for none of our resources.

    Raises `RequestError` when its annotations say something else than its resources: what kube-scheduler and kubelet
    count must be what we promise.
    """
    asked = _managed_requests(pod)
    text = pod.metadata.annotations.get(names.REQUEST)
    if not asked:
        return None
    request = parse(text) if text is not None else _request_from(asked)
    mode = _mode(pod.metadata.annotations.get(names.MODE), request)
    _agree(request, mode=mode, asked=asked)
    cpu_milli, memory_mib = host_request(pod.spec)
    return Ask(
        gpu=request,
        mode=mode,
        policy=_policy(pod.metadata.annotations.get(names.POLICY), default=default_policy),
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
    )


def ask_of_job(job: GPUJob, *, default_policy: Policy) -> Ask:
    """What each worker of a job asks. Raises `RequestError`."""
    request = request_of_job(job)
    cpu_milli, memory_mib = host_request(_pod_spec(job))
    return Ask(
        gpu=request,
        mode="Exclusive" if request is None else _mode(job.spec.mode, request),
        policy=job.spec.policy or default_policy,
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
    )


def template_spec(job: GPUJob) -> dict[str, Any]:
    """The pod spec of a job's template, a copy; what is null is left out, as the API server does with pods."""
    spec: dict[str, Any] = _without_nulls(job.spec.template.spec)
    return spec


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _pod_spec(job: GPUJob) -> PodSpec:
    try:
        return msgspec.convert(template_spec(job), PodSpec, strict=False)
    except msgspec.ValidationError as error:
        raise RequestError(
            job.metadata.name,
            field="job",
            problem=f"spec.template.spec is no pod: {error}",
            example="containers: [...]",
        ) from error


def request_of_job(job: GPUJob) -> GPURequest | None:
    """The request of a job in either form; None for `device: cpu`. Raises `RequestError`."""
    if job.spec.resources is not None:
        return request_of_resources(job.spec.resources)
    return parse("" if job.spec.gpu is None else job.spec.gpu)


def request_of_resources(resources: ResourceRequest) -> GPURequest | None:
    """The structured form as a request; None for `device: cpu`. Raises `RequestError`."""
    if resources.device == "cpu":
        return None
    share_milli = round(resources.share * WHOLE_MILLI)
    if share_milli < 1:
        raise RequestError(
            str(resources.share), problem="resources.share must be from 0.001 to 1", example="share: 0.5"
        )
    return GPURequest(
        count=resources.count,
        share_milli=share_milli,
        memory_mib=None if resources.memory is None else mebibytes(resources.memory),
        models=tuple(resources.models),
        vendor=resources.vendor,
        device_index=int(resources.device.removeprefix("cuda:")) if ":" in resources.device else None,
    )


def resources_of(ask: Ask) -> dict[str, str]:
    """The extended resources that a container with this ask requests: the sums that kube-scheduler counts."""
    gpu = ask.gpu
    if gpu is None:
        return {}
    resources = (
        {names.GPU_TURN: str(gpu.count)} if ask.mode == "TimeShared" else {names.GPU_MILLI: str(gpu.total_milli)}
    )
    if gpu.memory_mib is not None:
        resources[names.GPU_MEMORY_MIB] = str(gpu.count * gpu.memory_mib)
    return resources


def host_request(spec: PodSpec) -> tuple[int, int]:
    """CPU in milli and memory in MiB that a pod takes of its node, by Kubernetes' rule for init and sidecar containers.

    An amount beyond every machine counts as more than any node has. Raises `RequestError` for a quantity that is none.
    """
    try:
        return min(MOST, _peak(spec, "cpu", read=milli)), min(MOST, _peak(spec, "memory", read=mebibytes))
    except QuantityError as error:
        raise RequestError(
            str(error.text), field="resources of a container", problem="is no quantity", example="500m or 1.5Gi"
        ) from error


def _peak(spec: PodSpec, resource: str, *, read: Callable[[Quantity], int]) -> int:
    """The most of a resource that the pod's containers ask at one time: init ones one by one, sidecars stay."""
    sidecars = peak = 0
    for container in spec.init_containers:
        amount = read(_requested(container, resource))
        if container.restart_policy == "Always":
            sidecars += amount
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + amount)
    return max(peak, sidecars + sum(read(_requested(container, resource)) for container in spec.containers))


def _requested(container: Container, resource: str) -> Quantity:
    # As the API server defaults it: a limit without a request is the request.
    resources = container.resources
    return resources.requests.get(resource) or resources.limits.get(resource) or 0


def _managed_requests(pod: Pod) -> dict[str, int]:
    """The sums of our resources over the pod's containers; those that it does not ask are left out."""
    sums = {
        name: sum(whole(_requested(container, name)) for container in pod.spec.containers)
        for name in names.MANAGED_RESOURCES
    }
    return {name: amount for name, amount in sums.items() if amount}


def _request_from(asked: Mapping[str, int]) -> GPURequest:
    """The request that bare resources mean: whole devices in thousands, or one share."""
    total = asked.get(names.GPU_MILLI, WHOLE_MILLI * asked.get(names.GPU_TURN, 0))
    memory_mib = asked.get(names.GPU_MEMORY_MIB)
    if total < WHOLE_MILLI:
        return GPURequest(share_milli=total, memory_mib=memory_mib) if total else _no_share(asked)
    count, rest = divmod(total, WHOLE_MILLI)
    if rest:
        raise RequestError(
            str(total), problem=f"{names.GPU_MILLI} above 1000 must be a multiple of 1000 without "
            f"the annotation {names.REQUEST}", example="2000",
        )  # fmt: skip
    return GPURequest(count=count, memory_mib=None if memory_mib is None else memory_mib // count)


def _no_share(asked: Mapping[str, int]) -> GPURequest:
    raise RequestError(
        str(asked[names.GPU_MEMORY_MIB]),
        problem=f"{names.GPU_MEMORY_MIB} needs {names.GPU_MILLI} or {names.GPU_TURN} beside it",
        example="500",
    )


def _agree(request: GPURequest, *, mode: Mode, asked: Mapping[str, int]) -> None:
    expected = resources_of(Ask(gpu=request, mode=mode))
    if {name: str(amount) for name, amount in asked.items()} != expected:
        found = ", ".join(f"{name}: {amount}" for name, amount in asked.items())
        wanted = ", ".join(f"{name}: {amount}" for name, amount in expected.items())
        raise RequestError(
            str(request), problem=f"the pod's resources are {found}, but the request needs {wanted}",
            example=wanted,
        )  # fmt: skip


def _mode(text: str | None, request: GPURequest) -> Mode:
    if text is None:
        return "Exclusive" if request.whole and request.memory_mib is None else "Fractional"
    if text not in MODE_CODES:
        raise RequestError(text, field="mode", problem="unknown mode", example=", ".join(MODE_CODES))
    mode: Mode = text
    if mode == "Exclusive" and not request.whole:
        raise RequestError(str(request), problem="mode Exclusive takes whole GPUs, not a share", example="Fractional")
    return mode


def _policy(text: str | None, *, default: Policy) -> Policy:
    if text is None:
        return default
    if text not in POLICIES:
        raise RequestError(text, field="policy", problem="unknown policy", example=", ".join(POLICIES))
    return text
