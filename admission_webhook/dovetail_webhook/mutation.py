"""What becomes of a pod or a GPUJob on its way in, as a JSON patch. Pure.

A pod is completed by the same code and checked by the same parser as the pods of GPUJobs. A GPUJob gets the name of the
user who made it, and a share that is written as a number becomes the text that its schema takes.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import Policy, job_of
from dovetail.api.meta import Described
from dovetail.decoding import UnreadableError, convert, decode
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.jobs.array_tasks import TasksError, tasks_of
from dovetail.jobs.size_limits import JobLimitError, JobLimits, refusal_of_depth, refusal_of_spec
from dovetail.pods.containers import Parts, parts_of
from dovetail.pods.demand import agree, ask_of_pod
from dovetail.pods.device_plugin import plugin_for, refuse_no_devices, vendor_devices, vendor_request, with_devices
from dovetail.pods.injection import EPHEMERAL, KINDS, Manifest, completed
from dovetail.pods.mps_client import with_mps

Patch = list[dict[str, Any]]

# What the API server puts into a pod that names no scheduler.
_DEFAULT_SCHEDULER: Final = "default-scheduler"
# Annotations beside the request's own.
_OPTION: Final = f"{names.REQUEST}-"
_OPTIONS: Final = (names.MODE, names.POLICY, names.MEMORY_STRATEGY, names.WORKLOAD, names.PRIORITY)

# An empty container is two bytes, and 500 once it is complete. Kubelet is tested with far fewer.
MAX_CONTAINERS: Final = 256


class _JobMetadata(Described, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    annotations: dict[str, str] | None = None


class _JobSpec(Described, frozen=True, kw_only=True):
    # What the schema says of these fields is left to it: here they may be anything.
    gpu: Any = None
    sweep: Any = None
    workers: Any = None
    min_workers: Any = None
    distributed: Any = None
    template: msgspec.Raw = msgspec.Raw()


class Job(Described, frozen=True, kw_only=True):
    """Of a GPUJob on its way in what is written by admission, or bears on that; its template stays JSON."""

    metadata: _JobMetadata = _JobMetadata()
    spec: _JobSpec | None = None


class _Amounts(Described, frozen=True, kw_only=True):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class _Named(Described, frozen=True, kw_only=True):
    name: str = ""
    mount_path: str = ""


class _ContainerShape(Described, frozen=True, kw_only=True):
    env: list[_Named] | None = None
    resources: _Amounts | None = None
    volume_mounts: list[_Named] | None = None


class _SpecShape(Described, frozen=True, kw_only=True):
    # What completing a pod goes through as plain values.
    containers: list[_ContainerShape] | None = None
    init_containers: list[_ContainerShape] | None = None
    ephemeral_containers: list[_ContainerShape] | None = None
    volumes: list[_Named] | None = None
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    node_name: str | None = None


class _PodManifest(Described, frozen=True, kw_only=True):
    metadata: dict[str, Any]
    spec: dict[str, Any]


def read_pod(text: msgspec.Raw) -> Manifest:
    """A pod as plain values. Raises `UnreadableError`."""
    pod = decode(text, as_type=_PodManifest)
    convert(pod.spec, as_type=_SpecShape)
    count = sum(len(pod.spec.get(kind) or ()) for kind in KINDS)
    if count > MAX_CONTAINERS:
        raise UnreadableError(f"it has {count} containers, and {MAX_CONTAINERS} are allowed")
    return {"metadata": pod.metadata, "spec": pod.spec}


def patch_of_pod(
    pod: Manifest, *, subresource: str, policy: Policy, vendors: Vendors, mps_directory: str = ""
) -> Patch:
    """The changes that complete a pod; empty for one that is complete. Raises `RequestError` for one that cannot be.

    A pod that exists already comes with a subresource: its new ephemeral containers see no device.
    """
    if subresource:
        spec = completed(pod["spec"], asked=Parts(), by_plugin=vendors.nvidia_resources)
        return _changes(pod["spec"], spec, keys=[EPHEMERAL])
    try:
        spec = with_mps(_completed(pod, policy=policy, vendors=vendors), directory=mps_directory)
    except UnreadableError as error:
        raise RequestError(
            _name(pod), field="pod", problem=f"cannot be read: {error}", example="a valid pod"
        ) from error
    except QuantityError as error:
        raise RequestError(str(error.text), field="resources", problem="no quantity", example="100m or 2Gi") from error
    return _changes(pod["spec"], spec, keys=spec)


def _changes(before: Manifest, after: Manifest, *, keys: Iterable[str]) -> Patch:
    # Of JSON patch's operations `add` also replaces.
    return [
        {"op": "add", "path": f"/spec/{key}", "value": after[key]} for key in keys if after.get(key) != before.get(key)
    ]


def read_job(text: msgspec.Raw) -> Job:
    """A GPUJob. Raises `UnreadableError` for one whose shape no schema allows, or that is nested too deeply."""
    job = decode(text, as_type=Job)
    template = job.spec.template if job.spec else msgspec.Raw()
    if (refusal := refusal_of_depth(template, field="spec.template")) is not None:
        raise UnreadableError(refusal)
    return job


class _Spec(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


def check_size(job: msgspec.Raw, *, before: msgspec.Raw, limits: JobLimits) -> None:
    """Refuse a GPUJob beyond the limits. Raises `JobLimitError`; `UnreadableError` for what is no object.

    One that was beyond them `before` may be changed all the same: it may be older than the limits, and is to be
    cancelled or made smaller.
    """
    refusal = refusal_of_spec(decode(job, as_type=_Spec).spec, limits=limits)
    if refusal is None:
        return
    if bytes(before) == b"null" or refusal_of_spec(decode(before, as_type=_Spec).spec, limits=limits) is None:
        raise JobLimitError(refusal)


def patch_of_job(job: Job, *, user: str | None) -> Patch:
    """The changes that write down who made a GPUJob, whatever it says itself; of one that exists already that is known
    and `user` is None. A request that was written without quotes (`gpu: 0.5`) becomes the text that it is.
    Raises `TasksError` for a new sweep that could not be run."""
    if user is not None:
        _check_tasks(job)
    return [*_text_of_gpu(job), *([] if user is None else _made_by(job, user=user))]


def _check_tasks(job: Job) -> None:
    """Refuse a sweep that has no tasks, in one sentence. Raises `TasksError`. What the schema says is left to it."""
    spec = job.spec
    if spec is None or not isinstance(spec.sweep, dict):
        return
    _refuse_bare_values(spec.sweep)
    said = {
        "sweep": spec.sweep,
        "workers": spec.workers,
        "minWorkers": spec.min_workers,
        "distributed": spec.distributed,
    }
    whole = {
        "metadata": {"name": job.metadata.name or job.metadata.generate_name},
        "spec": {key: value for key, value in said.items() if value is not None},
    }
    with contextlib.suppress(UnreadableError):
        tasks_of(job_of(whole))


def _refuse_bare_values(sweep: Manifest) -> None:
    """YAML takes 0.1 for a number, and on for true: what a task would get is not what was written."""
    parameters = sweep.get("parameters")
    for parameter in parameters if isinstance(parameters, list) else ():
        values = parameter.get("values") if isinstance(parameter, dict) else None
        for value in values if isinstance(values, list) else ():
            if isinstance(value, bool | int | float):
                text = json.dumps(value)
                raise TasksError(
                    f"sweep: the values of parameter {parameter.get('name')} are text, and {text} is none: write "
                    f'"{text}", in quotes'
                )


def _made_by(job: Job, *, user: str) -> Patch:
    annotations = job.metadata.annotations or {}
    if annotations.get(names.USER) == user:
        return []
    return [{"op": "add", "path": "/metadata/annotations", "value": {**annotations, names.USER: user}}]


def _text_of_gpu(job: Job) -> Patch:
    gpu = job.spec.gpu if job.spec else None
    if not isinstance(gpu, float):
        return []
    return [{"op": "add", "path": "/spec/gpu", "value": format(Decimal(repr(gpu)), "f").removesuffix(".0")}]


def _completed(pod: Manifest, *, policy: Policy, vendors: Vendors) -> Manifest:
    typed, spec = _typed(pod), pod["spec"]
    refuse_no_devices(typed.spec, vendors=vendors)
    if vendor_devices(typed.spec, vendors=vendors):
        # What it also asks of ours would be taken out, and the pod come in with less than it asked for.
        vendor_request(typed, vendors=vendors)
        asked = Parts()
    else:
        asked = parts_of(typed)
        agree(typed, asked=asked, missing_ok=True)
        if resource := plugin_for(typed, asked=asked, vendors=vendors):
            spec = _asking(spec, asked, resource=resource)
            asked = Parts()
    annotated = names.REQUEST in typed.metadata.annotations
    if asked.parts or annotated:
        _refuse_unknown_words(typed.metadata.annotations)
        _refuse_others_choices(pod["spec"], wants_runtime=bool(asked.parts))
    spec = completed(spec, asked=asked, by_plugin=vendors.nvidia_resources)
    if annotated:
        spec["schedulerName"] = names.SCHEDULER_NAME
    # Read as the extender will read it, so that what it would refuse for ever does not come in.
    ask_of_pod(_typed({**pod, "spec": spec}), default_policy=policy, vendors=vendors)
    return spec


def _asking(spec: Manifest, asked: Parts, *, resource: str) -> Manifest:
    """The spec with its one asking container asking a vendor's plugin."""
    (part,) = asked.parts
    containers = list(spec["containers"])
    containers[part.index] = with_devices(containers[part.index], amounts={resource: str(part.request.count)})
    return {**spec, "containers": containers}


