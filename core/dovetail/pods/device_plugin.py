"""Requests to a vendor's device plugin, by themselves or as an alternative to nodes that Dovetail manages. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod, PodSpec
from dovetail.api.reasons import start as says
from dovetail.engine.model.claims import Ask
from dovetail.formats.quantities import Quantity, QuantityError, whole
from dovetail.gpu import mig, models
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, MANAGED_VENDOR, Vendors, is_mig, is_nvidias
from dovetail.gpu.request import WHOLE_MILLI, GPURequest, RequestError, parse
from dovetail.pods.containers import Parts, cuda_numbers, every_container, managed_amounts, mode_of, peak
from dovetail.pods.errors import quantity_error

# Beyond every machine; the columns of the ledger could not hold more.
_MOST: Final = 1 << 20


def vendor_devices(spec: PodSpec, *, vendors: Vendors) -> dict[str, int]:
    """The number of vendors' devices that the pod holds at one time, by resource.

    kubelet counts the same.
    """
    mentioned = {name for each in every_container(spec) for name in (*each.resources.requests, *each.resources.limits)}
    # Of nearly every pod: each pod that is seen comes here.
    if mentioned.isdisjoint(vendors.resources):
        return {}
    named = [name for name in vendors.resources if name in mentioned]
    amounts = {name: min(_MOST, peak(spec, resource=name, read=whole)) for name in named}
    return {name: amount for name, amount in amounts.items() if amount}


def mig_devices(spec: PodSpec) -> dict[str, int]:
    """The number of MIG devices of NVIDIA's plugin that the pod holds at one time, by resource."""
    named = {name for each in every_container(spec) for name in each.resources.limits if is_mig(name)}
    if not named:
        return {}
    amounts = {name: min(_MOST, peak(spec, resource=name, read=whole)) for name in sorted(named)}
    return {name: amount for name, amount in amounts.items() if amount}


def refuse_no_devices(spec: PodSpec, *, vendors: Vendors) -> None:
    """Refuse a container that names a vendor's device and requests 0 of it.

    Raises `RequestError`.

    It would look as if the plugin set its devices, but kubelet does not ask a plugin for 0. A pod without devices
    leaves the resource out.
    """
    for container in every_container(spec):
        for name, amount in container.resources.limits.items():
            if (is_nvidias(name) or name in vendors.resources) and _is_none(amount, spec=spec):
                raise RequestError(
                    container.name, field="container", problem=says.GIVES_NONE(resource=name, amount=str(amount)),
                    example=f"{name}: 1, or leave the resource out",
                )  # fmt: skip


def _is_none(amount: Quantity, *, spec: PodSpec) -> bool:
    try:
        return whole(amount) <= 0
    except QuantityError as error:
        raise quantity_error(spec, text=error.text) from error


def vendor_request(pod: Pod, *, vendors: Vendors) -> tuple[str, GPURequest] | None:
    """The vendor's resource that the pod requests, with the request; None for a pod without one.

    The annotation `dovetail.dev/gpu` may add a model: `2(V100)`. Raises `RequestError` when it contradicts the
    resources, or requests something that a vendor's plugin does not have.
    """
    asked = vendor_devices(pod.spec, vendors=vendors)
    if not asked:
        return None
    (resource, count), *others = asked.items()
    if others or any(managed_amounts(container) for container in every_container(pod.spec)):
        mixed = [*asked, *(name for each in every_container(pod.spec) for name in managed_amounts(each))]
        raise RequestError(
            " and ".join(dict.fromkeys(mixed)), field="resources", problem=says.ONE_KIND(),
            example=f"{resource}: {count} alone",
        )  # fmt: skip
    request = _annotated(pod.metadata.annotations, count=count)
    _agree(request, resource=resource, count=count, vendors=vendors)
    return resource, request


def instance_request(pod: Pod) -> tuple[str, GPURequest] | None:
    """The resource of the MIG instances that the pod requests of NVIDIA's plugin, with the request; None without.

    The annotation `dovetail.dev/gpu` may add a model: `1g.10gb(H100)`. Raises `RequestError` when it contradicts the
    resources, or when the pod requests devices of another kind too.
    """
    asked = {name: count for name, count in mig_devices(pod.spec).items() if mig.profile_of(name)}
    if not asked:
        return None
    (resource, count), *others = asked.items()
    ours = [name for each in every_container(pod.spec) for name in managed_amounts(each)]
    if others or ours:
        raise RequestError(
            " and ".join(dict.fromkeys([*asked, *ours])), field="resources", problem=says.ONE_KIND(),
            example=f"{resource}: {count} alone",
        )  # fmt: skip
    meant = GPURequest(count=count, mig=mig.profile_of(resource) or "")
    text = pod.metadata.annotations.get(names.REQUEST)
    request = meant if text is None else parse(text)
    if replace(request, models=()) != meant:
        raise RequestError(
            str(request), problem=says.CONTAINERS_ASK(resource=resource, count=count), example=str(meant)
        )
    return resource, request


