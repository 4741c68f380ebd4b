"""The hooks of an installation: run to their end, with accounts that are deleted afterwards."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dovetail_sandbox import access
from dovetail_sandbox.bringup import install
from dovetail_sandbox.bringup.plan import Work
from dovetail_sandbox.errors import ChartError
from dovetail_sandbox.installed.chart import Manifest, Rendered, split
from dovetail_sandbox.installed.workloads import Place

EVENTS = {"annotations": {"helm.sh/hook": "pre-install,post-install"}}
ACCOUNT: Manifest = {"kind": "ServiceAccount", "metadata": {"name": "dovetail-trust", **EVENTS}}


def job(code: str) -> Manifest:
    container = {"name": "trust", "command": ["python"], "args": ["-c", code]}
    spec = {"serviceAccountName": "dovetail-trust", "containers": [container]}
    return {"kind": "Job", "metadata": {"name": "dovetail-trust", **EVENTS}, "spec": {"template": {"spec": spec}}}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of the API server."""
    found: list[str] = []
    monkeypatch.setattr(access, "delete", lambda manifests, **_: found.append(f"delete {len(manifests)}"))
    monkeypatch.setattr(access, "tokens", lambda _, *, accounts: dict.fromkeys(accounts, "token"))
    monkeypatch.setattr(access, "write_account_kubeconfig", lambda path, **_: path.write_text("a token"))
    return found


def run(folder: Path, code: str) -> None:
    cluster = SimpleNamespace(folder=folder, kubeconfig=folder / "admin", pki=folder)
    work: Any = SimpleNamespace(
        cluster=cluster, programs={"kubectl": Path("kubectl")}, api_port=1, kubeconfig_of=lambda name: folder / name
    )
    place = Place(folder=folder, program=lambda _: Path(sys.executable), kubeconfig=lambda name: folder / name)
    rendered = Rendered(text="", workloads=(), objects=(), hooks=(job(code), ACCOUNT))
    install.run_hooks(cast("Work", work), rendered=rendered, place=place)


def test_a_hook_runs_to_its_end_and_its_account_goes(tmp_path: Path, calls: list[str]) -> None:
    run(tmp_path, "import os; print('as', os.environ['KUBECONFIG'])")
    assert calls == ["delete 1"]
    assert (tmp_path / "logs" / "trust.log").read_text() == f"as {tmp_path / 'trust'}\n"
    assert not (tmp_path / "trust").exists()


def test_a_hook_that_fails_is_told_with_its_words_and_its_account_goes_too(tmp_path: Path, calls: list[str]) -> None:
    with pytest.raises(ChartError, match="The hook trust failed: no CA"):
        run(tmp_path, "print('no CA'); raise SystemExit(1)")
    assert calls == ["delete 1"]
    assert not (tmp_path / "trust").exists()


def test_a_hook_that_does_not_end_is_ended(tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_HOOK_SECONDS", 0.5)
    with pytest.raises(ChartError, match=r"The hook trust has not ended after 0.5 s"):
        run(tmp_path, "import time; time.sleep(600)")
    assert calls == ["delete 1"]


def test_what_hooks_need_is_applied_with_the_rest_if_a_job_needs_it() -> None:
    of_hooks = Rendered(text="", workloads=(), objects=(), hooks=(job("pass"), ACCOUNT))
    assert install.needed_by_hooks(of_hooks) == (ACCOUNT,)
    assert install.needed_by_hooks(replace(of_hooks, hooks=(ACCOUNT,))) == ()


def test_only_what_helm_runs_after_an_installation_is_a_hook_here() -> None:
    other = "kind: Job\nmetadata: {name: cleanup, annotations: {helm.sh/hook: post-delete}}\n"
    ours = "kind: Job\nmetadata: {name: trust, annotations: {helm.sh/hook: 'pre-install,post-install'}}\n"
    rendered = split(f"{other}---\n{ours}---\nkind: Secret\nmetadata: {{name: s}}\n")
    assert [each["metadata"]["name"] for each in rendered.hooks] == ["trust"]
    assert [each["metadata"]["name"] for each in rendered.objects] == ["s"]
