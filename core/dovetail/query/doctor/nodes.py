"""Checks of nodes with GPUs, from the Nodes and their agents' reports. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from dovetail import names
from dovetail.answers.doctor import CheckResult
from dovetail.api.builtin import Node
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import Condition, ObjectMeta, find_condition
from dovetail.cluster.availability import lacks_library, unreadable
from dovetail.cluster.dra_drivers import drivers_now
from dovetail.cluster.node_kind import Serving, serving
from dovetail.cluster.picture import Picture, Unseen
from dovetail.config.settings import Settings
from dovetail.formats.durations import human
from dovetail.formats.timestamps import moment
from dovetail.gpu.device_plugins import Vendors
from dovetail.query.doctor.findings import listed, unknown

# Beyond its heartbeat an agent may be late by a busy API server; after that it is not there.
_LATE: Final = timedelta(seconds=60)
_SIMULATED: Final = "simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One node with GPUs, and what is known of its agent."""

    node: Node
    serves: Serving
    report: GPUNode | None
    agents: Any
    picture: Picture
    heartbeat: timedelta

    @property
    def name(self) -> str:
        """Of the node."""
        return self.node.metadata.name

    @property
    def is_own_machine(self) -> bool:
        """Whether it is the machine of a queue of one's own, which is complete without a GPU."""
        return self.node.status.node_info.container_runtime_version == names.PROCESSES

    def condition(self, type_: str) -> Condition | None:
        """One of the report's."""
        return find_condition(self.report.status.conditions, type=type_) if self.report else None


def judge(picture: Picture, *, settings: Settings, only: str | None = None) -> Iterator[CheckResult]:
    """Every node with GPUs, or one of that name."""
    if isinstance(picture.gpunodes, Unseen):
        yield unknown("nodes", unseen=picture.gpunodes, subject="reports")
        return
    nodes = picture.nodes
    if isinstance(nodes, Unseen):
        yield unknown("nodes", unseen=nodes)
        # The reports tell something by themselves.
        nodes = [Node(metadata=ObjectMeta(name=each.metadata.name)) for each in picture.gpunodes]
    if isinstance(picture.slices, Unseen):
        yield unknown("nodes", unseen=picture.slices, subject="DRA drivers")
    seen = list(_seen(nodes, gpunodes=picture.gpunodes, picture=picture, settings=settings))
    if only is not None:
        seen = [each for each in seen if each.name == only]
    if not seen:
        where = f"node {only} has no GPUs that Dovetail knows of" if only else "no node has GPUs that Dovetail knows of"
        fix = f"kubectl label node NAME {names.LABEL_MANAGED}=true, or install the vendor's device plugin there"
        yield CheckResult(level="warning", check="nodes", message=where, fix=fix)
    for each in seen:
        found = [finding for check in _CHECKS for finding in check(each)]
        yield from found
        if all(finding.level in {"ok", "unknown"} for finding in found):
            yield _fine(each)


def _seen(
    nodes: Iterable[Node], *, gpunodes: Iterable[GPUNode], picture: Picture, settings: Settings
) -> Iterator[Seen]:
    reports = {each.metadata.name: each for each in gpunodes}
    vendors: Vendors = settings.vendors
    drivers = drivers_now(() if isinstance(picture.slices, Unseen) else picture.slices)
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        by_driver = drivers.serving(node, has_claims=False)
        serves, report = serving(node, vendors=vendors, drivers=by_driver), reports.get(node.metadata.name)
        if serves.managed or serves.resource or report is not None:
            yield Seen(
                node=node,
                serves=serves,
                report=report,
                agents=picture.agents,
                picture=picture,
                heartbeat=timedelta(seconds=settings.heartbeat_interval),
            )


def _fine(seen: Seen) -> CheckResult:
    report = seen.report
    devices = len(report.status.devices) if report else seen.serves.count
    kind = "managed" if seen.serves.managed else f"by {seen.serves.resource}" if seen.serves.resource else "reported"
    text = f"{devices} {'GPU' if devices == 1 else 'GPUs'}, {kind}"
    if report is not None and report.status.driver_version:
        text += f", driver {report.status.driver_version}"
    return CheckResult(level="ok", check="node", subject=seen.name, message=text)


def _kind(seen: Seen) -> Iterator[CheckResult]:
    if seen.serves.conflict:
        other = "plugin" if seen.serves.resource else "DRA driver"
        fix = f"kubectl label node {seen.name} {names.LABEL_MANAGED}-, or keep the {other} off the node"
        yield _finding(seen, level="error", message=f"takes no pods with GPUs: {seen.serves.conflict}", fix=fix)


def _report(seen: Seen) -> Iterator[CheckResult]:
    if seen.report is None:
        if seen.serves.managed:
            message = "no agent reports its devices, so none is ever given away"
            yield _finding(
                seen,
                level="error",
                message=message,
                fix=f"look whether an agent runs there: {seen.picture.list_agents}",
            )
        else:
            message = "no agent reports: models are known by labels alone, and no UUIDs"
            fix = f"{seen.picture.reuse} --set agent.nodeSelector.LABEL=VALUE, a label that all GPU nodes carry"
            yield _finding(seen, level="warning", message=message, fix=fix)
        return
    observed = seen.report.status.observed_at
    age = seen.picture.now - moment(observed) if observed else None
    if age is None or age > seen.heartbeat + _LATE:
        silent = "has never reported" if age is None else f"has been silent for {human(age.total_seconds())}"
        yield _finding(
            seen,
            level="error",
            message=f"its agent {silent}",
            fix=f"look whether it runs: {seen.picture.list_agents}",
        )
    elif age < -_LATE:
        message = f"its clock is ahead of this one by {human(-age.total_seconds())}"
        yield _finding(seen, level="warning", message=message, fix="set the clocks by NTP")


