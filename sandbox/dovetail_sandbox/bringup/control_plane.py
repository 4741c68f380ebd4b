"""Starts the supervisor and the control plane, and writes the administrator's kubeconfig."""

import os
import sys
import time
from pathlib import Path
from typing import Final

from dovetail.process import identity
from dovetail_local_node.launch import MARK as JOB_MARK
from dovetail_sandbox import access, credential, state, user_token
from dovetail_sandbox.bringup.plan import GATEWAY_PORT, Work
from dovetail_sandbox.cluster import KWOK_CLUSTER, tail
from dovetail_sandbox.errors import ComponentFailedError
from dovetail_sandbox.installed import chart
from dovetail_sandbox.localnode import queue, setup
from dovetail_sandbox.nodes import kwok
from dovetail_sandbox.processes import processes
from dovetail_sandbox.state import Component, Desired

_KWOKCTL: Final = "kwokctl"
_CONTROL_PLANE_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.1


def start(work: Work) -> None:
    """Start the supervisor, with kwokctl as its first program, and return when the control plane is up."""
    cluster, folder = work.cluster, work.cluster.kwok_folder
    known = cluster.state()
    credential.write(cluster.credential)
    configuration = kwok.configuration(
        ports=known.ports,
        binaries={**work.programs, "kube-controller-manager": _patient_controllers(work)},
        kube_version=known.kubernetes,
        pki=cluster.pki,
        access=_access(work),
        real_node=work.plan.real_node,
        nodes=len(work.plan.nodes),
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        requests=_request_log(work) if work.plan.request_log else None,
        authentication=work.plan.authentication,
        feature_gates=work.plan.feature_gates,
        runtime_config=work.plan.runtime_config,
        lasting=queue.etcd_data(cluster.folder) if work.plan.local_node else None,
    )
    settings = cluster.folder / "kwokctl.yaml"
    settings.write_text(configuration, encoding="utf-8")
    arguments = [
        "create",
        "cluster",
        f"--name={KWOK_CLUSTER}",
        f"--config={settings}",
        "--kubeconfig=",
        "--wait=60s",
    ]
    kwokctl = Component(
        name=_KWOKCTL,
        argv=[str(work.programs["kwokctl"]), *arguments],
        # The kubectl that it may start keeps no cache: that would stay at home, with files that a group may write.
        env={"KWOK_WORKDIR": str(cluster.folder / "kwok"), "KUBECACHEDIR": os.devnull},
        log=str(cluster.folder / "logs" / "kwokctl.log"),
        once=True,
    )
    # A local queue shares its machine with the jobs. Simulated clusters start what a cluster does.
    desired = Desired(
        components=[kwokctl],
        adopt=str(folder / "pids"),
        adopt_logs=str(folder / "logs"),
        one_process=work.plan.local_node,
    )
    state.write_desired(cluster.folder, desired=desired)
    _start_supervisor(work)
    _wait_for_control_plane(work)
    _write_admin_kubeconfig(work)


def _access(work: Work) -> kwok.Access:
    folder, shown = work.cluster.folder, work.cluster.credential
    admission, kubeconfig = folder / "admission.yaml", folder / "webhooks.kubeconfig"
    admission.write_text(kwok.admission(kubeconfig), encoding="utf-8")
    port = work.cluster.state().ports["webhook.port"]
    kubeconfig.write_text(kwok.webhook_kubeconfig(port=port, credential=shown), encoding="utf-8")
    user = setup.user() if work.plan.local_node else user_token.ADMINISTRATOR
    user_token.write(work.cluster.user_token, user=user)
    return kwok.Access(credential=shown, admission=admission, user_token=work.cluster.user_token)


def _start_supervisor(work: Work) -> None:
    folder = work.cluster.folder
    (folder / "logs").mkdir()
    # A sandbox that a job starts is not the job's.
    own = {name: value for name, value in os.environ.items() if name != JOB_MARK}
    log = str(folder / "logs" / "supervisor.log")
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "dovetail_sandbox.processes.supervisor", str(folder)],
        {**own, processes.MARK: str(folder)},
        file_actions=processes.output_to(log),
        setsid=True,
    )
    work.note(supervisor=identity.identify(pid))


def _wait_for_control_plane(work: Work) -> None:
    limit = time.monotonic() + _CONTROL_PLANE_SECONDS
    plane = set(kwok.control_plane(local_node=work.plan.local_node, real_node=work.plan.real_node))
    while True:
        observed = work.cluster.observed()
        if dead := next((each for each in observed.values() if each.state == "exited"), None):
            raise work.cluster.failure(dead)
        if observed.get(_KWOKCTL) and observed[_KWOKCTL].state == "done" and observed.keys() >= plane:
            return
        if not identity.alive(work.cluster.state().supervisor) or time.monotonic() > limit:
            log = work.cluster.folder / "logs" / "supervisor.log"
            what = f"did not bring the control plane up in {_CONTROL_PLANE_SECONDS:g} s"
            raise ComponentFailedError("supervisor", what=what, log=log, tail=tail(log))
        time.sleep(_POLL_SECONDS)


def _patient_controllers(work: Work) -> Path:
    """Write the script that starts kube-controller-manager, and return its path."""
    script = work.cluster.folder / "kube-controller-manager"
    program = work.programs["kube-controller-manager"]
    text = kwok.starter(program, kubectl=work.programs["kubectl"], port=work.api_port, pki=work.cluster.pki)
    script.write_text(text, encoding="utf-8")
    script.chmod(0o700)
    return script


def _write_admin_kubeconfig(work: Work) -> None:
    cluster, token = work.cluster, user_token.read(work.cluster.user_token)
    if not work.plan.local_node:
        access.write_admin_kubeconfig(
            cluster.kubeconfig,
            name=cluster.name,
            ca=cluster.pki / "ca.crt",
            certificate=cluster.pki / "admin.crt",
            key=cluster.pki / "admin.key",
            port=work.api_port,
            token=token,
            simulated=not work.plan.real_node,
            gateway=_gateway_of(work),
        )
        return
    node = work.local_node()
    node.write_certificates()
    access.write_admin_kubeconfig(
        cluster.kubeconfig,
        name=cluster.name,
        ca=cluster.pki / "ca.crt",
        certificate=node.certificate("user"),
        key=node.key("user"),
        port=work.api_port,
        token=token,
        local_data=node.data,
        gateway=_gateway_of(work),
    )


def _gateway_of(work: Work) -> str:
    """The URL of the sandbox's gateway; empty for a sandbox without one."""
    has_one = not work.plan.bare and "gateway" not in work.plan.without
    return f"http://127.0.0.1:{work.cluster.state().ports[GATEWAY_PORT]}" if has_one else ""


def _request_log(work: Work) -> kwok.RequestLog:
    policy = work.cluster.folder / "audit-policy.yaml"
    policy.write_text(kwok.audit_policy(namespace=chart.NAMESPACE), encoding="utf-8")
    return kwok.RequestLog(policy=policy, log=work.cluster.request_log)