def _refuse_unknown_words(annotations: Mapping[str, str]) -> None:
    """What is misspelt would count for nothing, and nobody would be told."""
    for key in annotations:
        if key.startswith(_OPTION) and key not in _OPTIONS:
            raise RequestError(
                key, field="annotation", problem=f"is none that a pod with GPUs has ({', '.join(_OPTIONS)})",
                example=f"{names.POLICY}: Pack",
            )  # fmt: skip


def _refuse_others_choices(spec: Mapping[str, Any], *, wants_runtime: bool) -> None:
    scheduler, runtime, node = (spec.get(key) for key in ("schedulerName", "runtimeClassName", "nodeName"))
    if node:
        raise RequestError(
            str(node), field="nodeName", problem="a pod gets its GPUs when it is scheduled, and this one would not be",
            example=f"nodeSelector: {{kubernetes.io/hostname: {node}}}",
        )  # fmt: skip
    if scheduler not in {None, "", _DEFAULT_SCHEDULER, names.SCHEDULER_NAME}:
        raise RequestError(
            str(scheduler), field="schedulerName", problem="a pod with GPUs of Dovetail is scheduled by dovetail",
            example="nothing there",
        )  # fmt: skip
    if wants_runtime and runtime not in {None, "", names.RUNTIME_CLASS}:
        raise RequestError(
            str(runtime), field="runtimeClassName", problem="a pod with GPUs of Dovetail runs in the class nvidia",
            example="nothing there",
        )  # fmt: skip


def _typed(pod: Manifest) -> Pod:
    return convert(pod, as_type=Pod, strict=False)


def _name(pod: Manifest) -> str:
    metadata = pod.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "")
