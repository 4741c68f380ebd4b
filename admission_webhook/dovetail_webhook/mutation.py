"""The admission changes to a pod or a GPUJob, as a JSON patch. Pure.

The same code completes and checks a pod as for the pods of GPUJobs. Where a namespace opts in, a pod that asks for
GPUs in other systems' words is first translated into one that asks Dovetail. A GPUJob gets the name of the user who
created it, a share and a memory strategy that are written as numbers become the strings that their schema requires,
and a nominal size becomes text.
"""

import contextlib
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import POLICIES_BY_LETTERS, Policy, ResourceRequest, job_of
from dovetail.api.meta import Described
from dovetail.api.reasons import start as says
from dovetail.decoding import UnreadableError, convert, decode
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import Ranking
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Delivery, Vendors, is_mig
from dovetail.gpu.request import RequestError
from dovetail.jobs.array_tasks import TasksError, tasks_of
from dovetail.jobs.size_limits import JobLimitError, JobLimits, refusal_of_depth, refusal_of_spec
from dovetail.pods.containers import Parts, parts_of
from dovetail.pods.delivery import of_pod, refuse_long_names
from dovetail.pods.demand import agree, ask_of_pod, request_of_resources, resources_of
from dovetail.pods.device_plugin import (
    instance_request,
    plugin_for,
    refuse_no_devices,
    vendor_devices,
    vendor_request,
    with_devices,
)
from dovetail.pods.injection import EPHEMERAL, KINDS, Manifest, completed
from dovetail.pods.mps_client import with_mps
from dovetail.pods.options import annotations as options
from dovetail.pods.translation.annotations import SCHEDULERS
from dovetail.pods.translation.resources import refuse_foreign
from dovetail.pods.translation.translate import translated

Patch = list[dict[str, Any]]

# The API server's default for a pod that names no scheduler.
_DEFAULT_SCHEDULER: Final = "default-scheduler"
# Its decimals are refused by the schema, with the field.
_SHARE: Final = "resources.share"
# Annotations in addition to the request itself.
_OPTION: Final = f"{names.REQUEST}-"
# The request of one container.
_OF_CONTAINER: Final = f"{names.REQUEST}."

# What the extender writes when it binds a pod; the last by container.
_AT_BIND: Final = (names.ALLOCATION, names.TERM)
_AT_BIND_BY_CONTAINER: Final = tuple(
    f"{name}." for name in (names.VISIBLE_DEVICES, names.MPS_PERCENTAGE, names.MPS_MEMORY)
)


# An empty container has two bytes, and 500 once it is complete. kubelet is tested with far fewer containers.
MAX_CONTAINERS: Final = 256


class _JobMetadata(Described, frozen=True, kw_only=True):
    name: str = ""
    generate_name: str = ""
    annotations: dict[str, str] | None = None


class _JobSpec(Described, frozen=True, kw_only=True):
    # The schema validates these fields later, so any type is accepted here.
    gpu: Any = None
    resources: Any = None
    memory: Any = None
    policy: Any = None
    sweep: Any = None
    workers: Any = None
    min_workers: Any = None
    distributed: Any = None
    template: msgspec.Raw = msgspec.Raw()


class Job(Described, frozen=True, kw_only=True):
    """The parts of a GPUJob that admission reads or writes; its template stays encoded."""

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
    # The fields that completing a pod walks through as plain values.
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
    """Decode a pod to plain values. Raises `UnreadableError`."""
    pod = decode(text, as_type=_PodManifest)
    return pod_with(pod.metadata, spec=pod.spec)


def pod_with(metadata: dict[str, Any], *, spec: dict[str, Any]) -> Manifest:
    """A pod of these plain values. Raises `UnreadableError` for an impossible shape."""
    convert(spec, as_type=_SpecShape)
    count = sum(len(spec.get(kind) or ()) for kind in KINDS)
    if count > MAX_CONTAINERS:
        raise UnreadableError(f"it has {count} containers, and {MAX_CONTAINERS} are allowed")
    return {"metadata": metadata, "spec": spec}


