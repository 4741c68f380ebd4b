"""The requests of a pod's containers, and what they take together of a node.

Annotations carry them: `dovetail.dev/gpu` for the pod's only container, or the one that
`kubectl.kubernetes.io/default-container` names; `dovetail.dev/gpu.<name>` for the container or sidecar of that name.
Without annotations the resources of the containers count. All devices of a pod have one mode. Each container has its
own devices, with one exception: an init container ends before the others start, so it may use the devices of a
container with the same request.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from dovetail import names
from dovetail.api.builtin import Container, Pod, PodSpec
from dovetail.api.gpujob import Mode
from dovetail.api.reasons import start as says
from dovetail.formats.quantities import Quantity, QuantityError, mebibytes, milli, whole
from dovetail.gpu.memory import HOST_MARGIN_MIB
from dovetail.gpu.request import MAX_COUNT, MAX_MEMORY_MIB, WHOLE_MILLI, GPURequest, RequestError, parse

MODES: Final[tuple[Mode, ...]] = get_args(Mode)
_NAMED: Final = f"{names.REQUEST}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A container with its own devices.

    `index` counts the pod's containers, then its init containers.
    """

    index: int
    container: str
    request: GPURequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The requests of a pod's containers, the largest first.

    `lent` maps the index of an init container to the index of the part whose devices it uses.
    """

    mode: Mode = "Exclusive"
    parts: tuple[Part, ...] = ()
    lent: Mapping[int, int] = field(default_factory=dict)

    def source(self, index: int) -> int | None:
        """The index under which container `index` finds its devices in the annotations.

        None if it has none.
        """
        if any(part.index == index for part in self.parts):
            return index
        return self.lent.get(index)

    def request(self, index: int) -> GPURequest | None:
        """The request of container `index`; None if it has no devices."""
        source = self.source(index)
        return next((part.request for part in self.parts if part.index == source), None)


def every_container(spec: PodSpec) -> list[Container]:
    """Containers, then init containers: the order of indices."""
    return [*spec.containers, *spec.init_containers]


def parts_of(pod: Pod) -> Parts:
    """The request of each container of the pod. Raises `RequestError`."""
    requests = _requests(pod)
    first_init = len(pod.spec.containers)
    containers = every_container(pod.spec)
    own: dict[int, GPURequest] = {}
    brief: dict[int, GPURequest] = {}
    for index, request in requests.items():
        (brief if _is_brief(containers[index], index=index, first_init=first_init) else own)[index] = request
    parts = [Part(index=index, container=containers[index].name, request=request) for index, request in own.items()]
    parts.sort(key=lambda part: (-part.request.total_milli, part.index))
    lent = {index: _lender(parts, request=request, borrower=containers[index].name) for index, request in brief.items()}
    return Parts(mode=_mode(pod, parts=parts), parts=tuple(parts), lent=lent)


def requested(container: Container, *, resource: str) -> Quantity:
    """The amount of a resource that a container requests.

    As in the API server, a limit alone is the request.
    """
    resources = container.resources
    return resources.requests.get(resource) or resources.limits.get(resource) or 0


def managed_amounts(container: Container) -> dict[str, int]:
    """The container's requests of our resources, without those that it does not name."""
    amounts = {name: whole(requested(container, resource=name)) for name in names.MANAGED_RESOURCES}
    return {name: amount for name, amount in amounts.items() if amount}


def requests_dovetail(container: Container) -> bool:
    """Whether a container names a resource of ours, even with the amount 0."""
    said = container.resources.requests.keys() | container.resources.limits.keys()
    return not said.isdisjoint(names.MANAGED_RESOURCES)


def mode_of(text: str | None, *, request: GPURequest) -> Mode:
    """The given mode, or the default mode of the request. Raises `RequestError`."""
    if request.mig and text not in {None, "Exclusive"}:
        raise RequestError(text or "", field="mode", problem=says.ONE_TENANT(), example="Exclusive")
    if text is None:
        return "Exclusive" if request.whole and not request.names_memory else "Fractional"
    if text not in MODES:
        raise RequestError(text, field="mode", problem=says.NO_SUCH_WORD(kind="mode"), example=", ".join(MODES))
    mode: Mode = text
    if mode == "Exclusive" and not request.whole:
        raise RequestError(str(request), problem=says.WHOLE_EXCLUSIVELY(), example="Fractional")
    return mode


def cuda_numbers(count: int) -> str:
    """The value of CUDA_VISIBLE_DEVICES for a container that sees `count` devices, which CUDA counts from 0."""
    return ",".join(map(str, range(count)))


def _requests(pod: Pod) -> dict[int, GPURequest]:
    """The request of each container that has one, by index."""
    texts = _texts(pod)
    requests = {}
    for index, container in enumerate(every_container(pod.spec)):
        if index in texts:
            requests[index] = parse(texts[index])
            continue
        amounts = managed_amounts(container)
        if amounts and texts:
            raise RequestError(
                container.name, field="container", problem=says.UNANNOTATED(),
                example=f"{_NAMED}{container.name}: '0.5'",
            )  # fmt: skip
        if amounts:
            requests[index] = _request_from(amounts)
    return requests


def _texts(pod: Pod) -> dict[int, str]:
    """The request texts of the annotations, by container."""
    containers = every_container(pod.spec)
    known = {container.name: index for index, container in enumerate(containers)}
    annotations = pod.metadata.annotations
    texts = {}
    for annotation, text in annotations.items():
        if annotation.startswith(_NAMED):
            name = annotation.removeprefix(_NAMED)
            if name not in known:
                raise RequestError(
                    name, field=annotation, problem=says.NO_SUCH_CONTAINER(name=name), example=", ".join(known)
                )
            texts[known[name]] = text
    if names.REQUEST in annotations:
        texts[_target(pod, named=texts)] = annotations[names.REQUEST]
    return texts


