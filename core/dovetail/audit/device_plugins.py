"""The audit of devices that kubelet assigns: requests against capacities and node reports.

Pure.

Such a pod has no allocation. Its request counts, and what its node's report says it got.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from dovetail import names
from dovetail.answers.questions import Finding
from dovetail.api.builtin import Container, Node, Pod, ResourceSlice
from dovetail.api.gpunode import Device, GPUNode
from dovetail.audit.device_kinds import unwanted
from dovetail.cluster.dra_drivers import drivers_now
from dovetail.formats import quantities
from dovetail.gpu.device_plugins import card_of, is_mig
from dovetail.gpu.request import RequestError, parse


class VendorPods:
    """The pods that request a vendor's resource, and the devices that reports give them."""

    def __init__(
        self,
        pods: Iterable[Pod],
        *,
        gpunodes: Iterable[GPUNode],
        resources: Sequence[str],
        memory_specs: Mapping[str, float],
    ) -> None:
        self._resources = resources
        self._memory_specs = memory_specs
        self.pods = [pod for pod in pods if any(_peak(pod, resource=resource) for resource in resources)]
        self._devices: dict[tuple[str, str], Device] = {}
        self._given: dict[tuple[str, str], list[str]] = {}
        for gpunode in gpunodes:
            node = gpunode.metadata.name
            self._devices |= {(node, device.uuid): device for device in gpunode.status.devices}
            self._given |= {(node, each.uid): list(each.devices) for each in gpunode.status.assignments}

    def given(self, pod: Pod) -> set[str]:
        """The ids of the pod's devices, as far as they are reported."""
        return set(self._given.get((pod.spec.node_name, pod.metadata.uid), ()))

    def asked(self, pod: Pod) -> int:
        """How many devices the pod requests of all vendors' resources."""
        return sum(_peak(pod, resource=resource) for resource in self._resources)

    def findings(self, nodes: Iterable[Node]) -> Iterator[Finding]:
        """What must not be, node by node and pod by pod."""
        bound: dict[str, list[Pod]] = defaultdict(list)
        for pod in self.pods:
            if pod.spec.node_name:
                bound[pod.spec.node_name].append(pod)
        for node in nodes:
            yield from self._of_node(node, pods=bound.get(node.metadata.name, []))
        for name, pods in bound.items():
            yield from self._given_twice(name, pods=pods)
            for pod in pods:
                problem = self._against_report(pod)
                if problem:
                    yield Finding(kind="Mismatch", subject=_name(pod), message=problem)

    def _of_node(self, node: Node, *, pods: Sequence[Pod]) -> Iterator[Finding]:
        subject, said = node.metadata.name, ", ".join(sorted(map(_name, pods)))
        for resource in self._resources:
            # A node without such a resource assigns its devices by resource claims, which are counted elsewhere.
            if resource not in node.status.capacity:
                continue
            asked = sum(_peak(pod, resource=resource) for pod in pods)
            capacity = quantities.whole(node.status.capacity[resource], rounding="down")
            if asked > capacity:
                message = f"its pods ask {resource}: {asked}, it has {capacity}: {said}"
                yield Finding(kind="CountOverpromised", subject=subject, message=message)
        if pods and node.metadata.labels.get(names.LABEL_MANAGED) == "true":
            message = f"it is labelled {names.LABEL_MANAGED}, but kubelet gives out its devices too: {said}"
            yield Finding(kind="BothKinds", subject=subject, message=message)

    def _given_twice(self, node: str, *, pods: Sequence[Pod]) -> Iterator[Finding]:
        holders: dict[str, list[str]] = defaultdict(list)
        for pod in pods:
            for uuid in self.given(pod):
                holders[uuid].append(_name(pod))
        for uuid, held_by in holders.items():
            device = self._devices.get((node, card_of(uuid)))
            subject = f"{node}/{device.index if device else uuid}"
            if len(held_by) > 1:
                message = f"it is reported as given to {len(held_by)} pods: {', '.join(sorted(held_by))}"
                yield Finding(kind="GivenTwice", subject=subject, message=message)

    def _against_report(self, pod: Pod) -> str:
        """What the pod requested against what its node reports.

        Empty when they agree or nothing is known.
        """
        node, given = pod.spec.node_name, sorted(self.given(pod))
        if not given:
            return ""
        asked = self.asked(pod)
        if len(given) != asked:
            return f"it asks {asked} devices, but {node} reports that it got {len(given)}"
        unknown = [uuid for uuid in given if (node, card_of(uuid)) not in self._devices]
        if unknown:
            return f"{node} reports that it got device {unknown[0]}, which is none of the node's"
        devices = [self._devices[node, card_of(uuid)] for uuid in given]
        return _against_kind(pod, devices=devices, memory_specs=self._memory_specs)


def instance_resources(nodes: Iterable[Node]) -> list[str]:
    """The resources of MIG instances that a plugin advertises on some node, by name."""
    return sorted({name for node in nodes for name in node.status.capacity if is_mig(name)})


def served_twice(nodes: Iterable[Node], *, slices: Iterable[ResourceSlice]) -> Iterator[Finding]:
    """Managed nodes whose devices a DRA driver also assigns, whether or not a pod holds one now."""
    drivers = drivers_now(slices)
    for node in nodes:
        found = drivers.serving(node, has_claims=False)
        if found and node.metadata.labels.get(names.LABEL_MANAGED) == "true":
            message = f"it is labelled {names.LABEL_MANAGED}, but {' and '.join(found)} hands out its devices too"
            yield Finding(kind="BothKinds", subject=node.metadata.name, message=message)


def _against_kind(pod: Pod, *, devices: Sequence[Device], memory_specs: Mapping[str, float]) -> str:
    try:
        request = parse(pod.metadata.annotations.get(names.REQUEST, ""))
    except RequestError:
        return ""
    found = unwanted(request, devices=devices, memory_specs=memory_specs)
    return "" if found is None else f"its request {request} is not for {found[1]}, but it got {found[0].uuid}"


def _peak(pod: Pod, *, resource: str) -> int:
    """The most that the pod's containers request at one time.

    As kubelet counts: init containers end, sidecars stay.
    """
    sidecars = most = 0
    for container in pod.spec.init_containers:
        amount = _amount(container, resource=resource)
        most = max(most, sidecars + amount)
        sidecars += amount if container.restart_policy == "Always" else 0
    return max(most, sidecars + sum(_amount(container, resource=resource) for container in pod.spec.containers))


def _amount(container: Container, *, resource: str) -> int:
    resources = container.resources
    return quantities.whole(resources.requests.get(resource) or resources.limits.get(resource) or 0)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
