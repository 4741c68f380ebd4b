"""Single sign-on in the chart: the gateway takes the options, gets the secret as a file, and reaches the provider."""

from typing import Any

import pytest
import yaml

from dovetail_gateway import main
from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART
from tests.chart.test_networkpolicies import pods

PROVIDER: dict[str, Any] = {
    "gateway__enabled": True,
    "gateway__publicURL": "https://gpu.example.com",
    "gateway__oidc__issuer": "https://id.example.com:8443/realm",
    "gateway__oidc__clientID": "web",
    "gateway__oidc__clientSecretName": "oidc-client",
    "gateway__oidc__caConfigMapName": "oidc-ca",
}


def gateway(chart: list[dict[str, Any]]) -> dict[str, Any]:
    (found,) = [
        each for each in chart if each["kind"] == "Deployment" and each["metadata"]["name"] == "dovetail-gateway"
    ]
    pod: dict[str, Any] = found["spec"]["template"]["spec"]
    return pod


def test_the_gateway_takes_the_options_that_the_chart_gives(render: Render) -> None:
    pod = gateway(render(**PROVIDER))
    args = main._parser().parse_args(pod["containers"][0]["args"])
    assert (args.oidc_issuer, args.oidc_client_id) == ("https://id.example.com:8443/realm", "web")
    assert (args.public_url, args.oidc_scopes) == ("https://gpu.example.com", "openid profile email offline_access")
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert str(args.oidc_client_secret_file) == f"{mounts['oidc']}/clientSecret"
    assert volumes["oidc"]["secret"] == {"secretName": "oidc-client"}
    assert str(args.oidc_ca_file) == f"{mounts['oidc-ca']}/ca.crt"
    assert volumes["oidc-ca"]["configMap"] == {"name": "oidc-ca"}


def test_without_a_provider_the_gateway_gets_no_option_of_it(render: Render) -> None:
    assert "oidc" not in yaml.safe_dump(gateway(render(gateway__enabled=True)))


@pytest.mark.parametrize(
    ("issuer", "port"), [("https://id.example.com:8443/realm", 8443), ("https://id.example.com", 443)]
)
def test_the_gateway_reaches_the_provider_s_port(render: Render, issuer: str, port: int) -> None:
    chart = render(**PROVIDER | {"gateway__oidc__issuer": issuer})
    (pod,) = [each for each in pods(chart) if each.name == "dovetail-gateway"]
    assert port in pod.reaches()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("gateway.publicURL=", "needs gateway.oidc.clientID and gateway.publicURL"),
        ("gateway.oidc.clientID=", "needs gateway.oidc.clientID and gateway.publicURL"),
        ("gateway.oidc.issuer=http://id.example.com", "does not match pattern"),
        ("gateway.oidc.scopes={profile}", "scopes"),
    ],
)
def test_half_a_provider_is_refused(helm: Helm, value: str, words: str) -> None:
    names = [f"--set={name.replace('__', '.')}={text}" for name, text in PROVIDER.items()]
    done = helm("template", "dovetail", str(CHART), *names, f"--set={value}")
    assert done.returncode != 0
    assert words in done.stderr
