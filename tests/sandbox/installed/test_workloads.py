"""The chart's containers as processes: small workloads as data, and the chart itself where Helm is at hand."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail_sandbox.errors import ChartError, InvalidInputError
from dovetail_sandbox.installed import chart, workloads
from dovetail_sandbox.state import Component

FOLDER = Path("/state/box")
PLACE = workloads.Place(
    folder=FOLDER, program=lambda command: Path("/bin") / command, kubeconfig=lambda name: FOLDER / "kubeconfigs" / name
)


def make_container(**more: Any) -> dict[str, Any]:
    return {"name": "operator", "command": ["dovetail-operator"], **more}


def make_rendered(*containers: dict[str, Any], volumes: list[dict[str, Any]] | None = None) -> chart.Rendered:
    spec = {"serviceAccountName": "dovetail-pod", "containers": list(containers), "volumes": volumes or []}
    metadata = {"name": "dovetail-operator", "namespace": "dovetail-system"}
    manifests = [
        {"kind": "Deployment", "metadata": metadata, "spec": {"template": {"spec": spec}}},
        {"kind": "ServiceAccount", "metadata": {"name": "dovetail-pod"}},
        {"kind": "ServiceAccount", "metadata": {"name": "dovetail-extender"}},
        {"kind": "ConfigMap", "metadata": {"name": "dovetail-config"}, "data": {"gpu_config.yaml": "a: 1\n"}},
        {"kind": "Secret", "metadata": {"name": "dovetail-webhook"}, "data": {"tls.crt": "Y2VydGlmaWNhdGUK"}},
        {"kind": "Pod", "metadata": {"name": "test", "annotations": {"helm.sh/hook": "test"}}},
    ]
    return chart.split(yaml.safe_dump_all(manifests))


def component(**more: Any) -> Component:
    volumes = more.pop("volumes", None)
    ((_, found),) = workloads.components(make_rendered(make_container(**more), volumes=volumes), place=PLACE)
    return found


CONFIG_VOLUME = [{"name": "config", "configMap": {"name": "dovetail-config"}}]
CONFIG_MOUNT = [{"name": "config", "mountPath": "/etc/dovetail"}]


def test_the_command_line_is_the_one_of_the_cluster() -> None:
    assert component(args=["--metrics-port=8081"]).argv == ["/bin/dovetail-operator", "--metrics-port=8081"]


def test_a_mounted_file_is_the_copy_of_the_config_map() -> None:
    made = component(
        args=["--config=/etc/dovetail/gpu_config.yaml", "--other=/etc/dovetail-scheduler/x"],
        volumes=CONFIG_VOLUME,
        volumeMounts=CONFIG_MOUNT,
    )
    copy = FOLDER / "volumes" / "dovetail-operator" / "config" / "gpu_config.yaml"
    rendered = make_rendered(make_container(), volumes=CONFIG_VOLUME)

    assert made.argv[1:] == [f"--config={copy}", "--other=/etc/dovetail-scheduler/x"]
    assert workloads.files(rendered, place=PLACE) == {copy: "a: 1\n"}


def test_a_single_file_that_is_mounted_is_its_copy() -> None:
    made = component(
        args=["--config=/gpu_config.yaml"],
        volumes=CONFIG_VOLUME,
        volumeMounts=[{"name": "config", "mountPath": "/gpu_config.yaml", "subPath": "gpu_config.yaml"}],
    )

    assert made.argv[1:] == [f"--config={FOLDER}/volumes/dovetail-operator/config/gpu_config.yaml"]


def test_a_path_of_the_machine_stays() -> None:
    made = component(
        args=["--root=/var/lib/kubelet"],
        volumes=[{"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet"}}],
        volumeMounts=[{"name": "kubelet", "mountPath": "/var/lib/kubelet"}],
    )

    assert made.argv[1:] == ["--root=/var/lib/kubelet"]


def test_the_downward_api_and_references_have_values() -> None:
    field = {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    made = component(args=["--namespace=$(POD_NAMESPACE)", "--x=$(NONE)"], env=[field, {"name": "A", "value": "b"}])

    assert made.argv[1:] == ["--namespace=dovetail-system", "--x=$(NONE)"]
    assert made.env == {
        "POD_NAMESPACE": "dovetail-system", "A": "b", "KUBECONFIG": str(FOLDER / "kubeconfigs" / "operator"),
    }  # fmt: skip


def test_a_value_that_no_sandbox_has_is_said() -> None:
    secret = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}

    with pytest.raises(ChartError, match="takes TOKEN from a source that no sandbox has"):
        component(env=[secret])


def test_a_container_without_a_command_is_said() -> None:
    with pytest.raises(ChartError, match="Container operator of dovetail-operator has no command"):
        component(command=[])


@pytest.mark.parametrize(
    ("probe", "url"),
    [
        ({"path": "/readyz", "port": "metrics"}, "http://127.0.0.1:8081/readyz"),
        ({"path": "/readyz", "port": 9000, "scheme": "HTTPS"}, "https://127.0.0.1:9000/readyz"),
    ],
)
def test_the_readiness_probe_is_asked_on_loopback(probe: dict[str, Any], url: str) -> None:
    made = component(readinessProbe={"httpGet": probe}, ports=[{"name": "metrics", "containerPort": 8081}], args=[])

    assert made.ready_url == url


def test_without_a_probe_running_is_enough() -> None:
    assert component().ready_url == ""


def test_a_container_acts_as_its_own_account_where_the_chart_has_one() -> None:
    rendered = make_rendered(make_container(), make_container(name="extender"))

    assert [account for account, _ in workloads.components(rendered, place=PLACE)] == [
        "dovetail-pod", "dovetail-extender",
    ]  # fmt: skip


def test_a_component_can_be_left_out_but_not_an_unknown_one() -> None:
    rendered = make_rendered(make_container(), make_container(name="extender"))

    left = [each.name for _, each in workloads.components(rendered, place=PLACE, without=["operator"])]
    assert left == ["extender"]
    with pytest.raises(InvalidInputError, match="without: 'nobody' is not allowed; use operator, extender"):
        workloads.check_names(rendered, names=["nobody"], option="without")


def test_a_mounted_secret_that_the_chart_does_not_make_is_followed() -> None:
    volumes = [{"name": "c", "secret": {"secretName": name}} for name in ("dovetail-webhook", "made-later")]
    rendered = make_rendered(make_container(), volumes=volumes)
    (followed,) = workloads.secrets_of_others(rendered, place=PLACE)
    assert (followed.name, followed.folder) == ("made-later", FOLDER / "volumes" / "dovetail-operator" / "c")
    assert list(workloads.files(rendered, place=PLACE)) == [followed.folder / "tls.crt"]


def test_a_mounted_secret_is_decoded() -> None:
    rendered = make_rendered(make_container(), volumes=[{"name": "c", "secret": {"secretName": "dovetail-webhook"}}])

    assert workloads.files(rendered, place=PLACE) == {
        FOLDER / "volumes" / "dovetail-operator" / "c" / "tls.crt": "certificate\n"
    }


def test_a_config_map_that_the_chart_does_not_have_is_said() -> None:
    rendered = make_rendered(make_container(), volumes=[{"name": "c", "configMap": {"name": "other"}}])

    with pytest.raises(ChartError, match="mounts ConfigMap other, but has none"):
        workloads.files(rendered, place=PLACE)


def test_hooks_are_neither_run_nor_applied() -> None:
    assert "Pod" not in {each["kind"] for each in make_rendered(make_container()).objects}


def test_the_chart_is_found_in_a_checkout() -> None:
    assert (chart.folder() / "values.yaml").exists()