def patch_of_pod(
    pod: Manifest,
    *,
    subresource: str,
    policy: Policy,
    vendors: Vendors,
    mps_directory: str = "",
    delivery: Delivery = "RuntimeClass",
) -> Patch:
    """The changes that complete a pod; empty if it is complete.

    An existing pod is reviewed only with a subresource: its new ephemeral containers get no device. Raises
    `RequestError` for a pod that cannot be completed.
    """
    if subresource:
        spec = completed(pod["spec"], asked=Parts(), by_plugin=vendors.nvidia_resources)
        return _changes(pod["spec"], after=spec, keys=[EPHEMERAL])
    try:
        spec = of_pod(_completed(pod, policy=policy, vendors=vendors, delivery=delivery), delivery=delivery)
        spec = with_mps(spec, directory=mps_directory)
    except UnreadableError as error:
        raise RequestError(
            _name(pod), field="pod", problem=says.POD_UNREADABLE(problem=str(error)), example="a valid pod"
        ) from error
    except QuantityError as error:
        raise RequestError(
            str(error.text), field="resources", problem=says.NO_QUANTITY(), example="100m or 2Gi"
        ) from error
    return _changes(pod["spec"], after=spec, keys=spec)


def patch_of_request(pod: Manifest, *, vendors: Vendors) -> Patch:
    """The changes by which a pod that asks for GPUs in other systems' words asks Dovetail; empty for any other pod.

    A pod of another scheduler than those of these systems, or one that names its node, keeps what it says. Raises
    `RequestError`, and `UnreadableError`.
    """
    spec = pod["spec"]
    left_to_us = {None, "", _DEFAULT_SCHEDULER, names.SCHEDULER_NAME, *SCHEDULERS}
    if spec.get("nodeName") or spec.get("schedulerName") not in left_to_us:
        return []
    after = translated(pod, typed=_typed(pod), vendors=vendors)
    annotations = after["metadata"].get("annotations")
    said = [{"op": "add", "path": "/metadata/annotations", "value": annotations}]
    same = annotations == pod["metadata"].get("annotations")
    return ([] if same else said) + _changes(spec, after=after["spec"], keys=after["spec"])


def patch_of_copy(pod: Manifest) -> Patch:
    """The changes to a new pod that says what the extender writes when it binds one: it is a copy, and gets its own.

    Tools that copy or restore pods keep annotations. The policies refuse these on every new pod.
    """
    annotations = pod["metadata"].get("annotations") or {}
    copied = [name for name in annotations if name in _AT_BIND or name.startswith(_AT_BIND_BY_CONTAINER)]
    if names.ALLOCATION in annotations:
        copied += [name for name in annotations if name.startswith(names.CDI_CONTAINER)]
    return [{"op": "remove", "path": "/metadata/annotations/" + _pointer(name)} for name in copied]


