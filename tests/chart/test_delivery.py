"""What the chart renders for devices by NVIDIA's NRI plugin. tests/realnode/test_nri.py shows what the policies do."""

from typing import Any

from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART

Manifest = dict[str, Any]
KEY = "nvidia.cdi.k8s.io/container."


def policy(chart: list[Manifest], name: str) -> str:
    (found,) = [
        each
        for each in chart
        if each["kind"] == "ValidatingAdmissionPolicy" and each["metadata"]["name"] == f"dovetail-{name}"
    ]
    return str(found["spec"])


def agent(chart: list[Manifest]) -> dict[str, str]:
    (found,) = [each for each in chart if each["kind"] == "DaemonSet" and each["metadata"]["name"] == "dovetail-agent"]
    annotations: dict[str, str] = found["spec"]["template"]["metadata"]["annotations"]
    return annotations


def test_only_with_the_plugin_may_the_extender_name_devices_in_a_binding(render: Render) -> None:
    by_class, by_plugin = render(), render(config__delivery="NRI")
    assert KEY not in policy(by_class, "bindings")
    assert KEY in policy(by_plugin, "bindings")
    assert "dovetail-extender" in policy(by_plugin, "bindings")


def test_with_the_plugin_no_one_removes_the_names_either(render: Render) -> None:
    assert "(variables.annotationsWritten.filter" in policy(render(), "pods")
    assert "(variables.annotationsWritten.filter" not in policy(render(config__delivery="NRI"), "pods")
    assert "(variables.annotationsChanged.filter" in policy(render(config__delivery="NRI"), "pods")


def test_with_the_plugin_the_agent_asks_it_for_the_management_device(render: Render) -> None:
    assert agent(render(config__delivery="NRI"))[f"{KEY}agent"] == "management.nvidia.com/gpu=all"
    assert not [key for key in agent(render()) if "cdi.k8s.io" in key]


def test_mps_and_an_unknown_delivery_are_refused(helm: Helm) -> None:
    mps = helm("template", "dovetail", str(CHART), "--set=config.delivery=NRI", "--set=mps.enabled=true")
    assert "mps.enabled is true, but config.delivery is NRI" in mps.stderr
    unknown = helm("template", "dovetail", str(CHART), "--set=config.delivery=CDI")
    assert "at '/config/delivery'" in unknown.stderr
