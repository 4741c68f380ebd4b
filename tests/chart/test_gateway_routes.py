"""The gateway is in each release, and the chart makes the route by which browsers outside the cluster reach it."""

from typing import Any

import pytest

from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART

Manifest = dict[str, Any]
URL = "https://gpu.example.com"


def named(chart: list[Manifest], kind: str) -> list[Manifest]:
    return [each for each in chart if each["kind"] == kind and each["metadata"]["name"] == "dovetail-gateway"]


def arguments(chart: list[Manifest]) -> list[str]:
    (deployment,) = named(chart, "Deployment")
    args: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


def test_a_release_has_the_gateway_without_being_told_to_and_no_route(render: Render) -> None:
    chart = render()
    assert len(named(chart, "Deployment")) == len(named(chart, "Service")) == 1
    assert named(chart, "Ingress") == named(chart, "HTTPRoute") == []
    assert not named(render(gateway__enabled=False), "Deployment")


def test_an_ingress_leads_to_the_service_by_the_host_of_the_public_url(render: Render) -> None:
    chart = render(
        gateway__publicURL=f"{URL}:8443/", gateway__ingress__enabled=True, gateway__ingress__className="nginx",
        gateway__ingress__tlsSecretName="gpu-tls", gateway__ingress__annotations={"example.com/stream": "on"},
    )  # fmt: skip
    (ingress,) = named(chart, "Ingress")
    assert ingress["metadata"]["annotations"] == {"example.com/stream": "on"}
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": ["gpu.example.com"], "secretName": "gpu-tls"}]
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    (service,) = named(chart, "Service")
    (port,) = service["spec"]["ports"]
    assert (rule["host"], path["path"], path["pathType"]) == ("gpu.example.com", "/", "Prefix")
    assert path["backend"]["service"] == {"name": "dovetail-gateway", "port": {"name": port["name"]}}
    assert "--allowed-host=gpu.example.com" in arguments(chart)


def test_an_ingress_of_plain_http_has_no_certificate(render: Render) -> None:
    (ingress,) = named(render(gateway__publicURL="http://gpu.local", gateway__ingress__enabled=True), "Ingress")
    assert "tls" not in ingress["spec"]


def test_an_http_route_attaches_to_its_gateways_and_ends_no_stream(render: Render) -> None:
    parents = [{"name": "public", "namespace": "infra"}]
    chart = render(gateway__publicURL=URL, gateway__httpRoute__enabled=True, gateway__httpRoute__parentRefs=parents)
    (route,) = named(chart, "HTTPRoute")
    assert (route["apiVersion"], route["spec"]["parentRefs"]) == ("gateway.networking.k8s.io/v1", parents)
    assert route["spec"]["hostnames"] == ["gpu.example.com"]
    (rule,) = route["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s"}
    (service,) = named(chart, "Service")
    assert rule["backendRefs"] == [{"name": "dovetail-gateway", "port": service["spec"]["ports"][0]["port"]}]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (["gateway.ingress.enabled=true"], "gateway.ingress.enabled is true, but gateway.publicURL is empty"),
        (
            ["gateway.httpRoute.enabled=true", f"gateway.publicURL={URL}"],
            "gateway.httpRoute.enabled is true, but gateway.httpRoute.parentRefs is empty",
        ),
        (
            ["gateway.ingress.enabled=true", "gateway.enabled=false", f"gateway.publicURL={URL}"],
            "gateway.ingress.enabled is true, but gateway.enabled is false",
        ),
        (["gateway.httpRoute.parentRefs[0].namespace=infra"], "missing property 'name'"),
    ],
)
def test_a_route_that_cannot_work_is_refused_in_one_sentence(helm: Helm, values: list[str], says: str) -> None:
    done = helm("template", "dovetail", str(CHART), *(f"--set={each}" for each in values))
    assert done.returncode != 0
    assert says in done.stderr


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([], "port-forward service/dovetail-gateway 8000"),
        ([f"gateway.publicURL={URL}"], URL),
        (["gateway.tlsSecretName=tls"], "https://127.0.0.1:8000/console/"),
        (["webhook.enabled=false", "users.required=false"], "http://127.0.0.1:8000/console/"),
    ],
)
def test_the_notes_say_the_address(helm: Helm, values: list[str], says: str) -> None:
    notes = ["--dry-run=client", "--set=image.registry=example.com", *(f"--set={each}" for each in values)]
    done = helm("install", "dovetail", str(CHART), "--namespace=dovetail-system", *notes)
    assert says in done.stdout.partition("NOTES:")[2], done.stderr