def _pointer(key: str) -> str:
    """A key as a step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _changes(before: Manifest, *, after: Manifest, keys: Iterable[str]) -> Patch:
    # In a JSON patch, `add` also replaces an existing value.
    return [
        {"op": "add", "path": f"/spec/{key}", "value": after[key]} for key in keys if after.get(key) != before.get(key)
    ]


def read_job(text: msgspec.Raw) -> Job:
    """Decode a GPUJob. Raises `UnreadableError` for an impossible shape or too deep nesting."""
    job = decode(text, as_type=Job)
    template = job.spec.template if job.spec else msgspec.Raw()
    if (refusal := refusal_of_depth(template, field="spec.template")) is not None:
        raise UnreadableError(refusal.message)
    return job


class _Spec(msgspec.Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw(b"{}")


def check_size(job: msgspec.Raw, *, before: msgspec.Raw, limits: JobLimits) -> None:
    """Check a GPUJob against the limits. Raises `JobLimitError`, or `UnreadableError`.

    A job that already exceeded the limits `before` may still change: it may be older than the limits, and its owner
    must be able to cancel it or make it smaller.
    """
    refusal = refusal_of_spec(decode(job, as_type=_Spec).spec, limits=limits)
    if refusal is None:
        return
    if bytes(before) == b"null" or refusal_of_spec(decode(before, as_type=_Spec).spec, limits=limits) is None:
        raise JobLimitError(refusal)


def patch_of_job(job: Job, *, user: str | None) -> Patch:
    """The changes to a GPUJob: the user who created it, and numbers in `gpu` as strings.

    `user` overrides what the job says, and is None for an existing job. A request without quotes (`gpu: 0.5`)
    becomes the string with the same digits, as does a memory strategy, and a policy gets its usual letters. Raises
    `TasksError` for a new sweep that cannot run, and `RequestError` for resources that are no request.
    """
    if user is not None:
        _check_resources(job)
        _check_tasks(job)
    written = (*_text_of_gpu(job), *_text_of_strategy(job), *_policy_by_letters(job))
    return [*written, *([] if user is None else _made_by(job, user=user))]


def _check_resources(job: Job) -> None:
    """Check that the structured form is a request; the schema checks each field. Raises `RequestError`."""
    resources = job.spec.resources if job.spec else None
    if isinstance(resources, dict):
        with contextlib.suppress(UnreadableError, QuantityError):
            try:
                request_of_resources(convert(resources, as_type=ResourceRequest))
            except RequestError as error:
                if error.field != _SHARE:
                    raise


def _check_tasks(job: Job) -> None:
    """Check that a sweep yields tasks; the schema checks the rest. Raises `TasksError`."""
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
    """Refuse values without quotes, because YAML changes them: `on` becomes true, for example.

    Raises `TasksError`.
    """
    parameters = sweep.get("parameters")
    for parameter in parameters if isinstance(parameters, list) else ():
        values = parameter.get("values") if isinstance(parameter, dict) else None
        for value in values if isinstance(values, list) else ():
            if isinstance(value, bool | int | float):
                text = json.dumps(value)
                raise TasksError(says.VALUE_NO_TEXT(parameter=str(parameter.get("name")), value=text))


def _made_by(job: Job, *, user: str) -> Patch:
    annotations = job.metadata.annotations or {}
    if annotations.get(names.USER) == user:
        return []
    return [{"op": "add", "path": "/metadata/annotations", "value": {**annotations, names.USER: user}}]


def _text_of_gpu(job: Job) -> Patch:
    gpu = job.spec.gpu if job.spec else None
    if not isinstance(gpu, float):
        return []
    return [{"op": "add", "path": "/spec/gpu", "value": _digits(gpu)}]


def _text_of_strategy(job: Job) -> Patch:
    memory = job.spec.memory if job.spec else None
    strategy = memory.get("strategy") if isinstance(memory, dict) else None
    if isinstance(strategy, bool) or not isinstance(strategy, int | float):
        return []
    return [{"op": "add", "path": "/spec/memory/strategy", "value": _digits(strategy)}]


def _policy_by_letters(job: Job) -> Patch:
    """The policy as the schema has it, however its letters are written (`SPREAD`)."""
    policy = job.spec.policy if job.spec else None
    meant = POLICIES_BY_LETTERS.get(policy.lower()) if isinstance(policy, str) else None
    return [] if meant in {None, policy} else [{"op": "add", "path": "/spec/policy", "value": meant}]


def _digits(number: float) -> str:
    return format(Decimal(repr(number)), "f").removesuffix(".0")


def _completed(pod: Manifest, *, policy: Policy, vendors: Vendors, delivery: Delivery) -> Manifest:
    typed, spec = _typed(pod), pod["spec"]
    refuse_no_devices(typed.spec, vendors=vendors)
    if devices := vendor_devices(typed.spec, vendors=vendors):
        # Raises if the pod also requests GPUs of Dovetail: that request would be dropped without notice.
        vendor_request(typed, vendors=vendors)
        _refuse_requests_of_containers(typed.metadata.annotations, resource=next(iter(devices)))
        asked = Parts()
    elif (instances := instance_request(typed)) is not None:
        _refuse_requests_of_containers(typed.metadata.annotations, resource=instances[0])
        asked = Parts()
        if names.REQUEST in typed.metadata.annotations:
            spec = _shown_to_the_extender(spec)
    else:
        asked = parts_of(typed)
        agree(typed, asked=asked, missing_ok=True)
        if resource := plugin_for(typed, asked=asked, vendors=vendors):
            spec = _asking(spec, asked=asked, resource=resource)
            asked = Parts()
        else:
            refuse_long_names(typed, delivery=delivery)
    annotated = names.REQUEST in typed.metadata.annotations
    if asked.parts or annotated or typed.spec.scheduler_name == names.SCHEDULER_NAME:
        refuse_foreign(typed)
    if asked.parts or annotated:
        _refuse_unknown_words(typed.metadata.annotations)
        _refuse_others_choices(pod["spec"], wants_runtime=bool(asked.parts))
    spec = completed(spec, asked=asked, by_plugin=vendors.nvidia_resources)
    if annotated:
        spec["schedulerName"] = names.SCHEDULER_NAME
    # Read the result as the extender does, so that a pod that the extender can never place is denied here.
    ask_of_pod(_typed({**pod, "spec": spec}), ranking=Ranking(policy=policy), vendors=vendors)
    return spec


def _asking(spec: Manifest, *, asked: Parts, resource: str) -> Manifest:
    """The spec, with the request of its one GPU container moved to a vendor's device plugin."""
    (part,) = asked.parts
    containers = list(spec["containers"])
    amounts = resources_of(Ask(gpu=part.request, resource=resource))
    containers[part.index] = with_devices(containers[part.index], amounts=amounts)
    return {**spec, "containers": containers}


