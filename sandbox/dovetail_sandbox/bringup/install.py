"""Renders and applies the chart and its neighbours, runs its hooks, and starts their containers as processes."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final

import msgspec

from dovetail_sandbox import access, state
from dovetail_sandbox.bringup.plan import GATEWAY_PORT, PORT_VALUES, Work
from dovetail_sandbox.cluster import READY_SECONDS
from dovetail_sandbox.errors import ChartError
from dovetail_sandbox.installed import chart, neighbour_webhooks, workloads
from dovetail_sandbox.installed.chart import Manifest, Rendered
from dovetail_sandbox.installed.neighbours import Neighbour
from dovetail_sandbox.localnode import setup as localnode
from dovetail_sandbox.nodes.one_machine import Collection
from dovetail_sandbox.state import Component

_GATEWAY: Final = "gateway"
_SCHEDULER: Final = "kube-scheduler"
_CERTIFICATES: Final = "certificates"
# Certificates last 90 days, and are renewed 30 days before their end.
_REST_SECONDS: Final = 24 * 3600.0
_TASKS: Final = "--task-templates="
# The agent is ready once each node is reported: on a busy machine, 5,000 nodes took two minutes.
_REPORTED_PER_SECOND: Final = 10
_HOOK_SECONDS: Final = 120.0
_NEIGHBOUR_SECONDS: Final = 120.0  # they take longer than our components


def render(work: Work) -> Rendered:
    """Render the chart with the sandbox's values. Raises `InvalidInputError` for a value that it refuses."""
    cluster = work.cluster
    values: dict[str, object] = {key: cluster.state().ports[key] for key in PORT_VALUES}
    values |= {
        GATEWAY_PORT: cluster.state().ports[GATEWAY_PORT],
        "gateway.enabled": True,
        "gateway.host": "127.0.0.1",
    }
    # No image is pulled, and volumes are folders: each has its place without a claim.
    values |= {"image.registry": chart.BUILT_IMAGES, "history.persistence.enabled": False}
    values |= {"simulation.enabled": True, "scheduler.kubeconfig": str(work.kubeconfig_of("kube-scheduler"))}
    values |= {"loopback.certificates": str(cluster.credential)}
    # Here the API server is a local process and reaches the webhook by an address.
    values |= {"webhook.url": f"https://127.0.0.1:{values['webhook.port']}", "webhook.replicas": 1}
    if work.plan.local_node:
        # Scripts of the systems that Dovetail replaces send no token; the gateway serves those of this user alone.
        values |= {"gateway.legacyServiceAccount": access.SCRIPTS}
    rendered = chart.render(
        helm=work.programs["helm"], values=values, values_file=work.plan.values_file, overrides=work.plan.overrides
    )
    (cluster.folder / "rendered.yaml").write_text(rendered.text, encoding="utf-8")
    return rendered


def install(work: Work, *, rendered: Rendered) -> None:
    """Apply what the chart installs, run its hooks, and start its programs."""
    local = work.plan.local_node
    with work.report.task("Settings" if local else "What the chart installs: CRDs, roles, classes, configuration"):
        # With what the hooks need: each kubectl looks first which kinds there are, for a second.
        own = localnode.rights() if local else []
        applied = replace(rendered, objects=(*rendered.objects, *needed_by_hooks(rendered), *own))
        access.apply(applied, kubectl=work.programs["kubectl"], kubeconfig=work.cluster.kubeconfig)
        run_hooks(work, rendered=rendered, place=_place(work))
    started = _start_deployables(work, rendered=rendered)
    programs = f"Dovetail: {', '.join(started) or 'nothing, as asked'}"
    with work.report.task("Queue and console" if local else programs):
        limit = READY_SECONDS + len(work.plan.nodes) / _REPORTED_PER_SECOND
        work.cluster.wait_ready(started, seconds=limit)


def needed_by_hooks(rendered: Rendered) -> tuple[Manifest, ...]:
    """What the Jobs of the hooks need, such as their accounts; nothing without a Job."""
    jobs, others = _hooks_of(rendered)
    return others if jobs else ()


def run_hooks(work: Work, *, rendered: Rendered, place: workloads.Place) -> None:
    """Run the Jobs of `rendered.hooks` to the end as Helm does, and delete what they needed, which is applied.

    Raises `ChartError` if one fails.
    """
    jobs, others = _hooks_of(rendered)
    if not jobs:
        return
    try:
        for account, component in workloads.components(Rendered(text="", workloads=jobs, objects=others), place=place):
            _run_hook(work, account=account, component=component)
    finally:
        access.delete(others, kubectl=work.programs["kubectl"], kubeconfig=work.cluster.kubeconfig)


def _hooks_of(rendered: Rendered) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    """The Jobs of the hooks, and what else the hooks have."""
    jobs = tuple(each for each in rendered.hooks if each["kind"] == "Job")
    return jobs, tuple(each for each in rendered.hooks if each["kind"] != "Job")


