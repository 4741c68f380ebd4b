"""Presets: each renders alone and with those that it combines with, and keeps what its page claims."""

import copy
import itertools
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml

from dovetail.config.settings import Settings
from tests.chart.conftest import Helm, objects_in
from tests.chart.generated import CHART

Manifest = dict[str, Any]
Preset = Callable[..., list[Manifest]]
FOLDER = CHART / "presets"
PAGES = CHART.parents[1] / "docs" / "presets"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
NODES = "dovetail-nodes"


def option(*presets: str) -> list[str]:
    return [f"--values={FOLDER / name}.yaml" for name in presets]


@pytest.fixture(scope="session")
def preset(helm: Helm) -> Preset:
    """The objects that the chart makes of one or more presets; each set is rendered once."""

    @cache
    def rendered(*options: str) -> list[Manifest]:
        done = helm("template", "dovetail", str(CHART), "--namespace=dovetail-system", *options)
        assert done.returncode == 0, done.stderr
        return objects_in(done.stdout)

    def objects(*names: str, values: tuple[str, ...] = ()) -> list[Manifest]:
        return copy.deepcopy(rendered(*option(*names), *(f"--set={each}" for each in values)))

    return objects


def of(objects: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pod(objects: list[Manifest], kind: str, name: str) -> Manifest:
    found: Manifest = of(objects, kind)[name]["spec"]["template"]["spec"]
    return found


def history(objects: list[Manifest]) -> tuple[Manifest, Manifest]:
    """The operator's volume, and its variable with the database's URL."""
    operator = pod(objects, "Deployment", "dovetail-operator")
    (volume,) = [each for each in operator["volumes"] if each["name"] == "history"]
    (url,) = [each for each in operator["containers"][0]["env"] if each["name"] == "DOVETAIL_HISTORY_URL"]
    return volume, url


def configuration(objects: list[Manifest]) -> Settings:
    files = of(objects, "ConfigMap")["dovetail-config"]["data"]
    return Settings.model_validate(yaml.safe_load(files["gpu_config.yaml"]))


def test_every_preset_has_a_page_and_every_page_a_preset() -> None:
    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted([*NAMES, "README"])
    index = PAGES.joinpath("README.md").read_text(encoding="utf-8")
    for name in NAMES:
        page = PAGES.joinpath(f"{name}.md").read_text(encoding="utf-8")
        assert f"({name}.md)" in index
        assert f"-f helm/dovetail/presets/{name}.yaml" in page


@pytest.mark.parametrize("name", NAMES)
def test_the_page_names_every_value_that_the_preset_sets(name: str) -> None:
    page = PAGES.joinpath(f"{name}.md").read_text(encoding="utf-8")
    for path in leaves(yaml.safe_load(FOLDER.joinpath(f"{name}.yaml").read_text(encoding="utf-8"))):
        group, _, key = path.rpartition(".")
        assert path in page or (f"`{group}`" in page and f"`{key}`" in page), f"{name}.md: {path}"


def leaves(tree: Any, path: str = "") -> list[str]:
    if not isinstance(tree, dict):
        return [path]
    return [leaf for key, value in tree.items() for leaf in leaves(value, f"{path}.{key}".lstrip("."))]


@pytest.mark.parametrize("name", NAMES)
def test_helm_finds_nothing_to_say_against_a_preset(helm: Helm, name: str) -> None:
    done = helm("lint", "--strict", str(CHART), *option(name))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("names", list(itertools.permutations(["production", "sharing", "vendor"], 2)), ids=str)
def test_presets_combine_in_any_order(preset: Preset, names: tuple[str, ...]) -> None:
    assert configuration(preset(*names))


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_leaves_where_the_images_are_to_the_installer(helm: Helm, name: str) -> None:
    done = helm("template", "dovetail", str(CHART), *option(name), "--set=image.registry=")
    assert "image.registry is empty, and must say where the images are" in done.stderr


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("wrong", "path"),
    [("operator.replicas=-1", "at '/operator/replicas'"), ("config.idle.after=soon", "at '/config/idle/after'")],
)
def test_a_wrong_value_beside_a_preset_is_refused_with_its_path(helm: Helm, name: str, wrong: str, path: str) -> None:
    done = helm("template", "dovetail", str(CHART), *option(name), f"--set={wrong}")
    assert done.returncode != 0
    assert path in done.stderr


