"""Runs the hooks of an installation as Helm does: to the end, with accounts that exist only meanwhile."""

import os
import subprocess
from pathlib import Path
from typing import Final

from dovetail_sandbox import access
from dovetail_sandbox.bringup.plan import Work
from dovetail_sandbox.errors import ChartError
from dovetail_sandbox.installed import chart, workloads
from dovetail_sandbox.installed.chart import Manifest, Rendered
from dovetail_sandbox.state import Component

_SECONDS: Final = 120.0


def needed(rendered: Rendered) -> tuple[Manifest, ...]:
    """What the Jobs of the hooks need, such as their accounts; nothing without a Job."""
    jobs, others = _parted(rendered)
    return others if jobs else ()


def run(work: Work, *, rendered: Rendered, place: workloads.Place) -> None:
    """Run the Jobs of `rendered.hooks`, and delete what they needed, which is applied.

    Raises `ChartError` if one fails.
    """
    jobs, others = _parted(rendered)
    if not jobs:
        return
    try:
        for account, component in workloads.components(Rendered(text="", workloads=jobs, objects=others), place=place):
            _run(work, account=account, component=component)
    finally:
        access.delete(others, kubectl=work.programs["kubectl"], kubeconfig=work.cluster.kubeconfig)


def _parted(rendered: Rendered) -> tuple[tuple[Manifest, ...], tuple[Manifest, ...]]:
    """The Jobs of the hooks, and what else the hooks have."""
    jobs = tuple(each for each in rendered.hooks if each["kind"] == "Job")
    return jobs, tuple(each for each in rendered.hooks if each["kind"] != "Job")


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