def _run_hook(work: Work, *, account: str, component: Component) -> None:
    token = access.tokens(work.cluster.kubeconfig, accounts=[account])[account]
    path = work.kubeconfig_of(component.name)
    access.write_account_kubeconfig(
        path, account=account, token=token, pki=work.cluster.pki, port=work.api_port, namespace=chart.NAMESPACE
    )
    try:
        done = subprocess.run(
            component.argv,
            env=os.environ | component.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_HOOK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ChartError(f"The hook {component.name} has not ended after {_HOOK_SECONDS:g} s.") from error
    finally:
        path.unlink()
    log = Path(component.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout, encoding="utf-8")
    if done.returncode != 0:
        raise ChartError(f"The hook {component.name} failed: {done.stdout.strip()}")


def _start_deployables(work: Work, *, rendered: Rendered, namespace: str = chart.NAMESPACE) -> list[str]:
    """Write files and accounts and start processes for the chart's containers.

    Return their names.
    """
    cluster = work.cluster
    place = _place(work)
    for path, text in workloads.files(rendered, place=place).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    found = [
        (account, _adapted(work, component=each))
        for account, each in workloads.components(rendered, place=place, without=work.plan.without)
    ]
    accounts = [account for account, _ in found]
    tokens = access.tokens(cluster.kubeconfig, accounts=accounts, namespace=namespace)
    for account, component in found:
        access.write_account_kubeconfig(
            work.kubeconfig_of(component.name),
            account=account,
            token=tokens[account],
            pki=cluster.pki,
            port=work.api_port,
            namespace=namespace,
        )
    desired = state.read_desired(cluster.folder)
    followed = [
        _secret_volume(work, mounted=each, namespace=namespace)
        for each in workloads.secrets_of_others(rendered, place=place)
    ]
    components = [*desired.components, *followed, *(component for _, component in found)]
    cluster.desire(msgspec.structs.replace(desired, components=components))
    return [component.name for _, component in found]


def _adapted(work: Work, *, component: Component) -> Component:
    """The component as this sandbox has it: on one's own machine, with its devices and early garbage collection."""
    if work.plan.local_node:
        component = localnode.with_real_devices(component)
        if component.name == _SCHEDULER:
            early = Collection.of_one_machine().others
            component = msgspec.structs.replace(component, env={**component.env, **early})
        if component.name == _CERTIFICATES:
            component = msgspec.structs.replace(component, rest_seconds=_REST_SECONDS)
    return _with_tasks(work, component=component)


def _with_tasks(work: Work, *, component: Component) -> Component:
    """The gateway with a file of what v2's tasks run, unless the chart has one; `gflowd up` changes a local node's."""
    if component.name != _GATEWAY or any(word.startswith(_TASKS) for word in component.argv):
        return component
    file = work.cluster.folder / "task_templates.yaml"
    if not file.exists():
        shipped = resources.files("dovetail_sandbox") / "data" / "task_templates.yaml"
        file.write_text("{}\n" if work.plan.local_node else shipped.read_text(encoding="utf-8"), encoding="utf-8")
    return msgspec.structs.replace(component, argv=[*component.argv, f"{_TASKS}{file}"])


def install_neighbour(work: Work, *, neighbour: Neighbour) -> None:
    """Apply what another project's controller needs, and start it."""
    rendered = neighbour_webhooks.prepared(neighbour, cluster=work.cluster, programs=work.programs)
    namespace, kubectl = neighbour.namespace, work.programs["kubectl"]
    access.apply(rendered, kubectl=kubectl, kubeconfig=work.cluster.kubeconfig, namespace=namespace)
    started = _start_deployables(work, rendered=rendered, namespace=namespace)
    work.cluster.wait_ready(started, seconds=_NEIGHBOUR_SECONDS)


def _secret_volume(work: Work, *, mounted: workloads.MountedSecret, namespace: str) -> Component:
    """Do what kubelet does for a mounted Secret, but with the administrator's rights."""
    module, name = "dovetail_sandbox.installed.secret_volume", f"volume-{mounted.name}"
    options = [f"--secret={mounted.name}", f"--namespace={namespace}", f"--folder={mounted.folder}"]
    return Component(
        name=name,
        argv=[sys.executable, "-P", "-m", module, *options],
        env={"KUBECONFIG": str(work.cluster.kubeconfig)},
        log=str(work.cluster.folder / "logs" / f"{name}.log"),
        rest_seconds=_REST_SECONDS if work.plan.local_node else 0.0,
    )


def _place(work: Work) -> workloads.Place:
    return workloads.Place(folder=work.cluster.folder, program=partial(_program, work), kubeconfig=work.kubeconfig_of)


def _program(work: Work, command: str) -> Path:
    """Find a program of the sandbox, then one next to this Python, then one on PATH.

    Raises `ChartError` if there is none.
    """
    own = Path(sys.executable).parent / command
    found = work.programs.get(command) or (own if own.exists() else shutil.which(command))
    if found is None:
        raise ChartError(f"The chart runs {command}, which is neither in the folder of {sys.executable} nor on PATH.")
    return Path(found)