def test_a_preset_with_a_key_that_the_chart_lacks_is_refused(helm: Helm, tmp_path: Any) -> None:
    text = FOLDER.joinpath("production.yaml").read_text(encoding="utf-8").replace("monitoring:", "monitorings:")
    changed = tmp_path / "production.yaml"
    changed.write_text(text, encoding="utf-8")
    done = helm("template", "dovetail", str(CHART), f"--values={changed}")
    assert "additional properties 'monitorings' not allowed" in done.stderr


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"evaluation", "observe"}])
def test_the_history_is_never_in_the_pod_but_for_an_evaluation(preset: Preset, name: str) -> None:
    volume, url = history(preset(name))
    assert "persistentVolumeClaim" in volume or "valueFrom" in url


def test_an_evaluation_needs_no_volume_no_runtime_of_nvidia_and_no_other_crds(preset: Preset) -> None:
    chart = preset("evaluation")
    assert "emptyDir" in history(chart)[0]
    assert of(chart, "RuntimeClass")["nvidia"]["handler"] == "runc"
    assert not of(chart, "PersistentVolumeClaim")
    assert not of(chart, "DaemonSet")
    assert not of(chart, "PodDisruptionBudget")
    assert pod(chart, "Deployment", "dovetail-agent")["containers"][0]["args"].count("--provider=simulated") == 1
    assert not {each["apiVersion"] for each in chart if "monitoring.coreos.com" in each["apiVersion"]}


