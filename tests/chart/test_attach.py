"""An extender for a kube-scheduler outside the release: what the chart renders, and what Helm prints."""

import json
from typing import Any

import yaml

from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART, IMAGES

Manifest = dict[str, Any]


def one(chart: list[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [each for each in chart if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def names(chart: list[Manifest], kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in chart if each["kind"] == kind}


def test_the_extender_runs_alone_and_asks_clients_for_a_certificate_with_a_name(render: Render) -> None:
    chart = render(attach__enabled=True, attach__clientNames=["a", "b"])
    assert "dovetail-scheduler" not in names(chart, "Deployment")
    assert not [each for each in names(chart, "ClusterRoleBinding") if "kube-scheduler" in each]
    (container,) = one(chart, "Deployment", "dovetail-extender")["spec"]["template"]["spec"]["containers"]
    assert {"--certificates=/etc/dovetail-extender", "--client-name=a", "--client-name=b"} <= set(container["args"])
    assert container["readinessProbe"]["httpGet"]["port"] == "metrics"


def test_its_service_selects_no_pod_for_the_holder_of_the_lease_is_its_endpoint(render: Render) -> None:
    chart = render(attach__enabled=True)
    service = one(chart, "Service", "dovetail-extender")["spec"]
    assert "selector" not in service
    assert [port["port"] for port in service["ports"]] == [8443]
    rules = one(chart, "Role", "dovetail-extender")["rules"]
    (slices,) = [rule for rule in rules if rule["resources"] == ["endpointslices"]]
    assert (slices["resourceNames"], slices["verbs"]) == (["dovetail-extender"], ["create", "patch"])
    assert not [rule for rule in one(render(), "Role", "dovetail-extender")["rules"] if "services" in rule["resources"]]


def test_the_configuration_to_paste_verifies_the_name_whatever_the_address(render: Render) -> None:
    for url in ("", "https://10.96.0.7:8443"):
        chart = render(attach__enabled=True, attach__url=url)
        text = one(chart, "ConfigMap", "dovetail-scheduler")["data"]["scheduler.yaml"]
        config = yaml.safe_load(text)
        (extender,) = config["extenders"]
        assert extender["urlPrefix"] == (url or "https://dovetail-extender.dovetail-system.svc:8443")
        assert extender["tlsConfig"]["serverName"] == "dovetail-extender.dovetail-system.svc"
        assert extender["ignorable"] is False
        assert {each["schedulerName"] for each in config["profiles"]} == {"dovetail", "default-scheduler"}
        assert "leaderElection" not in config


def test_cert_manager_issues_one_certificate_for_each_side(render: Render) -> None:
    chart = render(attach__enabled=True, attach__issuer__name="internal")
    server = one(chart, "Certificate", "dovetail-extender")["spec"]
    client = one(chart, "Certificate", "dovetail-extender-client")["spec"]
    assert (server["dnsNames"], server["usages"][1]) == (["dovetail-extender.dovetail-system.svc"], "server auth")
    assert (client["commonName"], client["usages"][1]) == ("dovetail-extender-client", "client auth")


def test_only_the_named_addresses_may_connect(render: Render) -> None:
    chart = render(attach__enabled=True, attach__schedulerCIDRs=["10.0.0.4/32"])
    policy = one(chart, "NetworkPolicy", "dovetail-extender")["spec"]
    (rule,) = [each for each in policy["ingress"] if {"protocol": "TCP", "port": 8443} in each["ports"]]
    assert rule["from"] == [{"ipBlock": {"cidr": "10.0.0.4/32"}}]
    assert "dovetail-scheduler" not in names(chart, "NetworkPolicy")


def test_helm_prints_the_configuration(helm: Helm) -> None:
    done = helm("template", "dovetail", str(CHART), "--set=attach.enabled=true", "--show-only=templates/config.yaml")
    assert done.returncode == 0, done.stderr
    wrong = helm("template", "dovetail", str(CHART), "--set=attach.url=http://x")
    assert "at '/attach/url'" in wrong.stderr
    empty = helm("template", "dovetail", str(CHART), f"--set-json=attach.clientNames={json.dumps([])}")
    assert "at '/attach/clientNames'" in empty.stderr


def test_the_notes_print_the_configuration_that_the_config_map_has(helm: Helm, render: Render) -> None:
    done = helm(
        "install",
        "dovetail",
        str(CHART),
        "--dry-run=client",
        IMAGES,
        "--namespace=dovetail-system",
        "--set=attach.enabled=true",
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.partition("KubeSchedulerConfiguration: begin ---\n")[2]
    text = one(render(attach__enabled=True), "ConfigMap", "dovetail-scheduler")["data"]["scheduler.yaml"]
    assert yaml.safe_load(printed.partition("# --- KubeSchedulerConfiguration: end")[0]) == yaml.safe_load(text)
    assert "get secret dovetail-extender-client" in done.stdout


def test_a_kubeconfig_of_the_outside_scheduler_is_in_the_configuration(render: Render) -> None:
    chart = render(attach__enabled=True, scheduler__kubeconfig="/etc/kubernetes/scheduler.conf")
    config = yaml.safe_load(one(chart, "ConfigMap", "dovetail-scheduler")["data"]["scheduler.yaml"])
    assert config["clientConnection"] == {"kubeconfig": "/etc/kubernetes/scheduler.conf"}


def secrets_of(chart: list[Manifest]) -> list[str]:
    """The Secrets that dovetail-certificates may write."""
    rules = [rule for rule in one(chart, "Role", "dovetail-certificates")["rules"] if rule["resources"] == ["secrets"]]
    return [name for rule in rules if set(rule["verbs"]) - {"get"} for name in rule["resourceNames"]]


def test_the_release_issues_the_certificates_of_both_sides_unless_they_come_from_elsewhere(render: Render) -> None:
    chart = render(attach__enabled=True)
    args = one(chart, "Deployment", "dovetail-certificates")["spec"]["template"]["spec"]["containers"][0]["args"]
    assert {"--extender-secret=dovetail-extender", "--client-name=dovetail-extender-client"} <= set(args)
    assert secrets_of(chart) == [
        "dovetail-webhook",
        "dovetail-extender",
        "dovetail-extender-client",
        "dovetail-extender-ca",
    ]
    for elsewhere in ({"attach__issuer__name": "internal"}, {"attach__secretName": "mine"}):
        assert secrets_of(render(attach__enabled=True, **elsewhere)) == ["dovetail-webhook"]
    alone = render(attach__enabled=True, webhook__issuer__name="internal")
    assert "dovetail-webhook" not in secrets_of(alone)
    assert "dovetail-certificates" not in names(alone, "ClusterRole")
    assert "dovetail-certificates" not in names(render(webhook__issuer__name="internal"), "Deployment")
