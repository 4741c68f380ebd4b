"""Checks of what the chart installs: CRDs, components, admission, configuration. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from pydantic import ValidationError

from dovetail import names
from dovetail.answers.doctor import CheckResult
from dovetail.cluster.picture import LEASED, Picture, Right, Unseen
from dovetail.config.credentials import exposed
from dovetail.config.settings import Settings
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.query.doctor.findings import unknown
from dovetail.query.scheduler import judge_lease

POLICIES: Final = (
    "bindings", "pods", "runtime-classes", "owners", "priorities", "users", "terms", "operator-terms", "guests",
    "queue-only", "counted-quotas", "gpujobs-need-pods",
)  # fmt: skip
# The one that the chart can leave out alone.
_OPTIONAL: Final = "dovetail-gpujobs-need-pods"
_DOES: Final = {
    "operator": "no job starts or ends, and no status is true",
    "scheduler": "no pod with GPUs finds a node",
    "extender": "no pod with GPUs is bound",
}


def judge(picture: Picture) -> Iterator[CheckResult]:
    """Run all checks except those of nodes."""
    for check in _CHECKS:
        yield from check(picture)


def _kinds(picture: Picture) -> Iterator[CheckResult]:
    for name, unseen in picture.kinds.items():
        if unseen is None:
            yield CheckResult(level="ok", check="kinds", subject=name, message="installed")
        elif unseen.missing:
            fix = f"{picture.install} (with crds.install=true, the default)"
            yield CheckResult(
                level="error", check="kinds", subject=name, message="the cluster does not know it", fix=fix
            )
        else:
            yield unknown("kinds", unseen=unseen, subject=name)


def _components(picture: Picture) -> Iterator[CheckResult]:
    for name in LEASED:
        lease = picture.leases[name]
        if name == "scheduler" and picture.is_attached:
            message = (
                "the chart runs none: a kube-scheduler outside the release calls the extender (docs/presets/attach.md)"
            )
            yield CheckResult(level="ok", check="components", subject=name, message=message)
            continue
        if isinstance(lease, Unseen) and not lease.missing:
            yield unknown("components", unseen=lease, subject=name)
            continue
        text = "it has no Lease yet" if isinstance(lease, Unseen) else judge_lease(lease, now=picture.now)
        if text == "Running":
            assert not isinstance(lease, Unseen), "judged above"
            message = f"running: {lease.spec.holder_identity} holds its Lease"
            yield CheckResult(level="ok", check="components", subject=name, message=message)
        else:
            message = f"{text[:1].lower()}{text[1:]}: {_DOES[name]}"
            pods = f"kubectl --namespace {picture.release} get pods,events, and the log of dovetail-{name}"
            yield CheckResult(level="error", check="components", subject=name, message=message, fix=f"look at {pods}")


def _webhook(picture: Picture) -> Iterator[CheckResult]:
    if isinstance(picture.webhook, Unseen):
        if not picture.webhook.missing:
            yield unknown("webhook", unseen=picture.webhook)
            return
        message = "there is none: pods with the annotation dovetail.dev/gpu are not completed"
        yield CheckResult(
            level="warning", check="webhook", message=message, fix=f"{picture.reuse} --set webhook.enabled=true"
        )
        return
    pods = picture.webhook_pods
    ready = 1 if isinstance(pods, Unseen) else pods.get("status", {}).get("availableReplicas", 0)
    if ready:
        yield CheckResult(level="ok", check="webhook", message="the API server asks it")
    else:
        message = "none answers: every pod that asks for GPUs by annotation is refused"
        fix = f"look at kubectl --namespace {picture.release} describe deployment dovetail-webhook"
        yield CheckResult(level="error", check="webhook", message=message, fix=fix)


def _policies(picture: Picture) -> Iterator[CheckResult]:
    per_node = not isinstance(picture.agents, Unseen)
    wanted = {f"dovetail-{name}" for name in (*POLICIES, *(["agents"] if per_node else []))}
    for what, found in (("policies", picture.policies), ("bindings of policies", picture.bound_policies)):
        if isinstance(found, Unseen):
            yield unknown("policies", unseen=found, subject=what)
            continue
        missing = sorted(wanted - set(found))
        if missing == [_OPTIONAL]:
            message = f"without {_OPTIONAL}, who may create GPUJobs in a namespace may act as any account there"
            fix = f"{picture.reuse} --set policies.gpujobsNeedPods=true"
            yield CheckResult(level="warning", check="policies", subject=what, message=message, fix=fix)
        elif missing:
            message = f"missing: {', '.join(missing)}; what they refuse goes through, such as forged allocations"
            fix = f"{picture.reuse} --set policies.enabled=true"
            yield CheckResult(level="error", check="policies", subject=what, message=message, fix=fix)
        else:
            yield CheckResult(level="ok", check="policies", subject=what, message=f"all {len(wanted)} are there")


def _rights(picture: Picture) -> Iterator[CheckResult]:
    by_account: dict[str, list[tuple[Right, bool | Unseen]]] = defaultdict(list)
    for right, allowed in picture.rights.items():
        by_account[right.account].append((right, allowed))
    for account, rights in by_account.items():
        unseen = next((allowed for _, allowed in rights if isinstance(allowed, Unseen)), None)
        missing = [str(right.act) for right, allowed in rights if allowed is False]
        if unseen is not None:
            yield unknown("permissions", unseen=unseen, subject=account)
        elif missing:
            message = f"its account may not {', '.join(missing)}"
            fix = f"{picture.install}, by a user who may create cluster roles"
            yield CheckResult(level="error", check="permissions", subject=account, message=message, fix=fix)
        else:
            text = ", ".join(str(right.act) for right, _ in rights)
            yield CheckResult(level="ok", check="permissions", subject=account, message=f"its account may {text}")


def _agents(picture: Picture) -> Iterator[CheckResult]:
    """The DaemonSet; one agent for all simulated nodes has none, and its reports speak for it."""
    if isinstance(picture.agents, Unseen):
        return
    status = picture.agents.get("status", {})
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    if wanted == 0:
        message = "no node is to have one: agent.nodeSelector of the chart matches none"
        fix = "kubectl label node NAME dovetail.dev/managed=true, or another agent.nodeSelector"
        yield CheckResult(level="warning", check="agents", message=message, fix=fix)
    elif ready < wanted:
        message = f"{wanted - ready} of {wanted} are not ready"
        fix = f"look at kubectl --namespace {picture.release} describe daemonset dovetail-agent: "
        fix += "Pod Security refuses host paths and processes, unless the namespace is `privileged`"
        yield CheckResult(level="error", check="agents", message=message, fix=fix)
    else:
        yield CheckResult(level="ok", check="agents", message=f"all {wanted} are ready")


def _classes(picture: Picture) -> Iterator[CheckResult]:
    classes = (
        ("runtime-class", "nvidia", picture.runtime_class, "runtimeClass.create=true", "no pod gets its devices"),
        ("priority-class", "dovetail-gpujob", picture.priority_class, "priorityClass.create=true", "no job gets pods"),
    )
    for check, name, found, value, without in classes:
        if not isinstance(found, Unseen):
            handler = f", handler {found['handler']}" if "handler" in found else ""
            yield CheckResult(level="ok", check=check, subject=name, message=f"there{handler}")
        elif found.missing and check == "runtime-class" and _delivery(picture) == "NRI":
            message = "it does not exist, and with config.delivery=NRI no pod names it"
            yield CheckResult(level="ok", check=check, subject=name, message=message)
        elif found.missing and check == "runtime-class" and not _may_manage_nodes(picture):
            message = "it does not exist, and pods on the nodes of a device plugin do not name it"
            yield CheckResult(level="ok", check=check, subject=name, message=message)
        elif found.missing:
            message = f"it does not exist: {without}"
            yield CheckResult(
                level="error", check=check, subject=name, message=message, fix=f"{picture.reuse} --set {value}"
            )
        else:
            yield unknown(check, unseen=found, subject=name)


def _may_manage_nodes(picture: Picture) -> bool:
    """Whether Dovetail manages a node, or may, because nodes may not be read or there are none with GPUs yet."""
    if isinstance(picture.nodes, Unseen):
        return True
    managed = any(node.metadata.labels.get(names.LABEL_MANAGED) == "true" for node in picture.nodes)
    return managed or not any(DEFAULT_VENDORS.amounts_in(node.status.capacity) for node in picture.nodes)


def _configuration(picture: Picture) -> Iterator[CheckResult]:
    config = picture.config
    if isinstance(config, Unseen):
        if not config.missing:
            yield unknown("configuration", unseen=config)
            return
        message = f"there is no ConfigMap dovetail-config in {picture.release}"
        yield CheckResult(level="error", check="configuration", message=message, fix=picture.install)
        return
    try:
        values = load_yaml(config.data.get("gpu_config.yaml", "")) or {}
        Settings.model_validate(values)
    except (ValidationError, YAMLTextError) as error:
        first = str(error) if isinstance(error, YAMLTextError) else _first(error)
        message = f"gpu_config.yaml is refused by every component: {first}"
        fix = "put it right in the value `config` of the chart (docs/configuration.md has all keys)"
        yield CheckResult(level="error", check="configuration", message=message, fix=fix)
        return
    if problem := exposed(values):
        fix = "change that password, and take the URL out of the value `config` of the chart"
        yield CheckResult(level="error", check="configuration", message=f"gpu_config.yaml: {problem}", fix=fix)
    else:
        yield CheckResult(level="ok", check="configuration", message="gpu_config.yaml is in order")


def _first(error: ValidationError) -> str:
    text = error.errors()[0]
    return f"{'.'.join(str(part) for part in text['loc'])}: {text['msg']}"


def _injection(picture: Picture) -> Iterator[CheckResult]:
    """Whether the configured delivery is that of NVIDIA's GPU operator.

    `cdi.default` is not looked at: the operator ignores it since 25.10, and before that its runtime class `nvidia`
    turned the variable's values into CDI names.
    """
    if isinstance(picture.cluster_policies, Unseen):
        return
    by_plugin = [
        policy["metadata"]["name"]
        for policy in picture.cluster_policies
        if policy.get("spec", {}).get("cdi", {}).get("nriPluginEnabled")
    ]
    wants_plugin = _delivery(picture) == "NRI"
    for name in by_plugin:
        if wants_plugin:
            message = "NVIDIA's GPU operator gives devices by its NRI plugin, as config.delivery says"
            yield CheckResult(level="ok", check="cdi", subject=name, message=message)
        else:
            message = "NVIDIA's GPU operator gives devices by its NRI plugin (cdi.nriPluginEnabled): it removes the "
            message += "RuntimeClass nvidia, so no pod of Dovetail gets its devices"
            fix = f"{picture.reuse} --set config.delivery=NRI --set runtimeClass.create=false"
            yield CheckResult(level="error", check="cdi", subject=name, message=message, fix=fix)
    if wants_plugin and picture.cluster_policies and not by_plugin:
        name = picture.cluster_policies[0]["metadata"]["name"]
        message = (
            "config.delivery is NRI, but NVIDIA's GPU operator runs no NRI plugin: no pod of Dovetail gets its devices"
        )
        fix = f"kubectl patch clusterpolicy {name} --type=merge "
        fix += """--patch '{"spec":{"cdi":{"nriPluginEnabled":true}}}'"""
        yield CheckResult(level="error", check="cdi", subject=name, message=message, fix=fix)


def _delivery(picture: Picture) -> str:
    """How the installed configuration delivers devices; the default where it cannot be read."""
    if isinstance(picture.config, Unseen):
        return "RuntimeClass"
    try:
        values = load_yaml(picture.config.data.get("gpu_config.yaml", "")) or {}
    except YAMLTextError:
        return "RuntimeClass"
    return str(values.get("delivery", "RuntimeClass")) if isinstance(values, dict) else "RuntimeClass"


_CHECKS: Final[Iterable[Callable[[Picture], Iterator[CheckResult]]]] = (
    _kinds, _components, _agents, _webhook, _rights, _policies, _classes, _configuration, _injection,
)  # fmt: skip