def _target(pod: Pod, *, named: Mapping[int, str]) -> int:
    """The container of the pod's own annotation.

    The one that already has its resources, so that a container that a webhook later inserts before it does not take its
    devices; else the only one without an annotation of its own, or the pod's default container. None of several is
    chosen silently: the first may be a proxy, or the waiter of a workflow. Raises `RequestError`.
    """
    containers, text = pod.spec.containers, pod.metadata.annotations[names.REQUEST]
    if not containers:
        raise RequestError(
            text, field=names.REQUEST, problem=says.WITHOUT_CONTAINER(), example="a pod with one",
        )  # fmt: skip
    free = {index: container.name for index, container in enumerate(containers) if index not in named}
    if not free:
        raise RequestError(
            text, field=names.REQUEST, problem=says.ALL_ANNOTATED(),
            example=f"{_NAMED}{containers[0].name} alone",
        )  # fmt: skip
    asking = [index for index in free if managed_amounts(containers[index])]
    default = pod.metadata.annotations.get(names.DEFAULT_CONTAINER)
    meant = asking or [index for index, name in free.items() if len(free) == 1 or name == default]
    if not meant:
        raise RequestError(
            text, field=names.REQUEST,
            problem=says.WHICH_CONTAINER(names=", ".join(free.values())),
            example=" or ".join(f"{_NAMED}{name}" for name in [*free.values()][:3]) + " instead",
        )  # fmt: skip
    return meant[0]


def _is_brief(container: Container, *, index: int, first_init: int) -> bool:
    """Whether it is an init container that ends before the others start; a sidecar is not."""
    return index >= first_init and container.restart_policy != "Always"


def _lender(parts: list[Part], *, request: GPURequest, borrower: str) -> int:
    for part in sorted(parts, key=lambda part: part.index):
        if part.request == request:
            return part.index
    asked = " and ".join(str(part.request) for part in parts) or "nothing"
    raise RequestError(
        str(request), field=f"init container {borrower}",
        problem=says.OTHERS_ASK(asked=asked),
        example=str(parts[0].request) if parts else "the request on a container",
    )  # fmt: skip


def _mode(pod: Pod, *, parts: list[Part]) -> Mode:
    said = pod.metadata.annotations.get(names.MODE)
    modes = {part.container: mode_of(said, request=part.request) for part in parts}
    if len(set(modes.values())) > 1:
        asked = ", ".join(f"{part.container} {part.request}" for part in parts)
        raise RequestError(
            asked, field=names.REQUEST, problem=says.ONE_MODE(),
            example=f"{names.MODE}: Fractional",
        )  # fmt: skip
    return next(iter(modes.values()), "Exclusive")


def _request_from(asked: Mapping[str, int]) -> GPURequest:
    """The request of bare resources: whole devices in thousands, or one share."""
    total = asked.get(names.GPU_MILLI, WHOLE_MILLI * asked.get(names.GPU_TURN, 0))
    memory_mib = asked.get(names.GPU_MEMORY_MIB)
    if memory_mib is not None and memory_mib > MAX_MEMORY_MIB:
        raise RequestError(
            str(memory_mib), problem=says.AT_MOST(resource=names.GPU_MEMORY_MIB, most=MAX_MEMORY_MIB), example="8192"
        )
    if total < WHOLE_MILLI:
        return GPURequest(share_milli=total, memory_mib=memory_mib) if total else _no_share(asked)
    count, rest = divmod(total, WHOLE_MILLI)
    if count > MAX_COUNT:
        raise RequestError(str(count), problem=says.GPUS_AT_MOST(most=MAX_COUNT), example="2")
    if rest:
        raise RequestError(
            str(total),
            problem=says.WHOLE_THOUSANDS(resource=names.GPU_MILLI, annotation=names.REQUEST), example="2000",
        )  # fmt: skip
    return GPURequest(count=count, memory_mib=None if memory_mib is None else memory_mib // count)


def _no_share(asked: Mapping[str, int]) -> GPURequest:
    raise RequestError(
        str(asked[names.GPU_MEMORY_MIB]),
        problem=says.NEEDS_EITHER(resource=names.GPU_MEMORY_MIB, one=names.GPU_MILLI, other=names.GPU_TURN),
        example="500",
    )


def host_room_mib(spec: PodSpec, *, container: int) -> int:
    """The device memory in MiB that fits a container's memory request.

    0 if there is no such container.

    Its limit is at least its request. Only the node can see what the program itself uses of it.
    """
    containers = every_container(spec)
    if not 0 <= container < len(containers):
        return 0
    asked = mebibytes(requested(containers[container], resource="memory"), rounding="down")
    return max(0, asked - HOST_MARGIN_MIB)


def peak(spec: PodSpec, *, resource: str, read: Callable[[Quantity], int]) -> int:
    """The most of a resource that the pod's containers request at one time.

    Init containers run one by one, sidecars stay. Raises `QuantityError` for an invalid or negative amount, which would
    lower the sum of the others.
    """
    sidecars = most = 0
    for container in spec.init_containers:
        amount = _asked(container, resource=resource, read=read)
        if container.restart_policy == "Always":
            sidecars += amount
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + amount)
    for container in spec.containers:
        sidecars += _asked(container, resource=resource, read=read)
    return max(most, sidecars)


def _asked(container: Container, *, resource: str, read: Callable[[Quantity], int]) -> int:
    amount = requested(container, resource=resource)
    value = read(amount)
    # In thousandths: as whole MiB, a few bytes below zero would round to zero.
    if value <= 0 and str(amount).startswith("-") and milli(amount) < 0:
        raise QuantityError(amount)
    return value
