"""The gateway that a kubeconfig leads to, where neither arguments nor variables name one."""

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.sdk import discovery, errors
from dovetail.sdk.connection import IN_CLUSTER, connection


def kubeconfig(folder: Path, monkeypatch: pytest.MonkeyPatch, **context: Any) -> Path:
    """A kubeconfig that is the current one; JSON is YAML too."""
    path = folder / "kubeconfig"
    contexts = [{"name": "lab", "context": {"cluster": "lab", "user": "ada", **context}}]
    clusters = [{"name": "lab", "cluster": {"server": "https://127.0.0.1:1"}}]
    users = [{"name": "ada", "user": {"token": "adas"}}]
    path.write_text(
        json.dumps({"current-context": "lab", "contexts": contexts, "clusters": clusters, "users": users}),
        encoding="utf-8",
    )
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return path


def gateway(**fields: str) -> dict[str, Any]:
    return {"name": "dovetail.dev/gateway", "extension": fields}


def test_a_context_names_the_gateway_and_its_user_has_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = kubeconfig(tmp_path, monkeypatch, namespace="vision", extensions=[gateway(url="https://gpu.example/")])
    made = connection(environment={}, account=tmp_path / "none")
    assert (made.url, made.token(), made.namespace) == ("https://gpu.example", "adas", "vision")
    assert (made.source, made.local_data) == (f'context "lab" of {path}', None)


def test_what_is_passed_or_set_wins_over_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig(tmp_path, monkeypatch, extensions=[gateway(url="https://gpu.example")])
    made = connection(environment={"DOVETAIL_TOKEN": "own"}, namespace="nlp", account=tmp_path / "none")
    assert (made.url, made.token(), made.namespace) == ("https://gpu.example", "own", "nlp")
    assert connection(environment={"DOVETAIL_GATEWAY": "http://env"}, account=tmp_path / "none").url == "http://env"


def test_the_queue_of_this_machine_has_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = {"name": "dovetail.dev/local-node", "extension": {"data": "/home/ada/gflow"}}
    kubeconfig(tmp_path, monkeypatch, extensions=[local, gateway(url="http://127.0.0.1:8000")])
    assert connection(environment={}, account=tmp_path / "none").local_data == Path("/home/ada/gflow")


def test_a_kubeconfig_without_a_gateway_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig(tmp_path, monkeypatch)
    with pytest.raises(errors.SettingsError, match=r'^context "lab" of .* names no gateway: pass base_url'):
        connection(environment={}, account=tmp_path / "none")


def test_an_unreadable_kubeconfig_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig(tmp_path, monkeypatch).write_text("{", encoding="utf-8")
    with pytest.raises(errors.SettingsError, match="kubeconfig"):
        connection(environment={}, account=tmp_path / "none")


def test_without_any_kubeconfig_there_is_nothing_to_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert discovery.find() is None
    with pytest.raises(errors.SettingsError, match=r"no gateway is named: .* for a queue on this machine: gflowd up"):
        connection(environment={}, account=tmp_path / "none")


def test_a_pod_uses_the_gateway_of_its_cluster(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("account")
    (tmp_path / "namespace").write_text("vision")
    made = connection(environment={}, account=tmp_path)
    assert (made.url, made.token(), made.namespace) == (IN_CLUSTER, "account", "vision")