def _shown_to_the_extender(spec: Manifest) -> Manifest:
    """The spec, with 0 of a resource of ours where a container requests MIG instances.

    kube-scheduler calls the extender only for pods that name such a resource. Without the call, the models of the
    annotation and the plan of the queue would have no effect.
    """
    kinds = {
        kind: [
            with_devices(each, amounts={names.GPU_MILLI: "0"}) if _requests_instances(each) else each
            for each in containers
        ]
        for kind in KINDS
        if (containers := spec.get(kind))
    }
    return {**spec, **kinds}


def _requests_instances(container: Manifest) -> bool:
    return any(map(is_mig, (container.get("resources") or {}).get("limits") or ()))


def _refuse_requests_of_containers(annotations: Mapping[str, str], *, resource: str) -> None:
    """Deny requests of single containers in a pod that asks a vendor's plugin: none of them would get anything."""
    for key, text in annotations.items():
        if key.startswith(_OF_CONTAINER):
            raise RequestError(
                text, field=key, problem=says.ONE_KIND_ASKED(resource=resource),
                example=f"{resource} alone",
            )  # fmt: skip


def _refuse_unknown_words(annotations: Mapping[str, str]) -> None:
    """Deny unknown options, because a misspelt annotation would be ignored silently."""
    for key in annotations:
        if key.startswith(_OPTION) and key not in options.NAMES:
            raise RequestError(
                key, field="annotation", problem=says.NO_OPTION(names=", ".join(options.NAMES)),
                example=f"{names.POLICY}: Pack",
            )  # fmt: skip


def _refuse_others_choices(spec: Mapping[str, Any], *, wants_runtime: bool) -> None:
    scheduler, runtime, node = (spec.get(key) for key in ("schedulerName", "runtimeClassName", "nodeName"))
    if node:
        raise RequestError(
            str(node), field="nodeName", problem=says.PLACED_ALREADY(),
            example=f"nodeSelector: {{kubernetes.io/hostname: {node}}}",
        )  # fmt: skip
    if scheduler not in {None, "", _DEFAULT_SCHEDULER, names.SCHEDULER_NAME}:
        raise RequestError(
            str(scheduler), field="schedulerName", problem=says.OUR_SCHEDULER(),
            example="nothing there",
        )  # fmt: skip
    if wants_runtime and runtime not in {None, "", names.RUNTIME_CLASS}:
        raise RequestError(
            str(runtime), field="runtimeClassName", problem=says.OUR_RUNTIME(),
            example="nothing there",
        )  # fmt: skip


def _typed(pod: Manifest) -> Pod:
    return convert(pod, as_type=Pod, strict=False)


def _name(pod: Manifest) -> str:
    metadata = pod.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "")
