"""NetworkPolicies as Kubernetes reads them: what each pod of the chart is reached at, and what it reaches.

Enforcement is the network plugin's, and the sandbox has none: here the policies are read by their documented rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART

Manifest = dict[str, Any]
ANYONE: Manifest = {}
NODE_FEATURES = {
    "mps__enabled": True,
    "agent__turns__enabled": True,
    "agent__podResources__enabled": True,
    "agent__checkpoint__enabled": True,
    "agent__hostPID": True,
}
COMBINATIONS: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "simulated nodes": {"simulation__enabled": True},
    "all features of a node": NODE_FEATURES,
    "agents in a namespace of their own": {**NODE_FEATURES, "agent__namespace": "dovetail-agents"},
    "cert-manager": {"webhook__issuer__name": "internal"},
    "no webhook": {"webhook__enabled": False, "users__required": False},
    "two operators with a database": {"operator__replicas": 2, "history__secretName": "pg"},
    "a gateway": {"gateway__enabled": True},
    "an attached kube-scheduler": {"attach__enabled": True},
    "a history in the pod": {"history__persistence__enabled": False},
}


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod template of the chart, with the policies that select it."""

    name: str
    template: Manifest
    policies: list[Manifest]

    @property
    def asks_the_api_server(self) -> bool:
        spec = self.template["spec"]
        sources = [
            each for volume in spec.get("volumes", []) for each in volume.get("projected", {}).get("sources", [])
        ]
        has_token = any("serviceAccountToken" in each for each in sources)
        return has_token or spec.get("automountServiceAccountToken") is not False

    def ports(self) -> dict[str, int]:
        containers = self.template["spec"]["containers"]
        return {port["name"]: port["containerPort"] for each in containers for port in each.get("ports") or []}

    def peers(self, direction: str, port: int, protocol: str = "TCP") -> list[Manifest]:
        """Who may connect to that port, or whom the pod may connect to at it; a policy isolates, its rules allow."""
        assert any(direction.capitalize() in policy["policyTypes"] for policy in self.policies)
        found = []
        for policy in self.policies:
            for rule in policy.get(direction) or []:
                if {"protocol": protocol, "port": port} in rule["ports"]:
                    found += rule.get("from" if direction == "ingress" else "to") or [ANYONE]
        return found

    def reaches(self) -> set[int]:
        rules = [rule for policy in self.policies for rule in policy.get("egress") or []]
        return {port["port"] for rule in rules for port in rule["ports"]}


def pods(chart: list[Manifest]) -> Iterator[Pod]:
    """The pods that run while the policies exist: an uninstall deletes these before it starts dovetail-cleanup."""
    policies = [each for each in chart if each["kind"] == "NetworkPolicy"]
    for each in chart:
        template = each.get("spec", {}).get("template") if each["kind"] in {"Deployment", "DaemonSet", "Job"} else None
        template = each if each["kind"] == "Pod" else template
        if template is not None and each["metadata"].get("annotations", {}).get("helm.sh/hook") != "post-delete":
            namespace, labels = each["metadata"].get("namespace"), template["metadata"]["labels"].items()
            selecting = [
                policy["spec"]
                for policy in policies
                if policy["metadata"]["namespace"] == namespace
                and policy["spec"]["podSelector"]["matchLabels"].items() <= labels
            ]
            yield Pod(name=each["metadata"]["name"], template=template, policies=selecting)


@pytest.fixture(params=COMBINATIONS.values(), ids=list(COMBINATIONS))
def chart(render: Render, request: pytest.FixtureRequest) -> list[Manifest]:
    return render(**request.param)


def test_every_pod_is_denied_everything_that_is_not_allowed_to_it(chart: list[Manifest]) -> None:
    found = list(pods(chart))
    assert found
    for pod in found:
        denying = [each for each in pod.policies if not each.get("ingress") and not each.get("egress")]
        assert [each["policyTypes"] for each in denying if set(each["policyTypes"]) == {"Ingress", "Egress"}], pod.name
        assert not pod.template["spec"].get("hostNetwork"), f"{pod.name} is beyond every policy"


