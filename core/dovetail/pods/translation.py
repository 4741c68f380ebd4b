"""Pods that ask a vendor's whole GPUs (`nvidia.com/gpu: 2`) as pods that ask Dovetail for them. Pure.

Programs write these resources in manifests that people do not edit. The webhook translates them in namespaces that
opt in, before it completes the pod as one that was annotated by hand.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Container, Pod
from dovetail.engine.model.claims import Ask
from dovetail.formats.quantities import QuantityError, milli, whole
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import MAX_COUNT, WHOLE_MILLI, GPURequest, RequestError
from dovetail.pods.containers import every_container, requested
from dovetail.pods.demand import resources_of
from dovetail.pods.errors import quantity_error
from dovetail.pods.injection import Manifest
from dovetail.pods.node_affinity import tolerating

# What LimitRanger says of the amounts that it filled in: "cpu, nvidia.com/gpu request for init container setup".
_LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
_FILLED_IN: Final = re.compile(r"(?:^|[:;])\s*([^:;]+?) (?:request|limit) for (?:init )?container ([^;]+)")


def translated(pod: Manifest, *, typed: Pod, vendors: Vendors) -> Manifest:
    """The pod with its whole GPUs requested of Dovetail; the same pod if it asks a vendor for none.

    `typed` is `pod`, decoded. A pod with a request to Dovetail of its own keeps it, and the vendors' resources that it
    wrote. In both cases an amount that a LimitRange filled in is no request, as long as there is another one: a maximum
    of a LimitRange is also the default of every container. Raises `RequestError`.
    """
    annotations = typed.metadata.annotations
    asked = _asked(typed, vendors=vendors)
    filled_in = _filled_in(annotations, resources=vendors.resources)
    written = {name: each for name, each in asked.items() if (name, each[0]) not in filled_in}
    if any(key == names.REQUEST or key.startswith(f"{names.REQUEST}.") for key in annotations):
        dropped: dict[str, dict[str, str]] = {name: {} for name in asked.keys() - written.keys()}
        return _with_amounts(pod, amounts=dropped, vendors=vendors) if dropped else pod
    if not (meant := written or asked):
        return pod
    return _asking_dovetail(pod, asked=asked, meant=meant, vendors=vendors)


def _asking_dovetail(
    pod: Manifest,
    *,
    asked: Mapping[str, tuple[str, int]],
    meant: Mapping[str, tuple[str, int]],
    vendors: Vendors,
) -> Manifest:
    """The pod with the requests that are `meant`, and without all that is `asked`."""
    requests = {
        name: GPURequest(count=count, vendor=vendors.vendor_of(resource)) for name, (resource, count) in meant.items()
    }
    amounts = {name: resources_of(Ask(gpu=requests[name])) if name in requests else {} for name in asked}
    said = {f"{names.REQUEST}.{name}": str(request) for name, request in requests.items()}
    if len(said) == 1:
        # The queue takes requests of whole pods; the container is the one that has the resources.
        said = {names.REQUEST: next(iter(said.values()))}
    spec = _with_amounts(pod, amounts=amounts, vendors=vendors)["spec"]
    return {
        "metadata": {**pod["metadata"], "annotations": {**(pod["metadata"].get("annotations") or {}), **said}},
        "spec": tolerating(spec, resources=sorted({resource for resource, _ in meant.values()})),
    }


def remedy(pod: Pod, *, vendors: Vendors) -> str | None:
    """How a pod that asks a vendor's whole GPUs gets them from Dovetail, as a sentence; None for any other pod."""
    try:
        asked = _asked(pod, vendors=vendors)
    except RequestError:
        return None
    if not asked:
        return None
    name, (resource, count) = next(iter(asked.items()))
    return (
        f"It asks {resource}: {count}, which only nodes with that vendor's device plugin have. For GPUs that Dovetail "
        f"manages, label the namespace (kubectl label namespace {pod.metadata.namespace} {names.TRANSLATE}=true) and "
        f'create the pod again, or replace the resource by the annotation {names.REQUEST}.{name}: "{count}"'
    )


def _asked(pod: Pod, *, vendors: Vendors) -> dict[str, tuple[str, int]]:
    """The vendor's resource that each container requests, with the amount, by container. Raises `RequestError`."""
    asked: dict[str, tuple[str, int]] = {}
    for container in every_container(pod.spec):
        amounts = _amounts(container, pod=pod, vendors=vendors)
        if len(amounts) > 1:
            raise RequestError(
                " and ".join(amounts), field=f"container {container.name}", problem="a pod's GPUs are of one kind",
                example=f"{next(iter(amounts))} alone",
            )  # fmt: skip
        for resource, amount in amounts.items():
            asked[container.name] = resource, amount
    if len(kinds := {resource for resource, _ in asked.values()}) > 1:
        raise RequestError(
            " and ".join(sorted(kinds)), field="resources", problem="a pod's GPUs are of one kind",
            example=f"{min(kinds)} alone",
        )  # fmt: skip
    return asked


def _amounts(container: Container, *, pod: Pod, vendors: Vendors) -> dict[str, int]:
    amounts = {}
    for resource in vendors.resources:
        text = requested(container, resource=resource)
        try:
            amount = whole(text)
        except QuantityError as error:
            raise quantity_error(pod.spec, text=error.text) from error
        if amount > MAX_COUNT or milli(text) != WHOLE_MILLI * amount:
            raise RequestError(
                str(text), field=f"{resource} of container {container.name}",
                problem=f"must be a whole number of GPUs, {MAX_COUNT} at most", example="2",
            )  # fmt: skip
        if amount > 0:
            amounts[resource] = amount
    return amounts


def _filled_in(annotations: Mapping[str, str], *, resources: tuple[str, ...]) -> set[tuple[str, str]]:
    """The containers, with the vendor's resource, whose amounts a LimitRange filled in."""
    return {
        (container, resource)
        for said, container in _FILLED_IN.findall(annotations.get(_LIMIT_RANGER, ""))
        for resource in map(str.strip, said.split(","))
        if resource in resources
    }


def _with_amounts(pod: Manifest, *, amounts: Mapping[str, Mapping[str, str]], vendors: Vendors) -> Manifest:
    """The pod with these amounts in its containers, by name, instead of the vendors' resources."""
    kinds = {
        kind: [
            _instead(each, amounts=amounts[each["name"]], vendors=vendors) if each.get("name") in amounts else each
            for each in containers
        ]
        for kind in ("containers", "initContainers")
        if (containers := pod["spec"].get(kind))
    }
    return {**pod, "spec": {**pod["spec"], **kinds}}


def _instead(container: Mapping[str, Any], *, amounts: Mapping[str, str], vendors: Vendors) -> Manifest:
    resources = dict(container.get("resources") or {})
    for part in ("requests", "limits"):
        others = {name: value for name, value in (resources.get(part) or {}).items() if name not in vendors.resources}
        resources[part] = {**others, **amounts}
    return {**container, "resources": {part: value for part, value in resources.items() if value}}
