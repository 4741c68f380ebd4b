import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dovetail import names
from dovetail.config.credentials import exposed
from dovetail.config.settings import Settings
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from tests.chart.conftest import Helm, Render
from tests.chart.generated import BEGIN, CHART, END, IMAGES, config_schema, table, values

ROOT = CHART.parents[1]
WORKLOADS = ("Deployment", "DaemonSet")
# Those with an image of ours.
DEPLOYABLES = ("operator", "extender", "agent", "webhook", "certificates", "gateway")
# Every template is rendered by the one or the other.
EVERYTHING = {"monitoring__podMonitor__enabled": True, "monitoring__dashboard__enabled": True}


@pytest.fixture(params=[False, True], ids=["per-node agents", "one agent for simulated nodes"])
def chart(render: Render, request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return render(simulation__enabled=request.param, **EVERYTHING)


def of_kind(objects: list[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    found = [each for each in objects if each["kind"] in kinds]
    assert found, f"the chart has no {' or '.join(kinds)}"
    return found


def named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    (found,) = [each for each in of_kind(objects, kind) if each["metadata"]["name"] == name]
    return found


def pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each["spec"]["template"]["spec"] for each in of_kind(objects, *WORKLOADS)}


def containers(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for pod in pods(objects).values() for each in pod["containers"]}


def test_helm_finds_nothing_to_say_against_it(helm: Helm) -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("value", ["operator.metricPort", "agents", "scheduler.image.digst", "crds.instal"])
def test_an_unknown_value_is_refused_by_its_name(helm: Helm, value: str) -> None:
    done = helm("template", "dovetail", str(CHART), f"--set={value}=1")
    assert done.returncode != 0
    assert f"additional properties '{value.rsplit('.', maxsplit=1)[-1]}' not allowed" in done.stderr


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("extender.port=0", "at '/extender/port': minimum: got 0, want 1"),
        ("agent.provider=nvlm", "at '/agent/provider': value must be"),
        ("config.monitor_update_intervall=10", "additional properties 'monitor_update_intervall' not allowed"),
        ("config.tenants_per_device=0", "at '/config/tenants_per_device': minimum: got 0, want 1"),
        (
            "extender.timeoutSeconds=4",
            "extender.timeoutSeconds is 4, but must be above config.bind_deadline_seconds, which is 4",
        ),
        (
            "operator.replicas=2,history.persistence.enabled=false",
            "each operator would keep a history of its own: set one of the two",
        ),
        (
            "config.topology_levels={rack=a/rack,block=a/block,rack=b/rack}",
            "each name and each label is allowed once, and config.topology_levels[0] has rack",
        ),
        (
            "config.topology_levels={rack=a/rack,block=a/rack}",
            "config.topology_levels[1] is block=a/rack, but each name and each label is allowed once",
        ),
        (
            "config.hold_ttl_seconds=4",
            "config.bind_deadline_seconds is 4, but must be below config.hold_ttl_seconds, which is 4",
        ),
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of"),
        ("config.growing.pools.a100.gpus=0", "at '/config/growing/pools/a100/gpus': minimum: got 0, want 1"),
        ("config.growing.pools.A_1.gpus=8", "at '/config/growing/pools': additional properties 'A_1' not allowed"),
    ],
)
def test_a_bad_value_is_refused_with_what_is_allowed(helm: Helm, value: str, sentence: str) -> None:
    done = helm("template", "dovetail", str(CHART), f"--set={value}")
    assert sentence in done.stderr


def test_a_level_of_the_topology_may_have_the_name_of_anothers_label(helm: Helm) -> None:
    levels = "config.topology_levels={rack=zone,zone=rack}"
    done = helm("template", "dovetail", str(CHART), "--set=image.registry=registry.test", f"--set={levels}")
    assert "- rack=zone\n" in done.stdout, done.stderr


def test_the_schema_is_closed_and_describes_every_value() -> None:
    schema = json.loads(CHART.joinpath("values.schema.json").read_text(encoding="utf-8"))
    assert schema["additionalProperties"] is False
    for path, _, description in values():
        at = schema
        for key in path.split("."):
            assert at["additionalProperties"] is False, f"{path} stands in an open object"
            at = at["properties"][key]
        assert at["description"] == description