def _driver(seen: Seen) -> Iterator[CheckResult]:
    if seen.is_own_machine and seen.report is not None and lacks_library(seen.report):
        message = "no driver of a GPU is installed: jobs run on the CPUs"
        yield CheckResult(level="ok", check="node", subject=seen.name, message=message)
    elif seen.report is not None and (problem := unreadable(seen.report)):
        fix = f"on the node: nvidia-smi, dmesg, and dovetail doctor --host; then {seen.picture.list_agents}"
        yield _finding(seen, level="error", message=f"its devices cannot be read: {problem}", fix=fix)


def _runtime(seen: Seen) -> Iterator[CheckResult]:
    """Check the default runtime: a pod without NVIDIA's runtime class must not see devices."""
    if isinstance(seen.agents, Unseen) or seen.report is None or not seen.serves.managed:
        return
    asked = seen.agents.get("spec", {}).get("template", {}).get("spec", {}).get("runtimeClassName")
    by_nvml = "nvml" in seen.report.status.provider.split("+")
    if not asked and by_nvml and any(device.vendor == "nvidia" for device in seen.report.status.devices):
        message = "NVIDIA's runtime is the default there: a container that requested no GPU may see them all"
        fix = "make runc the default runtime of that node (containerd: default_runtime_name), and then "
        fix += f"{seen.picture.reuse} --set agent.runtimeClassName=nvidia"
        yield _finding(seen, level="error", message=message, fix=fix)


def _ownership(seen: Seen) -> Iterator[CheckResult]:
    processes, kubelet = seen.condition("ProcessesSeen"), seen.condition("PodResources")
    if processes is not None and processes.status != "True":
        fix = f"{seen.picture.reuse} --set agent.hostPID=true (docs/node-agent.md says what it takes)"
        yield _finding(seen, level="warning", message=processes.message, fix=fix)
    if kubelet is not None and kubelet.status != "True":
        fix = f"{seen.picture.reuse} --set agent.podResources.path=FOLDER, that of kubelet's pod-resources on the node"
        yield _finding(seen, level="error", message=kubelet.message, fix=fix)
    by_plugin = seen.serves.resource and seen.report is not None and seen.report.status.provider != _SIMULATED
    if kubelet is None and by_plugin:
        message = "which pod has which GPU is not known: the agent does not ask kubelet"
        yield _finding(
            seen, level="warning", message=message, fix=f"{seen.picture.reuse} --set agent.podResources.enabled=true"
        )


def _advertised(seen: Seen) -> Iterator[CheckResult]:
    if seen.report is None or not seen.serves.managed or seen.serves.conflict:
        return
    healthy = any(device.health == "Healthy" and not device.mig_profile for device in seen.report.status.devices)
    if healthy and names.GPU_MILLI not in seen.node.status.allocatable:
        message = f"it has healthy GPUs, but {names.GPU_MILLI} is not advertised"
        yield _finding(
            seen,
            level="error",
            message=message,
            fix=f"look into the agent's log: {seen.picture.list_agents}",
        )


def _devices(seen: Seen) -> Iterator[CheckResult]:
    if seen.report is None:
        return
    for device in seen.report.status.devices:
        called = f"GPU {device.index}"
        if device.health == "Unhealthy":
            fix = f"repair it, then dovetail uncordon {seen.name}:{device.index} --mended"
            yield _finding(seen, level="warning", message=f"{called} is unhealthy: {device.health_reason}", fix=fix)
        if device.strangers:
            closed = "; it takes no new work meanwhile" if device.taint else ""
            processes = listed([f"{each.pid} {each.command}".strip() for each in device.strangers if each.pid])
            message = f"{called} is used by processes that have no allocation of it"
            message += (f" ({processes})" if processes else "") + closed
            yield _finding(seen, level="warning", message=message, fix="end them, or submit them as jobs")


def _enforcement(seen: Seen) -> Iterator[CheckResult]:
    if seen.report is None or not seen.serves.managed or seen.report.status.provider == _SIMULATED:
        return
    text = seen.report.status.enforcement
    live = [name for name, on in (("mps", text.mps), ("turns", text.turns), ("checkpoint", text.checkpoint)) if on]
    message = f"enforces {', '.join(live) if live else 'nothing: shares and turns are advisory'}"
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name, reason in sorted(text.reasons.items()):
        by_reason[reason].append(name)
    why = "; ".join(f"{', '.join(named)}: {reason}" for reason, named in by_reason.items())
    yield CheckResult(
        level="ok", check="enforcement", subject=seen.name, message=f"{message} ({why})" if why else message
    )


def _finding(seen: Seen, *, level: Any, message: str, fix: str) -> CheckResult:
    return CheckResult(level=level, check="node", subject=seen.name, message=message, fix=fix)


_CHECKS: Final[Iterable[Callable[[Seen], Iterator[CheckResult]]]] = (
    _kind, _report, _driver, _runtime, _ownership, _advertised, _devices, _enforcement,
)  # fmt: skip
