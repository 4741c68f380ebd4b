"""Pods that ask for GPUs in other systems' words (`nvidia.com/gpu: 2`) as pods that ask Dovetail for them. Pure.

Programs write these words in manifests that people do not edit. The webhook translates them in namespaces that
opt in, before it completes the pod as one that was annotated by hand.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.reasons import start as says
from dovetail.engine.model.claims import Ask
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.request import RequestError
from dovetail.pods.containers import mode_of
from dovetail.pods.demand import resources_of
from dovetail.pods.injection import Manifest
from dovetail.pods.node_affinity import tolerating
from dovetail.pods.translation.annotations import SCHEDULERS, fraction_of, of_kind, policy_in
from dovetail.pods.translation.resources import Asked, asked_of, is_foreign

# What LimitRanger says of the amounts that it filled in: "cpu, nvidia.com/gpu request for init container setup".
_LIMIT_RANGER: Final = "kubernetes.io/limit-ranger"
# A name begins with no space: else each space of a long text would be tried as its beginning.
_FILLED_IN: Final = re.compile(r"(?:^|[:;])\s*([^:;\s][^:;]*?) (?:request|limit) for (?:init )?container ([^;]+)")


def translated(pod: Manifest, *, typed: Pod, vendors: Vendors) -> Manifest:
    """The pod with its GPUs requested of Dovetail; the same pod if it asks for none in other systems' words.

    `typed` is `pod`, decoded. A pod with a request to Dovetail of its own keeps it, and the resources that it wrote. In
    both cases an amount that a LimitRange filled in is no request, as long as there is another one: a maximum of a
    LimitRange is also the default of every container. Raises `RequestError`.
    """
    annotations = typed.metadata.annotations
    filled_in = _filled_in(annotations, resources=vendors.resources)
    if any(key == names.REQUEST or key.startswith(f"{names.REQUEST}.") for key in annotations):
        counted = asked_of(typed, vendors=vendors)
        dropped: dict[str, dict[str, str]] = {
            name: {} for name, each in counted.items() if (name, each.taint) in filled_in
        }
        return _with_amounts(pod, amounts=dropped, vendors=vendors) if dropped else pod
    asked = _asked(typed, vendors=vendors)
    written = {name: each for name, each in asked.items() if (name, each.taint) not in filled_in}
    if not (meant := written or asked):
        return pod
    return _asking_dovetail(pod, asked=asked, meant=meant, vendors=vendors)


def remedy(pod: Pod, *, vendors: Vendors) -> str | None:
    """How a pod that asks for GPUs in other systems' words gets them from Dovetail, as a sentence; None for others."""
    try:
        asked = _asked(pod, vendors=vendors)
    except RequestError as error:
        return f"It asks for GPUs in words of another system, and Dovetail would refuse them: {error}"
    if not asked:
        return None
    name, first = next(iter(asked.items()))
    mode = f' and {names.MODE}: "TimeShared"' if first.in_turns else ""
    label = f"kubectl label namespace {pod.metadata.namespace} {names.TRANSLATE}=true"
    return (
        f"It asks {first.words}, which only nodes of another system have. For GPUs that Dovetail manages, label the "
        f"namespace ({label}) and create the pod again, or replace this by the annotation "
        f'{names.REQUEST}.{name}: "{replace(first.request, vendor=None)}"{mode}'
    )


def _asked(pod: Pod, *, vendors: Vendors) -> dict[str, Asked]:
    """What each container asks for in other systems' words, by container. Raises `RequestError`."""
    asked, annotations = asked_of(pod, vendors=vendors), pod.metadata.annotations
    if (fraction := fraction_of(pod)) is not None:
        container, part = fraction
        if asked:
            whole = next(iter(asked.values())).words
            raise RequestError(
                f"{whole} and {part.words}", field="pod", problem=says.ONE_KIND(), example=part.words,
            )  # fmt: skip
        return {container: part}
    asked = {
        name: replace(each, request=of_kind(each.request, annotations=annotations)) for name, each in asked.items()
    }
    if len({each.in_turns for each in asked.values()}) > 1:
        words = "; ".join(each.words for each in asked.values())
        raise RequestError(
            words, field="resources", problem=says.COMPUTE_OF_ALL(),
            example="nvidia.com/gpucores: 30 in each of them",
        )  # fmt: skip
    return asked


def _asking_dovetail(
    pod: Manifest, *, asked: Mapping[str, Asked], meant: Mapping[str, Asked], vendors: Vendors
) -> Manifest:
    """The pod with the requests that are `meant`, and without all that is `asked`."""
    annotations = pod["metadata"].get("annotations") or {}
    said = {f"{names.REQUEST}.{name}": str(each.request) for name, each in meant.items()}
    if len(said) == 1:
        # The queue takes requests of whole pods; the container is the one that has the resources.
        said = {names.REQUEST: next(iter(said.values()))}
    if any(each.in_turns for each in meant.values()):
        said[names.MODE] = annotations.get(names.MODE, "TimeShared")
    if (policy := policy_in(annotations)) is not None:
        said[names.POLICY] = annotations.get(names.POLICY, policy)
    mode = said.get(names.MODE, annotations.get(names.MODE))
    amounts = {
        name: resources_of(Ask(gpu=meant[name].request, mode=mode_of(mode, request=meant[name].request)))
        if name in meant
        else {}
        for name in asked
    }
    spec = _with_amounts(pod, amounts=amounts, vendors=vendors)["spec"]
    if spec.get("schedulerName") in SCHEDULERS:
        spec = {**spec, "schedulerName": names.SCHEDULER_NAME}
    return {
        "metadata": {**pod["metadata"], "annotations": {**annotations, **said}},
        "spec": tolerating(spec, resources=sorted({each.taint for each in meant.values()})),
    }


def _filled_in(annotations: Mapping[str, str], *, resources: tuple[str, ...]) -> set[tuple[str, str]]:
    """The containers, with the vendor's resource, whose amounts a LimitRange filled in."""
    return {
        (container, resource)
        for said, container in _FILLED_IN.findall(annotations.get(_LIMIT_RANGER, ""))
        for resource in map(str.strip, said.split(","))
        if resource in resources
    }


def _with_amounts(pod: Manifest, *, amounts: Mapping[str, Mapping[str, str]], vendors: Vendors) -> Manifest:
    """The pod with these amounts in its containers, by name, instead of other systems' resources."""
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
        others = {
            name: value for name, value in (resources.get(part) or {}).items() if not is_foreign(name, vendors=vendors)
        }
        resources[part] = {**others, **amounts}
    return {**container, "resources": {part: value for part, value in resources.items() if value}}
