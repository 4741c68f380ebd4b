"""Runs the hooks of an installation as Helm does: to the end, with accounts that exist only meanwhile."""

import os
import subprocess
from pathlib import Path
from typing import Final

from dovetail_sandbox import access
from dovetail_sandbox.bringup.plan import Work
from dovetail_sandbox.errors import ChartError
from dovetail_sandbox.installed import chart, workloads
from dovetail_sandbox.installed.chart import Rendered
from dovetail_sandbox.state import Component

_SECONDS: Final = 120.0


def run(work: Work, *, rendered: Rendered, place: workloads.Place) -> None:
    """Run the Jobs of `rendered.hooks`, and delete what they needed. Raises `ChartError` if one fails."""
    jobs = tuple(each for each in rendered.hooks if each["kind"] == "Job")
    needed = tuple(each for each in rendered.hooks if each["kind"] != "Job")
    if not jobs:
        return
    kubectl, kubeconfig = work.programs["kubectl"], work.cluster.kubeconfig
    access.apply(Rendered(text="", workloads=(), objects=needed), kubectl=kubectl, kubeconfig=kubeconfig)
    try:
        for account, component in workloads.components(Rendered(text="", workloads=jobs, objects=needed), place=place):
            _run(work, account=account, component=component)
    finally:
        access.delete(needed, kubectl=kubectl, kubeconfig=kubeconfig)


def _run(work: Work, *, account: str, component: Component) -> None:
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
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ChartError(f"The hook {component.name} has not ended after {_SECONDS:g} s.") from error
    finally:
        path.unlink()
    log = Path(component.log)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(done.stdout, encoding="utf-8")
    if done.returncode != 0:
        raise ChartError(f"The hook {component.name} failed: {done.stdout.strip()}")
