"""The pod spec that gives containers their devices, and keeps all other containers from any.

A container sees devices through its environment, which reads the annotations of the Binding. A container without
devices gets `void`, since its image may say `all`. To complete a spec twice changes nothing.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

from dovetail import names
from dovetail.engine.model.claims import Ask
from dovetail.formats.quantities import QuantityError, whole
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, is_mig
from dovetail.pods.containers import Parts, cuda_numbers
from dovetail.pods.demand import resources_of
from dovetail.pods.node_affinity import tolerating

Manifest = dict[str, Any]

EPHEMERAL: Final = "ephemeralContainers"
# Kinds of containers in the order of their indices. Ephemeral containers cannot request resources.
KINDS: Final = ("containers", "initContainers", EPHEMERAL)
OWN_VARIABLES: Final = frozenset(
    {
        names.ENV_VISIBLE_DEVICES,
        names.ENV_MPS_PERCENTAGE,
        names.ENV_MPS_MEMORY,
        names.ENV_CUDA_DEVICES,
        names.ENV_GPU_UUIDS,
        *names.ENV_OTHER_VISIBLE_DEVICES,
    }
)
# Kubelet appends the pod's own variables to those of a device plugin: one of these would override the plugin's.
_GRANTING: Final = frozenset({names.ENV_VISIBLE_DEVICES, *names.ENV_OTHER_VISIBLE_DEVICES})


def completed(
    spec: Manifest, *, asked: Parts, by_plugin: Collection[str] = DEFAULT_VENDORS.nvidia_resources
) -> Manifest:
    """A copy of `spec` with the scheduler, runtime class, resources and environment of `asked`.

    A spec without requests keeps its scheduler, its runtime class and its tolerations. A container that requests a
    positive amount of a resource of `by_plugin`, or a MIG device, gets its devices from the plugin's own variable and
    has none of ours; kube-scheduler places it only where a plugin advertises the resource.
    """
    result = dict(spec)
    if asked.parts:
        resources = {name for part in asked.parts for name in DEFAULT_VENDORS.taints_for(part.request)}
        result = tolerating(result, resources=sorted(resources))
        result |= {"schedulerName": names.SCHEDULER_NAME, "runtimeClassName": names.RUNTIME_CLASS}
    index = 0
    for kind in KINDS:
        if containers := spec.get(kind):
            result[kind] = [
                _container(each, index=index + at, asked=asked, by_plugin=by_plugin)
                for at, each in enumerate(containers)
            ]
            index += len(containers)
    return result


def visible_devices(index: int) -> Manifest:
    """The variable that shows a container the devices of container `index`."""
    return _from_annotation(names.ENV_VISIBLE_DEVICES, annotation=names.VISIBLE_DEVICES, index=index)


def _container(container: Manifest, *, index: int, asked: Parts, by_plugin: Collection[str]) -> Manifest:
    request, source = asked.request(index), asked.source(index)
    if request is None or source is None:
        if _asks_a_plugin(container, by_plugin=by_plugin):
            return _without_grants(container)
        none = {"name": names.ENV_VISIBLE_DEVICES, "value": names.NO_DEVICES}
        return _with_environment(_with_resources(container, amounts={}), ours=[none])
    environment = [
        visible_devices(source),
        _from_annotation(names.ENV_GPU_UUIDS, annotation=names.VISIBLE_DEVICES, index=source),
    ]
    if not request.mig:
        # CUDA numbers GPUs; of MIG instances a process sees the first one, or the one that it names by UUID.
        environment.append({"name": names.ENV_CUDA_DEVICES, "value": cuda_numbers(request.count)})
    if asked.mode != "Exclusive":
        environment.append(_from_annotation(names.ENV_MPS_PERCENTAGE, annotation=names.MPS_PERCENTAGE, index=source))
        environment.append(_from_annotation(names.ENV_MPS_MEMORY, annotation=names.MPS_MEMORY, index=source))
    return _with_environment(
        _with_resources(container, amounts=resources_of(Ask(gpu=request, mode=asked.mode))), ours=environment
    )


def _from_annotation(variable: str, *, annotation: str, index: int) -> Manifest:
    path = f"metadata.annotations['{names.per_container(annotation, index=index)}']"
    # The API server adds the version; with it, completion of a stored spec changes nothing.
    return {"name": variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _asks_a_plugin(container: Manifest, *, by_plugin: Collection[str]) -> bool:
    # Kubelet allocates devices by limits, and skips an amount of 0.
    limits = (container.get("resources") or {}).get("limits") or {}
    return any((name in by_plugin or is_mig(name)) and _is_positive(amount) for name, amount in limits.items())


def _is_positive(amount: Any) -> bool:
    try:
        return whole(amount) > 0
    except QuantityError:
        return False


def _without_grants(container: Manifest) -> Manifest:
    env = container.get("env") or ()
    kept = [entry for entry in env if entry.get("name") not in _GRANTING]
    return container if len(kept) == len(env) else {**container, "env": kept}


def _with_environment(container: Manifest, *, ours: list[Manifest]) -> Manifest:
    # Ours first, so that the user's own variables can refer to them as $(NAME).
    theirs = [entry for entry in container.get("env") or () if entry.get("name") not in OWN_VARIABLES]
    return {**container, "env": [*ours, *theirs]}


def _with_resources(container: Manifest, *, amounts: Mapping[str, str]) -> Manifest:
    resources = dict(container.get("resources") or {})
    for part in ("requests", "limits"):
        theirs = {name: value for name, value in (resources.get(part) or {}).items() if not _takes(name, value=value)}
        resources[part] = {**theirs, **amounts}
    return {**container, "resources": {name: value for name, value in resources.items() if value}}


def _takes(name: str, *, value: Any) -> bool:
    """Whether it requests a resource of ours.

    The amount 0 requests none but lets Dovetail place the pod.
    """
    return name in names.MANAGED_RESOURCES and str(value) != "0"