def plugin_for(pod: Pod, *, asked: Parts, vendors: Vendors) -> str:
    """The vendor's resource for a pod that has only annotations; empty for managed nodes.

    The preferred kind of node decides, unless only one kind can meet the request. Raises `RequestError` if neither can.
    """
    says_itself = any(managed_amounts(container) for container in every_container(pod.spec))
    # Annotations of single containers need managed nodes: kubelet counts for the whole pod.
    if (
        says_itself
        or names.REQUEST not in pod.metadata.annotations
        or len(asked.parts) != 1
        or asked.lent
        or asked.parts[0].index >= len(pod.spec.containers)
    ):
        return ""
    way, *_ = asks_by_kind(Ask(gpu=asked.parts[0].request, mode=asked.mode), vendors=vendors)
    return way.resource


def with_devices(container: Mapping[str, Any], *, amounts: Mapping[str, str]) -> dict[str, Any]:
    """A container (as in JSON) that requests devices of a vendor's plugin.

    The plugin sets its visible devices. A variable of the user would override the plugin's, so this removes it, and
    also requests for managed devices.
    """
    resources = dict(container.get("resources") or {})
    for part in ("requests", "limits"):
        theirs = {k: v for k, v in (resources.get(part) or {}).items() if k not in names.MANAGED_RESOURCES}
        resources[part] = {**theirs, **amounts}
    ours = {names.ENV_VISIBLE_DEVICES, *names.ENV_OTHER_VISIBLE_DEVICES}
    env = [entry for entry in container.get("env") or () if entry.get("name") not in ours]
    return {**container, "resources": resources, "env": env}


def with_cuda_numbers(container: Mapping[str, Any], *, count: int) -> dict[str, Any]:
    """The container with CUDA_VISIBLE_DEVICES `0,1,…` for `count` devices of NVIDIA's plugin.

    CUDA counts in the container what the plugin shows there, so these are all of them, whichever devices kubelet
    chooses. The UUIDs are not known before: kubelet chooses when the pod arrives, and a container's environment is
    fixed by then. A variable of the user stays.
    """
    env = container.get("env") or []
    if any(entry.get("name") == names.ENV_CUDA_DEVICES for entry in env):
        return dict(container)
    return {**container, "env": [{"name": names.ENV_CUDA_DEVICES, "value": cuda_numbers(count)}, *env]}


def _annotated(annotations: Mapping[str, str], *, count: int) -> GPURequest:
    text = annotations.get(names.REQUEST)
    request = GPURequest(count=count) if text is None else parse(text)
    if mode_of(annotations.get(names.MODE), request=request) != "Exclusive" or request.device_index is not None:
        raise RequestError(
            str(request), problem=says.PLUGIN_GIVES_WHOLE(),
            example=str(
                replace(
                    request, count=count, share_milli=WHOLE_MILLI, memory_mib=None, memory_percent=None, vendor=None,
                    device_index=None, device_node=None,
                )
            ),
        )  # fmt: skip
    return request


def _agree(request: GPURequest, *, resource: str, count: int, vendors: Vendors) -> None:
    meant = replace(request, count=count, vendor=None)
    if request.count != count:
        raise RequestError(
            str(request), problem=says.CONTAINERS_ASK(resource=resource, count=count), example=str(meant)
        )
    if request.vendor is not None and request.vendor != vendors.vendor_of(resource):
        raise RequestError(
            str(request), problem=says.OTHER_VENDOR(resource=resource, vendor=request.vendor),
            example=str(meant),
        )  # fmt: skip


def asks_by_kind(ask: Ask, *, vendors: Vendors = DEFAULT_VENDORS) -> tuple[Ask, ...]:
    """The alternatives for a job's request: managed nodes and a vendor's resource.

    The preferred one comes first. Raises `RequestError` for features of managed nodes with a vendor whose devices are
    never managed.
    """
    gpu = ask.gpu
    if gpu is None:
        return (ask,)
    managed = (ask,) if _may_be_managed(gpu) else ()
    feature = only_managed(ask)
    if feature:
        if not managed:
            whole = replace(gpu, share_milli=WHOLE_MILLI, memory_mib=None, memory_percent=None)
            anywhere = replace(whole, device_index=None, device_node=None)
            raise RequestError(str(gpu), problem=says.NEEDS_MANAGED(feature=feature), example=str(anywhere))
        return managed
    by_vendor = tuple(replace(ask, resource=resource) for resource in vendors.resources_for(gpu))
    return (*managed, *by_vendor) if vendors.first == "Managed" else (*by_vendor, *managed)


def only_managed(ask: Ask) -> str:
    """The part of the request that only managed nodes can meet.

    Empty when a vendor's plugin can meet all of it.
    """
    gpu = ask.gpu
    if gpu is not None and gpu.mig:
        return ""
    if gpu is not None and (ask.mode != "Exclusive" or not gpu.whole):
        return f"a share (mode {ask.mode})" if gpu.whole else "a share"
    return "" if gpu is None or gpu.device_index is None else f"the device {gpu.device}"


def _may_be_managed(request: GPURequest) -> bool:
    if request.vendor is not None:
        return request.vendor == MANAGED_VENDOR
    return not request.models or any(models.vendor_of(name) in {None, MANAGED_VENDOR} for name in request.models)
