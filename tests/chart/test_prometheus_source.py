"""Prometheus as the source of the console's curves, as the chart gives it to the gateway."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail_gateway import main
from dovetail_gateway.samples.options import prometheus_of
from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART
from tests.chart.test_networkpolicies import pods
from tests.chart.test_single_sign_on import gateway

NAMED: dict[str, Any] = {
    "gateway__enabled": True,
    "gateway__prometheus__url": "https://prometheus.monitoring.svc:9090",
    "gateway__prometheus__labels__cluster": "berlin",
    "gateway__prometheus__caConfigMapName": "monitoring-ca",
    "gateway__prometheus__tokenSecretName": "monitoring-token",
}


def test_the_gateway_takes_the_options_that_the_chart_gives(render: Render) -> None:
    pod = gateway(render(**NAMED))
    args = main._parser().parse_args(pod["containers"][0]["args"])
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert args.prometheus_ca_file == Path(mounts["prometheus-ca"]) / "ca.crt"
    assert args.prometheus_token_file == Path(mounts["prometheus"]) / "token"
    assert volumes["prometheus-ca"]["configMap"] == {"name": "monitoring-ca"}
    assert volumes["prometheus"]["secret"] == {"secretName": "monitoring-token"}
    args.prometheus_ca_file = None
    found = prometheus_of(args)
    assert found is not None
    assert (found.url, found.labels) == ("https://prometheus.monitoring.svc:9090", {"cluster": "berlin"})


def test_without_one_the_gateway_gets_no_option_of_it(render: Render) -> None:
    assert "prometheus" not in yaml.safe_dump(gateway(render(gateway__enabled=True)))


@pytest.mark.parametrize(("url", "port"), [(NAMED["gateway__prometheus__url"], 9090), ("https://prom", 443)])
def test_the_gateway_reaches_its_port(render: Render, url: str, port: int) -> None:
    chart = render(**NAMED | {"gateway__prometheus__url": url})
    (pod,) = [each for each in pods(chart) if each.name == "dovetail-gateway"]
    assert port in pod.reaches()


@pytest.mark.parametrize("url", ["prom:9090", "https://user:secret@prom", "https://prom?x=1"])
def test_another_address_is_refused(helm: Helm, url: str) -> None:
    done = helm("template", "dovetail", str(CHART), "--set=gateway.enabled=true", f"--set=gateway.prometheus.url={url}")
    assert done.returncode != 0
    assert "does not match pattern" in done.stderr