def test_every_pod_reaches_what_it_needs_and_a_pod_without_a_token_reaches_nothing(chart: list[Manifest]) -> None:
    for pod in pods(chart):
        if pod.asks_the_api_server:
            assert pod.peers("egress", 443) == pod.peers("egress", 6443) == [ANYONE], pod.name
            assert pod.peers("egress", 53, "UDP") == pod.peers("egress", 53) == [ANYONE], pod.name
        else:
            assert pod.reaches() == set(), pod.name


def test_metrics_are_for_the_monitoring_namespace_and_the_webhook_for_the_api_servers(chart: list[Manifest]) -> None:
    monitoring = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    for pod in pods(chart):
        for name, port in pod.ports().items():
            # Only kubelet asks whether a process lives; a policy never keeps the pod's own node out.
            expected = {"webhook": [ANYONE], "api": [ANYONE], "extender": [ANYONE], "liveness": []}.get(
                name, monitoring
            )
            assert pod.peers("ingress", port) == expected, (pod.name, name)


@pytest.mark.parametrize("namespace", ["", "monitoring"])
def test_a_policy_without_rules_has_an_empty_list_of_them(render: Render, namespace: str) -> None:
    for each in render(networkPolicies__monitoringNamespace=namespace):
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] != "dovetail-default-deny":
            assert isinstance(each["spec"]["ingress"], list), each["metadata"]["name"]
            assert isinstance(each["spec"]["egress"], list), each["metadata"]["name"]


def test_every_policy_selects_a_pod(chart: list[Manifest]) -> None:
    selecting = [policy for pod in pods(chart) for policy in pod.policies]
    for each in chart:
        if each["kind"] == "NetworkPolicy":
            assert each["spec"] in selecting, each["metadata"]["name"]


def test_known_api_servers_are_the_only_ones_that_reach_the_webhook_and_are_reached(render: Render) -> None:
    ranges = ["10.0.0.4/32", "fd00::4/128"]
    blocks = [{"ipBlock": {"cidr": each}} for each in ranges]
    chart = render(networkPolicies__apiServerCIDRs=ranges, networkPolicies__apiServerPorts=[8443])
    found = {pod.name: pod for pod in pods(chart)}
    webhook, operator = found["dovetail-webhook"], found["dovetail-operator"]
    assert webhook.peers("ingress", webhook.ports()["webhook"]) == blocks
    assert operator.peers("egress", 8443) == blocks
    assert operator.peers("egress", 443) == []


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({}, set()),
        ({"config": {"notify_url": "smtp://mail.example"}}, {25}),
        ({"config": {"notify_url": "smtps://mail.example"}}, {465}),
        ({"config": {"notify_url": "smtp://mail.example:2525"}}, {2525}),
        ({"config": {"notify_url": "http://hooks.example"}}, {80}),
        ({"config": {"history_url": "postgresql://db.example/x"}}, {5432}),
        ({"config": {"history_url": "postgresql://db.example:5433/x"}}, {5433}),
        ({"history__secretName": "pg"}, {5432}),
        ({"notify__secretName": "mail"}, {25, 465, 587}),
        ({"networkPolicies__extraEgress": [{"ports": [{"protocol": "TCP", "port": 9}]}]}, {9}),
    ],
    ids=str,
)
def test_the_operator_reaches_the_servers_that_the_values_name(
    render: Render, values: dict[str, Any], ports: set[int]
) -> None:
    found = {pod.name: pod for pod in pods(render(**values))}
    assert found["dovetail-operator"].reaches() == {53, 443, 6443} | ports
    assert found["dovetail-scheduler"].reaches() == {53, 443, 6443}
    in_database = {5432} if "history__secretName" in values else set()
    assert found["dovetail-gateway"].reaches() == {53, 443, 6443} | in_database


def test_where_no_namespace_is_named_nobody_scrapes(render: Render) -> None:
    for pod in pods(render(networkPolicies__monitoringNamespace="")):
        assert all(
            pod.peers("ingress", port) == [] for name, port in pod.ports().items() if name not in {"webhook", "api"}
        )


def test_they_can_be_left_out(render: Render) -> None:
    assert not [each for each in render(networkPolicies__enabled=False) if each["kind"] == "NetworkPolicy"]


def test_a_range_that_is_none_is_refused(helm: Helm) -> None:
    done = helm("template", "dovetail", str(CHART), '--set-json=networkPolicies.apiServerCIDRs=["10.0.0.4"]')
    assert "at '/networkPolicies/apiServerCIDRs/0': '10.0.0.4' does not match pattern" in done.stderr
