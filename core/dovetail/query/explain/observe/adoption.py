"""The steps by which a node moves to Dovetail, and how far they are, from the same objects as a look. Pure.

AdoptionError   the node cannot move: the sentence says why
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dovetail import names
from dovetail.answers.observe import Adoption, AdoptionStep, DeviceHolder, StepState
from dovetail.api.builtin import Node, Pod
from dovetail.cluster.observed import Seen
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, MANAGED_VENDOR, is_mig
from dovetail.pods.tenancy import controller_of
from dovetail.query.explain.observe.books import NodeBook, books_of, owner_of
from dovetail.query.explain.observe.demands import VOLCANO_COUNT, counts_devices, demand_of

# The GPU operator's label: its own value is `true`, and it keeps another one.
_PLUGIN_LABEL: Final = "nvidia.com/gpu.deploy.device-plugin"
# Words in the names of DaemonSets that advertise devices.
_PLUGINS: Final = ("device-plugin", "vgpu", "hami")
_SHOWN: Final = 3


class AdoptionError(Exception):
    """A node that cannot move to Dovetail, in one sentence."""


def adoption(seen: Seen, *, node: str) -> Adoption:
    """The steps for one node of those that were seen. Raises `AdoptionError`."""
    books = {book.name: book for book in books_of(seen.nodes or (), pods=seen.pods)}
    book = books.get(node)
    if book is None:
        raise AdoptionError(f"there is no node {node}")
    resource = _resource(book)
    holders = [
        DeviceHolder(
            namespace=held.pod.metadata.namespace,
            name=held.pod.metadata.name,
            owner=owner_of(held.pod),
            scheduler=held.pod.spec.scheduler_name or "default-scheduler",
            devices=round(sum(amount for name, amount in held.devices.items() if name != names.GPU_MILLI), 3),
        )
        for held in book.held
        if any(amount for name, amount in held.devices.items() if name != names.GPU_MILLI)
    ]
    reports = any(each.metadata.name == node and each.status.devices for each in seen.gpunodes)
    plugins = [pod for pod in seen.pods if pod.spec.node_name == node and _is_plugin(pod)]
    steps = list(_steps(book, resource=resource, holders=holders, plugins=plugins, reports=reports))
    others = [each for each in books.values() if each.name != node and resource in each.amounts]
    return Adoption(
        node=node,
        system=book.system(resource),
        resource=resource,
        model=book.model,
        devices=_devices(book, resource=resource),
        adopted=all(step.state == "done" for step in steps),
        holders=holders,
        left_elsewhere=sum(each.devices(resource) for each in others),
        asked_elsewhere=_asked(seen.pods, resource=resource),
        steps=steps,
        back=list(_back(book)),
    )


def _resource(book: NodeBook) -> str:
    """The resource that counts its devices now. Raises `AdoptionError` where Dovetail could not manage them."""
    counted = [name for name in book.amounts if counts_devices(name) and name != names.GPU_MILLI]
    resource = next((name for name in counted if _total(book, resource=name)), "")
    if not resource and _is_managed(book.node):
        return names.GPU_MILLI
    if not resource:
        raise AdoptionError(f"node {book.name} has no GPUs that a device plugin advertises")
    vendor = MANAGED_VENDOR if resource == VOLCANO_COUNT or is_mig(resource) else DEFAULT_VENDORS.vendor_of(resource)
    if vendor != MANAGED_VENDOR:
        raise AdoptionError(
            f"node {book.name} has {resource}: Dovetail manages NVIDIA's devices alone, and places pods on other "
            "vendors' nodes while their plugin stays (docs/vendor.md)"
        )
    return resource


def _total(book: NodeBook, *, resource: str) -> int:
    # A plugin that is down leaves its resource in the capacity.
    return max(book.amounts[resource].total, int(str(book.node.status.capacity.get(resource, "0")) != "0"))


def _devices(book: NodeBook, *, resource: str) -> int:
    return book.devices(resource) if resource in book.amounts else 0


def _is_managed(node: Node) -> bool:
    return node.metadata.labels.get(names.LABEL_MANAGED) == "true"


def _is_plugin(pod: Pod) -> bool:
    owner = controller_of(pod)
    return owner is not None and owner.kind == "DaemonSet" and any(word in owner.name for word in _PLUGINS)


def _asked(pods: Sequence[Pod], *, resource: str) -> float:
    waiting = (demand_of(pod) for pod in pods if not pod.spec.node_name)
    return round(sum(demand.amounts.get(resource, 0) for demand in waiting if demand is not None), 3)


def _steps(
    book: NodeBook, *, resource: str, holders: Sequence[DeviceHolder], plugins: Sequence[Pod], reports: bool
) -> Iterator[AdoptionStep]:
    node = book.name
    managed, advertised = _is_managed(book.node), resource != names.GPU_MILLI
    done = managed and not advertised
    yield AdoptionStep(
        title="Keep new pods off",
        state=_state(done or book.node.spec.unschedulable),
        command=f"kubectl cordon {node}",
        effect="No scheduler places further pods there. What runs goes on.",
    )
    yield AdoptionStep(
        title="Let pods with GPUs end, or move them",
        state=_state(not holders),
        command=f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data",
        effect=_leaving(holders),
    )
    command, effect = _without_plugin(book, plugins=plugins)
    yield AdoptionStep(title="Take the device plugin off", state=_state(not advertised), command=command, effect=effect)
    yield AdoptionStep(
        title="Give the node to Dovetail",
        state=_state(managed),
        command=f"kubectl label node {node} {names.LABEL_MANAGED}=true",
        effect="Dovetail's agent starts there. Pods get whole devices, shares, memory and turns by dovetail.dev/gpu. "
        f"Pods that ask for {resource if advertised else 'a plugin'} are no longer placed there, except those of "
        f"namespaces labeled {names.TRANSLATE}=true: their requests are translated.",
    )
    yield AdoptionStep(
        title="See that the agent reports the devices",
        state="done" if reports and done else "waits",
        command=f"dovetail doctor {node}",
        effect="GPUNode status has each device, its health, and what is enforced.",
    )
    yield AdoptionStep(
        title="Open the node",
        state=_state(done and not book.node.spec.unschedulable),
        command=f"kubectl uncordon {node}",
        effect="The queue and the extender use the node.",
    )


def _state(done: bool) -> StepState:
    return "done" if done else "todo"


def _leaving(holders: Sequence[DeviceHolder]) -> str:
    if not holders:
        return "No pod holds a device there."
    named = [f"{each.namespace}/{each.name}" for each in holders]
    rest = len(named) - _SHOWN
    listed = ", ".join(named[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    alone = [f"{each.namespace}/{each.name}" for each in holders if not each.owner]
    lost = f" No controller creates {', '.join(alone)} again." if alone else ""
    devices = sum(each.devices for each in holders)
    return f"Ends {listed}, which hold {devices:g} devices, within their disruption budgets.{lost}"


def _without_plugin(book: NodeBook, *, plugins: Sequence[Pod]) -> tuple[str, str]:
    node = book.node
    after = "Some 5 minutes after the plugin has ended, kubelet shows none of its devices."
    if _PLUGIN_LABEL in node.metadata.labels:
        command = f"kubectl label node {book.name} {_PLUGIN_LABEL}=false --overwrite"
        return command, f"The GPU operator ends its device plugin there; driver and toolkit stay. {after}"
    owners = sorted({(pod.metadata.namespace, owner.name) for pod in plugins if (owner := controller_of(pod))})
    term = f"the node affinity {names.LABEL_MANAGED} DoesNotExist"
    if not owners:
        return "", f"Give the DaemonSet of the device plugin {term}. {after}"
    commands = "; ".join(f"kubectl -n {namespace} edit daemonset {name}" for namespace, name in owners)
    return commands, f"Add {term}. It ends there with the label of the next step. {after}"


def _back(book: NodeBook) -> Iterator[str]:
    node = book.name
    yield f"kubectl cordon {node}"
    yield f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"
    yield f"kubectl label node {node} {names.LABEL_MANAGED}-"
    if _PLUGIN_LABEL in book.node.metadata.labels:
        yield f"kubectl label node {node} {_PLUGIN_LABEL}=true --overwrite"
    yield f"kubectl uncordon {node}"