def test_production_has_standbys_that_may_be_drained_one_at_a_time_and_run_on_other_nodes(preset: Preset) -> None:
    chart = preset("production")
    budgets = of(chart, "PodDisruptionBudget")
    pairs = {f"dovetail-{name}" for name in ("operator", "scheduler", "webhook")}
    assert budgets.keys() == pairs
    for name in pairs:
        deployment = of(chart, "Deployment")[name]["spec"]
        labels = deployment["template"]["metadata"]["labels"].items()
        assert deployment["replicas"] == 2
        assert budgets[name]["spec"]["maxUnavailable"] == 1
        assert budgets[name]["spec"]["selector"]["matchLabels"].items() <= labels
        (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
        assert spread["topologyKey"] == "kubernetes.io/hostname"


def test_production_keeps_its_history_in_postgresql_or_on_a_volume(preset: Preset) -> None:
    chart = preset("production")
    assert history(chart)[1]["valueFrom"] == {"secretKeyRef": {"name": "dovetail-history", "key": "url"}}
    assert not of(chart, "PersistentVolumeClaim")
    on_a_volume = preset("production", values=("history.secretName=", "operator.replicas=1"))
    assert history(on_a_volume)[0]["persistentVolumeClaim"] == {"claimName": "dovetail-history"}
    assert "dovetail-operator" not in of(on_a_volume, "PodDisruptionBudget")


def test_production_is_watched_and_closed(preset: Preset) -> None:
    chart = preset("production")
    watched = {f"dovetail-{name}" for name in ("operator", "extender", "agent", "webhook")}
    assert watched <= of(chart, "PodMonitor").keys()
    assert "dovetail" in of(chart, "PrometheusRule")
    assert "dovetail-dashboard" in of(chart, "ConfigMap")
    assert "dovetail-default-deny" in of(chart, "NetworkPolicy")
    assert "dovetail-gpujobs-need-pods" in of(chart, "ValidatingAdmissionPolicy")
    assert pod(chart, "DaemonSet", "dovetail-agent")["runtimeClassName"] == "nvidia"


@pytest.mark.parametrize(
    ("group", "keys"),
    [("preemption", "priority_gap min_run grace per_job per_hour"), ("idle", "after below action grace")],
)
def test_production_s_page_says_the_limits_that_it_sets(preset: Preset, group: str, keys: str) -> None:
    found = getattr(configuration(preset("production")), group).model_dump()
    text = PAGES.joinpath("production.md").read_text(encoding="utf-8")
    for key in keys.split():
        assert f"| `{key}` | {found[key]} |" in text, key


def test_sharing_enforces_parts_turns_and_memory_in_a_namespace_for_what_runs_on_the_nodes(preset: Preset) -> None:
    chart = preset("sharing")
    daemons = of(chart, "DaemonSet")
    assert daemons.keys() == {f"dovetail-{name}" for name in ("agent", "mps", "mps-csi", "thaw")}
    assert {each["metadata"]["namespace"] for each in daemons.values()} == {NODES}
    agent = pod(chart, "DaemonSet", "dovetail-agent")
    assert (agent["hostPID"], agent["runtimeClassName"]) == (True, "nvidia")
    settings = configuration(chart)
    assert (settings.memory_guard, settings.memory_overuse, settings.memory_overuse_grace) == (
        "Conservative", "Evict", 60,
    )  # fmt: skip
    for each in of(chart, "Deployment").values():
        assert each["metadata"]["namespace"] == "dovetail-system"
        assert not [volume for volume in each["spec"]["template"]["spec"]["volumes"] if "hostPath" in volume]


def test_beside_a_vendor_s_plugin_there_is_no_runtime_class_and_no_agent_of_another(preset: Preset) -> None:
    chart = preset("vendor")
    assert not of(chart, "RuntimeClass")
    assert configuration(chart).preferred_node_kind == "Vendor"
    agent = pod(chart, "DaemonSet", "dovetail-agent")
    assert agent["nodeSelector"] == {"dovetail.dev/managed": "true"}
    assert "runtimeClassName" not in agent


def test_the_selector_that_the_page_of_vendors_gives_replaces_the_default(helm: Helm) -> None:
    selector = {"dovetail.dev/managed": None, "example.org/gpu": "yes"}
    done = helm(
        "template", "dovetail", str(CHART), *option("vendor"), f"--set-json=agent.nodeSelector={json.dumps(selector)}"
    )
    assert done.returncode == 0, done.stderr
    chart = objects_in(done.stdout)
    assert pod(chart, "DaemonSet", "dovetail-agent")["nodeSelector"] == {"example.org/gpu": "yes"}


def rules(objects: list[Manifest]) -> list[Manifest]:
    """The rules of all roles."""
    return [rule for each in objects if each["kind"] in {"ClusterRole", "Role"} for rule in each["rules"]]


def test_what_only_observes_may_write_its_own_reports_and_nothing_else(preset: Preset) -> None:
    writing = [rule for rule in rules(preset("observe")) if set(rule["verbs"]) - {"get", "list", "watch"}]
    assert {(*rule["apiGroups"], *rule["resources"]) for rule in writing} == {
        ("dovetail.dev", "gpunodes"),
        ("dovetail.dev", "gpunodes/status"),
    }
    assert {each["kind"] for each in preset("observe")}.isdisjoint(
        {"ValidatingAdmissionPolicy", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "Job"}
    )


def test_what_only_observes_runs_gateway_and_agents(preset: Preset) -> None:
    chart = preset("observe")
    assert set(of(chart, "Deployment")) == {"dovetail-gateway"}
    assert set(of(chart, "DaemonSet")) == {"dovetail-agent-nvidia"}
    # Kubernetes' own roles take in what has such a label.
    labels = [label for each in of(chart, "ClusterRole").values() for label in each["metadata"]["labels"]]
    assert not [label for label in labels if "aggregate" in label]


@pytest.mark.parametrize(
    "value", ["webhook.enabled=true", "policies.enabled=true", "mps.enabled=true", "cleanup.enabled=true"]
)
def test_what_only_observes_comes_with_nothing_that_decides(helm: Helm, value: str) -> None:
    done = helm("template", "dovetail", str(CHART), *option("observe"), f"--set={value}")
    name = value.partition("=")[0]
    assert f"observe.enabled is true, but {name} is true" in done.stderr


def test_what_only_observes_needs_agents_that_read_pods(helm: Helm) -> None:
    done = helm("template", "dovetail", str(CHART), *option("observe"), "--set=agent.readPods=false")
    assert "observe.enabled is true, but agent.readPods is false" in done.stderr