def test_the_schema_knows_the_keys_of_the_configuration_and_no_other() -> None:
    schema = json.loads(CHART.joinpath("values.schema.json").read_text(encoding="utf-8"))
    assert schema["properties"]["config"] == config_schema(), "run `python -m tests.chart.generated`"


def test_no_map_of_the_configuration_takes_anything() -> None:
    assert [path for path, each in objects_of(config_schema()) if "additionalProperties" not in each] == []


def objects_of(schema: dict[str, Any], path: str = "config") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each object of a schema with its path."""
    if schema.get("type") == "object":
        yield path, schema
    inner = {**schema.get("properties", {}), **schema.get("patternProperties", {})}
    inner |= {each: schema[each] for each in ("items", "additionalProperties") if isinstance(schema.get(each), dict)}
    for name, below in inner.items():
        yield from objects_of(below, f"{path}/{name}")
    for option in schema.get("anyOf", ()):
        yield from objects_of(option, path)


def test_the_readme_lists_every_value() -> None:
    readme = CHART.joinpath("README.md").read_text(encoding="utf-8")
    assert f"{BEGIN}\n{table()}\n{END}" in readme, "run `python -m tests.chart.generated`"


def test_the_chart_carries_exact_copies_of_the_dashboards() -> None:
    copies, originals = (
        {path.name: path.read_text(encoding="utf-8") for path in folder.glob("dashboards/*.json")}
        for folder in (CHART, ROOT)
    )
    assert copies == originals


def test_the_crds_outlive_the_release(chart: list[dict[str, Any]]) -> None:
    crds = of_kind(chart, "CustomResourceDefinition")
    kinds = {crd["metadata"]["name"].removesuffix(f".{names.GROUP}") for crd in crds}
    assert kinds == {"gpujobs", "gpunodes", "gpunodetenants", "gpuquotas", "historyqueries"}
    assert all(crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep" for crd in crds)


def test_the_crds_can_be_left_out(render: Render) -> None:
    assert not [each for each in render(crds__install=False) if each["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize("issuer", ["", "site"])
def test_no_program_can_have_objects_converted(render: Render, issuer: str) -> None:
    """Who holds a conversion webhook, or may write a CRD, rewrites what administrators write."""
    manifests = render(webhook__issuer__name=issuer)
    crds = of_kind(manifests, "CustomResourceDefinition")
    assert crds
    for crd in crds:
        assert ([each["name"] for each in crd["spec"]["versions"]], "conversion" in crd["spec"]) == (["v1beta1"], False)
    roles = of_kind(manifests, "Role", "ClusterRole")
    rules = [rule for role in roles for rule in role["rules"] if "customresourcedefinitions" in rule["resources"]]
    assert {verb for rule in rules for verb in rule["verbs"]} <= {"get", "list", "watch"}


def test_no_role_has_a_wildcard(chart: list[dict[str, Any]]) -> None:
    for role in of_kind(chart, "Role", "ClusterRole"):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], role["metadata"]["name"]


# Who keeps or removes Secrets, each by its name.
OF_SECRETS = {"dovetail-certificates", "dovetail-trust", "dovetail-cleanup"}
# The other verbs on pods. The policy dovetail-pods lets the operator open the gate of a pod and change one annotation.
# Helm's hooks: the cleanup deletes the pod of a failed test by its name, and the test creates a GPUJob, for which a
# policy may demand that right.
ON_PODS = {
    ("dovetail-operator", "pods"): {"patch"},
    ("dovetail-operator", "pods/status"): {"patch"},
    ("dovetail-cleanup", "pods"): {"delete"},
    ("dovetail-test", "pods"): {"create"},
}


def test_no_component_may_read_any_secret_or_change_any_pod(chart: list[dict[str, Any]]) -> None:
    for role in of_kind(chart, "Role", "ClusterRole"):
        name = role["metadata"]["name"]
        for rule in role["rules"]:
            assert "secrets" not in rule["resources"] or (name in OF_SECRETS and rule["resourceNames"])
            assert (
                name != "dovetail-cleanup"
                or "delete" not in rule["verbs"]
                or "pods" not in rule["resources"]
                or (rule["resourceNames"] == ["dovetail-test"])
            )
            for resource in {"pods", "pods/status"} & set(rule["resources"]):
                assert set(rule["verbs"]) <= {"get", "list", "watch", *ON_PODS.get((name, resource), ())}


def test_operators_side_by_side_may_be_drained_one_at_a_time(render: Render) -> None:
    alone, pair = render(), render(operator__replicas=2, history__secretName="history")
    budgets = [each["metadata"]["name"] for each in alone if each["kind"] == "PodDisruptionBudget"]
    assert "dovetail-operator" not in budgets
    assert named(pair, "Deployment", "dovetail-operator")["spec"]["replicas"] == 2
    budget = named(pair, "PodDisruptionBudget", "dovetail-operator")["spec"]
    labels = named(pair, "Deployment", "dovetail-operator")["spec"]["template"]["metadata"]["labels"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= labels.items()


def is_budget(each: dict[str, Any], component: str) -> bool:
    return each["kind"] == "PodDisruptionBudget" and each["metadata"]["name"] == f"dovetail-{component}"


def test_schedulers_side_by_side_are_on_other_nodes_and_may_be_drained_one_at_a_time(render: Render) -> None:
    alone, pair = render(), render(scheduler__replicas=2)
    assert not [each for each in alone if is_budget(each, "scheduler")]
    deployment = named(pair, "Deployment", "dovetail-scheduler")["spec"]
    (budget,) = [each["spec"] for each in pair if is_budget(each, "scheduler")]
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert deployment["replicas"] == 2
    assert budget["maxUnavailable"] == 1
    labels = deployment["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


def test_a_chart_without_the_place_of_its_images_is_refused_with_the_commands_that_bring_them(helm: Helm) -> None:
    done = helm("template", "dovetail", str(CHART), "--set=image.registry=")
    assert done.returncode != 0
    for command in (
        "images/build.sh",
        "ctr -n k8s.io images import ARCHIVE",
        "--set image.registry=dovetail.local",
        "--set image.registry=REGISTRY/dovetail --set image.tag=TAG",
    ):
        assert command in done.stderr


def test_operators_that_share_a_volume_of_one_node_share_the_node(render: Render) -> None:
    def pod(**values: Any) -> dict[str, Any]:
        return pods(render(operator__replicas=2, **values))["dovetail-operator"]

    volume = {"history__persistence__enabled": True}
    assert "podAffinity" in pod(**volume)["affinity"]
    # The evicted one finds no other node; a budget would keep the other one there, and the drain would never end.
    assert not [each for each in render(operator__replicas=2) if is_budget(each, "operator")]
    apart = pod(history__secretName="pg")
    assert "affinity" not in apart
    assert "topologySpreadConstraints" in apart


def test_an_update_starts_the_next_pod_before_the_active_one_ends(render: Render) -> None:
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    for chart, name in (
        (render(), "dovetail-scheduler"),
        (render(attach__enabled=True), "dovetail-extender"),
        (render(), "dovetail-operator"),
        (render(history__secretName="pg"), "dovetail-operator"),
    ):
        assert named(chart, "Deployment", name)["spec"]["strategy"] == surge
    # The next operator can only mount the volume where the active one is.
    assert "podAffinity" in pods(render())["dovetail-operator"]["affinity"]


@pytest.mark.parametrize(
    "values",
    [
        {"history__persistence__existingClaim": "mine"},
        {"history__persistence__accessModes": ["ReadWriteOncePod"]},
    ],
    ids=["a claim of the site", "ReadWriteOncePod"],
)
def test_operators_that_cannot_share_a_volume_replace_each_other(render: Render, values: dict[str, Any]) -> None:
    chart = render(**values)
    assert named(chart, "Deployment", "dovetail-operator")["spec"]["strategy"] == {"type": "Recreate"}
    assert "affinity" not in pods(chart)["dovetail-operator"]


def test_sqlite_is_refused_a_volume_that_several_nodes_share_and_postgresql_is_not(render: Render) -> None:
    shared = {"history__persistence__enabled": True, "history__persistence__accessModes": ["ReadWriteMany"]}
    with pytest.raises(AssertionError, match="has ReadWriteMany, but the history is SQLite"):
        render(**shared)
    assert render(**shared, history__secretName="pg")
    assert render(history__persistence__enabled=True, history__persistence__accessModes=["ReadWriteOncePod"])


def test_to_ask_what_ran_takes_edit_and_to_read_an_answer_view(chart: list[dict[str, Any]]) -> None:
    def verbs(role: str) -> list[str]:
        rules = named(chart, "ClusterRole", role)["rules"]
        return sorted({verb for rule in rules if "historyqueries" in rule["resources"] for verb in rule["verbs"]})

    assert verbs("dovetail-view") == ["get", "list", "watch"]
    assert verbs("dovetail-edit") == ["create", "delete"]


def test_by_what_people_are_told_of_jobs_comes_from_a_secret_where_one_is_named(render: Render) -> None:
    def urls(**values: Any) -> list[Any]:
        env = containers(render(**values))["operator"]["env"]
        return [each["valueFrom"] for each in env if each["name"] == "DOVETAIL_NOTIFY_URL"]

    assert urls() == []
    assert urls(notify__secretName="mail") == [{"secretKeyRef": {"name": "mail", "key": "url"}}]


@pytest.mark.parametrize(("key", "url", "found", "secret"), [
    ("history_url", "postgresql://me:geheim@db/x", "a password before its host", "history.secretName"),
    ("history_url", "postgresql://me@db/x?password=geheim", "a password in its query", "history.secretName"),
    ("samples_url", "postgresql://me:geheim@db/x", "a password before its host", "history.secretName"),
    ("notify_url", "smtp://me:geheim@mail:587", "a password before its host", "notify.secretName"),
    ("notify_url", "https://hooks.example.org/services/geheim", "a path, which is what", "notify.secretName"),
])  # fmt: skip
def test_a_url_with_a_credential_is_refused_where_every_account_could_read_it(
    helm: Helm, key: str, url: str, found: str, secret: str
) -> None:
    done = helm("template", "dovetail", str(CHART), f"--set-json=config.{key}={json.dumps(url)}")
    assert done.returncode != 0
    assert f"config.{key} has {found}" in done.stderr
    assert f"name that in {secret}" in done.stderr
    # The loader refuses the same.
    assert found in exposed({key: url})


@pytest.mark.parametrize(("key", "url"), [
    ("history_url", "postgresql://me@/x?host=/run/postgresql"), ("history_url", "sqlite:////var/lib/dovetail/history.db"),
    ("notify_url", "smtp://mail.example.org:25"), ("notify_url", "https://hooks.example.org:8443/"), ("notify_url", ""),
])  # fmt: skip
def test_a_url_without_a_credential_may_be_in_the_configuration(render: Render, key: str, url: str) -> None:
    config = named(render(**{f"config__{key}": url}), "ConfigMap", "dovetail-config")["data"]["gpu_config.yaml"]
    assert yaml.safe_load(config)[key] == url
    assert exposed({key: url}) == ""


def test_the_history_is_on_a_volume_unless_a_database_or_the_pod_is_asked_for(render: Render) -> None:
    def volume_and_url(**values: Any) -> tuple[Any, Any]:
        chart = render(**values)
        (volume,) = [each for each in pods(chart)["dovetail-operator"]["volumes"] if each["name"] == "history"]
        env = {each["name"]: each for each in containers(chart)["operator"]["env"]}
        return volume, env["DOVETAIL_HISTORY_URL"]

    file = "sqlite:////var/lib/dovetail/history.db"
    volume, url = volume_and_url()
    assert (volume["persistentVolumeClaim"], url["value"]) == ({"claimName": "dovetail-history"}, file)
    volume, url = volume_and_url(history__persistence__enabled=False)
    assert (volume["emptyDir"], url["value"]) == ({}, file)
    assert named(render(), "PersistentVolumeClaim", "dovetail-history")["metadata"]["annotations"] == {
        "helm.sh/resource-policy": "keep"
    }
    volume, url = volume_and_url(history__secretName="pg")
    assert ("emptyDir" in volume, url["valueFrom"]) == (True, {"secretKeyRef": {"name": "pg", "key": "url"}})


@pytest.mark.parametrize("more", [{}, {"history__secretName": "pg"}, {"operator__replicas": 2}], ids=str)
def test_without_a_history_the_operator_is_told_so_and_has_no_volume(render: Render, more: dict[str, Any]) -> None:
    chart = render(history__enabled=False, **more)
    (url,) = [each for each in containers(chart)["operator"]["env"] if each["name"] == "DOVETAIL_HISTORY_URL"]
    assert url["value"] == "none"
    (volume,) = [each for each in pods(chart)["dovetail-operator"]["volumes"] if each["name"] == "history"]
    assert volume["emptyDir"] == {}
    claims = {each["metadata"]["name"] for each in chart if each["kind"] == "PersistentVolumeClaim"}
    assert claims == (set() if more.get("history__secretName") else {"dovetail-samples"})


def test_samples_are_on_a_volume_of_one_gateway_or_in_the_history_s_database(render: Render) -> None:
    def found(**values: Any) -> tuple[Any, Any, str]:
        chart = render(**values)
        volumes = {each["name"]: each for each in pods(chart)["dovetail-gateway"]["volumes"]}
        env = {each["name"]: each for each in containers(chart)["gateway"]["env"]}
        strategy = named(chart, "Deployment", "dovetail-gateway")["spec"].get("strategy", {"type": "RollingUpdate"})
        return volumes.get("samples"), env["DOVETAIL_SAMPLES_URL"], strategy["type"]

    file = {"name": "DOVETAIL_SAMPLES_URL", "value": "sqlite:////var/lib/dovetail/samples.db"}
    claim = {"name": "samples", "persistentVolumeClaim": {"claimName": "dovetail-samples"}}
    assert found() == (claim, file, "Recreate")
    assert named(render(), "PersistentVolumeClaim", "dovetail-samples")["metadata"]["annotations"] == {
        "helm.sh/resource-policy": "keep"
    }
    in_pod = ({"name": "samples", "emptyDir": {}}, file, "RollingUpdate")
    for other in (
        {"history__persistence__enabled": False},
        {"gateway__replicas": 2},
    ):
        assert found(**other) == in_pod
        assert "dovetail-samples" not in [each["metadata"]["name"] for each in render(**other)]
    volume, url, _ = found(history__secretName="pg", gateway__replicas=2)
    assert (volume, url["valueFrom"]) == (None, {"secretKeyRef": {"name": "pg", "key": "url"}})


def test_only_the_extender_may_bind(chart: list[dict[str, Any]]) -> None:
    roles = of_kind(chart, "Role", "ClusterRole")
    binders = [each["metadata"]["name"] for each in roles if "pods/binding" in json.dumps(each["rules"])]
    assert binders == ["dovetail-extender"]


def test_every_account_in_a_binding_exists(chart: list[dict[str, Any]]) -> None:
    accounts = {each["metadata"]["name"] for each in of_kind(chart, "ServiceAccount")}
    bound = {
        subject["name"]
        for each in of_kind(chart, "RoleBinding", "ClusterRoleBinding")
        for subject in each["subjects"]
        if subject["kind"] == "ServiceAccount"
    }
    programs = ("operator", "scheduler", "extender", "agent", "certificates", "gateway", "trust", "cleanup", "test")
    assert bound == {f"dovetail-{name}" for name in programs}
    # The webhook asks the API server nothing.
    assert accounts == {*bound, "dovetail-webhook"}
    assert {pod["serviceAccountName"] for pod in pods(chart).values()} <= accounts


def test_every_container_has_no_privilege(chart: list[dict[str, Any]]) -> None:
    for pod in pods(chart).values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert all("hostPath" not in volume for volume in pod["volumes"])
    for container in containers(chart).values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_every_container_has_probes_requests_and_a_memory_limit(chart: list[dict[str, Any]]) -> None:
    for name, container in containers(chart).items():
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports, f"{name}: {probe}"
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]


def test_a_port_is_set_in_one_place(render: Render) -> None:
    chart = render(
        extender__port=7001, extender__metricsPort=7002, operator__metricsPort=7003, agent__metricsPort=7004,
        webhook__metricsPort=7005,
    )  # fmt: skip
    extender = containers(chart)["extender"]
    config = yaml.safe_load(named(chart, "ConfigMap", "dovetail-scheduler")["data"]["scheduler.yaml"])
    assert {"--host=127.0.0.1", "--port=7001", "--metrics-port=7002"} <= set(extender["args"])
    assert config["extenders"][0]["urlPrefix"] == "http://127.0.0.1:7001"
    for name, port in {"extender": 7002, "operator": 7003, "agent": 7004, "webhook": 7005}.items():
        assert f"--metrics-port={port}" in containers(chart)[name]["args"]
        assert {"name": "metrics", "containerPort": port} in containers(chart)[name]["ports"]


def test_kube_scheduler_sends_exactly_our_pods_to_the_extender(chart: list[dict[str, Any]]) -> None:
    config = yaml.safe_load(named(chart, "ConfigMap", "dovetail-scheduler")["data"]["scheduler.yaml"])
    (profile,), (extender,) = config["profiles"], config["extenders"]
    assert (profile["schedulerName"], profile["percentageOfNodesToScore"]) == (names.SCHEDULER_NAME, 100)
    managed = [each["name"] for each in extender["managedResources"]]
    assert managed == [*names.MANAGED_RESOURCES, *sorted(DEFAULT_VENDORS.resources)]
    assert extender["ignorable"] is False
    assert extender["nodeCacheCapable"] is True
    assert [extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")] == [
        "filter", "prioritize", "preempt", "bind",
    ]  # fmt: skip


def test_pods_that_ask_a_configured_vendor_s_resource_come_to_the_extender_too(render: Render) -> None:
    chart = render(config={"gpu_resource": {"xe": "gpu.intel.com/xe", "intel": "gpu.intel.com/other"}})
    config = yaml.safe_load(named(chart, "ConfigMap", "dovetail-scheduler")["data"]["scheduler.yaml"])
    resources = {each["name"]: each["ignoredByScheduler"] for each in config["extenders"][0]["managedResources"]}
    settings = Settings(gpu_resource={"xe": "gpu.intel.com/xe", "intel": "gpu.intel.com/other"})
    assert resources == dict.fromkeys([*names.MANAGED_RESOURCES, *settings.vendors.resources], False)


def test_the_agent_on_a_node_serves_that_node(render: Render) -> None:
    agent = named(render(), "DaemonSet", "dovetail-agent")["spec"]["template"]["spec"]
    assert agent["nodeSelector"] == {names.LABEL_MANAGED: "true"}
    assert "--node=$(NODE_NAME)" in agent["containers"][0]["args"]


def test_the_agent_on_a_node_looks_at_all_its_cards_and_asks_for_nothing_else(render: Render) -> None:
    agent = named(render(), "DaemonSet", "dovetail-agent")["spec"]["template"]["spec"]
    container = agent["containers"][0]
    seen = {each["name"]: each.get("value") for each in container["env"]}
    assert "--provider=auto" in container["args"]
    assert (seen["NVIDIA_VISIBLE_DEVICES"], seen["NVIDIA_DRIVER_CAPABILITIES"]) == ("all", "utility")
    assert not {"runtimeClassName", "hostPID"} & agent.keys()
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_agent_sees_library_and_processes_where_that_is_asked(render: Render) -> None:
    chart = render(agent__runtimeClassName="nvidia", agent__hostPID=True, agent__provider="nvml")
    agent = named(chart, "DaemonSet", "dovetail-agent")["spec"]["template"]["spec"]
    assert (agent["runtimeClassName"], agent["hostPID"]) == ("nvidia", True)
    assert "--provider=nvml" in agent["containers"][0]["args"]


def test_an_agent_that_simulates_asks_for_no_cards(render: Render) -> None:
    chart = render(simulation__enabled=True, agent__runtimeClassName="nvidia", agent__hostPID=True)
    agent = named(chart, "Deployment", "dovetail-agent")["spec"]["template"]["spec"]
    assert not {"runtimeClassName", "hostPID"} & agent.keys()
    assert "--provider=simulated" in agent["containers"][0]["args"]
    for each in (
        agent,
        named(render(agent__provider="simulated"), "DaemonSet", "dovetail-agent")["spec"]["template"]["spec"],
    ):
        assert "NVIDIA_VISIBLE_DEVICES" not in {env["name"] for env in each["containers"][0].get("env", [])}


def test_partitioning_that_the_agents_may_not_do_is_refused(helm: Helm) -> None:
    asked = ("--set=config.mig_reshape.enabled=true",)
    done = helm("template", "d", str(CHART), IMAGES, *asked)
    assert done.returncode != 0
    assert "config.mig_reshape.enabled is true, but needs agent.reshape.enabled=true" in done.stderr
    for allowed in ("--set=agent.reshape.enabled=true", "--set=simulation.enabled=true"):
        assert helm("template", "d", str(CHART), IMAGES, *asked, allowed).returncode == 0


def test_the_simulated_agent_serves_every_node(render: Render) -> None:
    agent = named(render(simulation__enabled=True), "Deployment", "dovetail-agent")["spec"]["template"]["spec"]
    assert "nodeSelector" not in agent
    assert not [each for each in agent["containers"][0]["args"] if each.startswith("--node")]


def test_a_changed_configuration_restarts_what_reads_it(render: Render) -> None:
    def checksums(chart: list[dict[str, Any]]) -> list[str]:
        return [
            each["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for each in of_kind(chart, *WORKLOADS)
        ]

    before, after = checksums(render()), checksums(render(config={"log_level": "debug"}))
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_a_digest_pins_an_image(render: Render) -> None:
    digest = f"sha256:{'a' * 64}"
    chart = render(operator__image__digest=digest, scheduler__image__digest=digest)
    assert containers(chart)["operator"]["image"] == f"dovetail.local/operator@{digest}"
    assert containers(chart)["kube-scheduler"]["image"] == f"registry.k8s.io/kube-scheduler@{digest}"
    assert containers(chart)["agent"]["image"] == "dovetail.local/agent:dev"


def test_classes_that_pods_refer_to_carry_the_contract_s_names(chart: list[dict[str, Any]]) -> None:
    assert [each["metadata"]["name"] for each in of_kind(chart, "RuntimeClass")] == [names.RUNTIME_CLASS]
    policies = {each["metadata"]["name"]: each["preemptionPolicy"] for each in of_kind(chart, "PriorityClass")}
    assert policies == {names.PRIORITY_CLASS: "Never", names.PLACEHOLDER_CLASS: "Never"}


def test_a_pod_monitor_selects_the_pods_of_each_component(chart: list[dict[str, Any]]) -> None:
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in of_kind(chart, *WORKLOADS)]
    monitors = of_kind(chart, "PodMonitor")
    assert len(monitors) == 6
    for monitor in monitors:
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        assert len([each for each in labels if wanted <= each.items()]) == 1
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        # Otherwise the namespace and pod of a metric would be those of the pod that serves it.
        assert (endpoint["port"], endpoint["honorLabels"]) == ("metrics", True)


def test_nothing_but_the_authentication_reader_leaves_the_release_s_namespace(chart: list[dict[str, Any]]) -> None:
    foreign = {
        each["metadata"]["name"]
        for each in chart
        if each["metadata"].get("namespace", "dovetail-system") != "dovetail-system"
    }
    assert foreign == {"dovetail-scheduler-authentication-reader"}


def test_the_templates_name_no_key_that_the_values_lack() -> None:
    known = {path for path, _, _ in values()}
    parents = {path.rsplit(".", depth)[0] for path in known for depth in range(1, 4)}
    for template in CHART.glob("templates/*"):
        for path in re.findall(r"\.Values\.([\w.]+)", template.read_text(encoding="utf-8")):
            assert path in known | parents, f"{template.name}: {path}"


def test_an_image_without_a_digest_is_refused_where_digests_are_required(helm: Helm) -> None:
    pinned = [f"--set={name}.image.digest=sha256:{'a' * 64}" for name in DEPLOYABLES]
    command = ("template", "dovetail", str(CHART), "--set=image.requireDigests=true", *pinned)
    refused = helm(*command)
    assert refused.returncode != 0
    assert (
        "scheduler.image.digest is empty: image.requireDigests asks for the sha256:… of registry.k8s.io"
        in refused.stderr
    )
    taken = helm(*command, f"--set=scheduler.image.digest=sha256:{'b' * 64}")
    assert taken.returncode == 0, taken.stderr
    images = re.findall(r"image: (\S+)", taken.stdout)
    assert images
    assert all("@sha256:" in image for image in images)


def test_a_cluster_that_is_too_old_is_refused_before_anything_is_created(helm: Helm) -> None:
    done = helm("template", "dovetail", str(CHART), "--kube-version=1.32.0")
    assert done.returncode != 0
    assert "requires kubeVersion: >=1.33.0-0 which is incompatible with Kubernetes v1.32.0" in done.stderr
