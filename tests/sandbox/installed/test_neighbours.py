"""Another project's chart as it runs on this machine: small manifests as data, and a certificate that openssl makes."""

import base64
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail_sandbox.errors import InvalidInputError, ToolUnavailableError
from dovetail_sandbox.installed import chart, neighbour_webhooks, neighbours
from dovetail_sandbox.installed.chart import Rendered
from dovetail_sandbox.installed.neighbours import NEIGHBOURS, Local
from dovetail_sandbox.realnode.commands import call

SERVICE = {"name": "kueue-webhook-service", "namespace": "kueue-system", "path": "/mutate-batch-v1-job"}
CONFIGURATION = {
    "integrations": {"frameworks": ["batch/job"]},
    "leaderElection": {"leaderElect": True, "resourceName": "x"},
    "internalCertManagement": {"enable": True, "webhookServiceName": "kueue-webhook-service"},
}
LOCAL = Local(
    webhook_port=21000, health_port=21001, certificates=Path("/state/box/certificates"), certificate="public", key="own"
)


def make_rendered() -> Rendered:
    container = {"name": "manager", "command": ["/manager"], "args": ["--config=/controller_manager_config.yaml"]}
    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {"service": {**SERVICE, "path": "/convert"}}}}
    manifests: list[dict[str, Any]] = [
        {"kind": "Deployment", "metadata": {"name": "m"}, "spec": {"template": {"spec": {"containers": [container]}}}},
        {"kind": "MutatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [
            {"name": "mjob.kb.io", "clientConfig": {"service": SERVICE}, "failurePolicy": "Fail"},
        ]},
        {"kind": "CustomResourceDefinition", "metadata": {"name": "workloads"}, "spec": {"conversion": conversion}},
        {"kind": "CustomResourceDefinition", "metadata": {"name": "topologies"}, "spec": {}},
        {"kind": "APIService", "metadata": {"name": "v1beta2.visibility.kueue.x-k8s.io"}},
        {"kind": "Secret", "metadata": {"name": "cert"}},
        {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {
            "controller_manager_config.yaml": yaml.safe_dump(CONFIGURATION),
        }},
    ]  # fmt: skip
    return chart.split(yaml.safe_dump_all(manifests))


def adapted(name: str = "kueue") -> dict[str, dict[str, Any]]:
    found = neighbours.adapted(make_rendered(), neighbour=NEIGHBOURS[name], local=LOCAL)
    return {f"{each['kind']}/{each['metadata']['name']}": each for each in (*found.workloads, *found.objects)}


def configuration(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(adapted(name)["ConfigMap/c"]["data"]["controller_manager_config.yaml"])
    return found


def test_the_api_server_calls_its_webhooks_on_this_machine() -> None:
    public = base64.b64encode(b"public").decode()

    (hook,) = adapted()["MutatingWebhookConfiguration/w"]["webhooks"]
    assert hook["clientConfig"] == {"url": "https://127.0.0.1:21000/mutate-batch-v1-job", "caBundle": public}
    assert hook["failurePolicy"] == "Fail", "what the chart says besides stays"
    conversion = adapted()["CustomResourceDefinition/workloads"]["spec"]["conversion"]
    assert conversion["webhook"]["clientConfig"] == {"url": "https://127.0.0.1:21000/convert", "caBundle": public}


def test_what_calls_nobody_stays_as_it_is() -> None:
    assert adapted()["CustomResourceDefinition/topologies"] == {
        "kind": "CustomResourceDefinition", "metadata": {"name": "topologies"}, "spec": {},
    }  # fmt: skip


def test_an_api_that_nobody_could_reach_is_left_out() -> None:
    assert not [name for name in adapted() if name.startswith("APIService")]


def test_its_process_goes_by_its_name_and_is_asked_on_its_own_port() -> None:
    (container,) = adapted()["Deployment/m"]["spec"]["template"]["spec"]["containers"]

    assert (container["name"], container["command"]) == ("kueue", ["kueue"])
    assert container["readinessProbe"] == {"httpGet": {"path": "/readyz", "port": 21001}}


def test_its_configuration_has_our_ports_and_keeps_what_it_says_besides() -> None:
    told = configuration("kueue")

    assert told["health"] == {"healthProbeBindAddress": "127.0.0.1:21001"}
    assert told["webhook"] == {"host": "127.0.0.1", "port": 21000, "certDir": "/state/box/certificates"}
    assert told["leaderElection"] == {"leaderElect": False, "resourceName": "x"}
    assert told["integrations"] == CONFIGURATION["integrations"]


def test_who_insists_on_its_own_certificate_finds_a_good_one() -> None:
    told, secret = configuration("kueue"), adapted()["Secret/cert"]["data"]

    assert told["internalCertManagement"] == {"enable": True, "webhookServiceName": "kueue-webhook-service"}
    assert base64.b64decode(secret["tls.key"]) == base64.b64decode(secret["ca.key"]) == b"own"
    assert not configuration("jobset")["internalCertManagement"]["enable"]


def test_a_configuration_that_cannot_name_the_folder_has_it_below_that_of_temporary_files() -> None:
    rendered = make_rendered()
    (written,) = [each for each in rendered.objects if each["kind"] == "ConfigMap"]
    theirs = {**CONFIGURATION, "certManagement": {"enable": True}}
    del theirs["internalCertManagement"]
    written["data"]["controller_manager_config.yaml"] = yaml.safe_dump(theirs)
    local = Local(
        webhook_port=1,
        health_port=2,
        certificates=Path("/box/k8s-webhook-server/serving-certs"),
        certificate="",
        key="",
    )
    found = neighbours.adapted(rendered, neighbour=NEIGHBOURS["trainer"], local=local)
    (after,) = [each for each in found.objects if each["kind"] == "ConfigMap"]
    told = yaml.safe_load(after["data"]["controller_manager_config.yaml"])
    assert told["webhook"] == {"host": "127.0.0.1", "port": 1}
    assert told["certManagement"] == {"enable": False}
    (container,) = found.workloads[0]["spec"]["template"]["spec"]["containers"]
    assert {"name": "TMPDIR", "value": "/box"} in container["env"]


def test_jobset_starts_before_kueue_which_looks_for_it() -> None:
    assert [each.name for each in neighbours.chosen(["kueue", "jobset"])] == ["jobset", "kueue"]


def test_an_unknown_neighbour_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInputError, match="with: 'volcano' is not allowed; use jobset, lws, trainer, kueue"):
        neighbours.chosen(["volcano"])


def test_the_certificate_names_the_address_the_service_and_the_authority(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    certificate, key = neighbour_webhooks._certificate(tmp_path / "made", names=NEIGHBOURS["kueue"].host_names)

    text = call("openssl", "x509", "-noout", "-text", stdin=certificate)
    assert "IP Address:127.0.0.1" in text
    assert "DNS:kueue-webhook-service.kueue-system.svc, DNS:kueue-ca" in text
    assert key.startswith("-----BEGIN RSA PRIVATE KEY-----"), "the form in which Kueue reads it"
    assert (tmp_path / "made" / "tls.key").stat().st_mode & 0o077 == 0


def test_without_openssl_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ToolUnavailableError, match="Cannot get openssl: it is not installed"):
        neighbour_webhooks._certificate(tmp_path / "made", names=["a"])
