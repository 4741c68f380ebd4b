"""Which presets of the chart fit a cluster's GPU nodes, and what is missing for each. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from dovetail.answers.doctor import CheckResult
from dovetail.api.builtin import Lease, Node
from dovetail.cluster.node_kind import labelled_devices, serving
from dovetail.cluster.picture import Picture, Unseen
from dovetail.config.settings import Settings
from dovetail.query.doctor.findings import listed
from dovetail.query.doctor.pod_security import ENFORCE

_CHECK: Final = "preset"
_SIMULATED: Final = "simulated"
# What the presets name: see helm/dovetail/presets.
_PROMETHEUS_NAMESPACE: Final = "monitoring"
_NODES_NAMESPACE: Final = "dovetail-nodes"
# The vendors of the chart's `agent.vendors`.
_VENDORS: Final = frozenset({"nvidia", "amd", "intel", "ascend"})
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


def judge(picture: Picture, *, settings: Settings) -> Iterator[CheckResult]:
    """A note for each preset that fits; none if nodes or their reports may not be read."""
    nodes, reports = picture.nodes, picture.gpunodes
    if isinstance(reports, Unseen) and reports.missing:
        # Before the installation.
        reports = ()
    if isinstance(nodes, Unseen) or isinstance(reports, Unseen):
        return
    simulated = {each.metadata.name for each in reports if each.status.provider == _SIMULATED}
    served = [(node, serving(node, vendors=settings.vendors)) for node in nodes if node.metadata.name not in simulated]
    managed = [node for node, serves in served if serves.managed]
    plugins = [node for node, serves in served if serves.resource and not serves.managed]
    if managed:
        found = f"{_counted(managed)} that Dovetail manages"
        yield _note("production", found=found, missing=_for_production(picture, nodes=nodes))
        yield _note("sharing", found=f"{found}, if jobs share devices", missing=_for_sharing(picture))
    if plugins:
        missing = _for_vendor(picture, plugins=plugins, settings=settings)
        yield _note("vendor", found=f"{_counted(plugins)} of a device plugin", missing=missing)
    if picture.is_attached:
        lack = () if _holds(picture.leases["extender"]) else ("an extender that holds its Lease",)
        yield _note("attach", found="the chart runs no kube-scheduler", missing=lack)
    if not managed and not plugins:
        found = f"{len(simulated)} simulated" if simulated else "no node has GPUs"
        yield _note("evaluation", found=found, missing=())


def _note(preset: str, *, found: str, missing: Sequence[str]) -> CheckResult:
    lack = f"missing: {'; '.join(missing)}" if missing else "nothing is missing that can be seen here"
    message = f"fits ({found}); {lack} (docs/presets/{preset}.md)"
    return CheckResult(level="ok", check=_CHECK, subject=preset, message=message)


def _holds(lease: Lease | Unseen) -> bool:
    return not isinstance(lease, Unseen) and bool(lease.spec.holder_identity)


def _counted(nodes: Sequence[Node]) -> str:
    return f"{len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}"


def _for_production(picture: Picture, *, nodes: Sequence[Node]) -> list[str]:
    missing = []
    if len(nodes) < 2:
        missing.append("a second node for the standbys")
    if isinstance(picture.pod_monitors, Unseen) and picture.pod_monitors.missing:
        missing.append("the CRDs of the Prometheus operator")
    if _lacks(picture, namespace=_PROMETHEUS_NAMESPACE):
        missing.append(f"the namespace {_PROMETHEUS_NAMESPACE}, from which Prometheus may read the metrics")
    return missing


def _for_sharing(picture: Picture) -> list[str]:
    missing = _for_history(picture)
    if _lacks(picture, namespace=_NODES_NAMESPACE):
        missing.append(f"the namespace {_NODES_NAMESPACE} with the label {ENFORCE}=privileged")
    elif not isinstance(picture.namespaces, Unseen):
        (found,) = [each for each in picture.namespaces if each.metadata.name == _NODES_NAMESPACE]
        if found.metadata.labels.get(ENFORCE, "privileged") != "privileged":
            missing.append(f"{ENFORCE}=privileged on the namespace {_NODES_NAMESPACE}")
    return missing


def _for_vendor(picture: Picture, *, plugins: Sequence[Node], settings: Settings) -> list[str]:
    missing = _for_history(picture)
    unknown = [node.metadata.name for node in plugins if not _has_model(node, settings=settings)]
    if unknown:
        missing.append(f"a label with the model of the devices on {listed(unknown)}")
    return [*missing, *_agents_of_vendors(picture, plugins=plugins, settings=settings)]


def _agents_of_vendors(picture: Picture, *, plugins: Sequence[Node], settings: Settings) -> Iterator[str]:
    """The values that run an agent on the nodes whose devices nothing reports."""
    reports = () if isinstance(picture.gpunodes, Unseen) else picture.gpunodes
    reported = {each.metadata.name for each in reports}
    silent: dict[str, list[str]] = {}
    for node in plugins:
        vendor = settings.vendors.vendor_of(serving(node, vendors=settings.vendors).resource)
        if vendor in _VENDORS and node.metadata.name not in reported:
            silent.setdefault(vendor, []).append(node.metadata.name)
    for vendor, nodes in sorted(silent.items()):
        yield f"agent.vendors.{vendor}.enabled=true, for UUIDs, health and load on {listed(nodes)}"


def _has_model(node: Node, *, settings: Settings) -> bool:
    serves = serving(node, vendors=settings.vendors)
    devices = labelled_devices(node, serves=serves, vendors=settings.vendors, specs=settings.gpu_memory_specs)
    return all(device.model for device in devices)


def _for_history(picture: Picture) -> list[str]:
    """The history's volume is of the default class."""
    classes = picture.storage_classes
    if isinstance(classes, Unseen):
        return []
    has_default = any(each["metadata"].get("annotations", {}).get(_DEFAULT_CLASS) == "true" for each in classes)
    return [] if has_default else ["a default StorageClass for the history"]


def _lacks(picture: Picture, *, namespace: str) -> bool:
    """Whether a namespace is known not to exist."""
    known = picture.namespaces
    return not isinstance(known, Unseen) and namespace not in {each.metadata.name for each in known}
