"""The webhook and the policies as the chart makes them; what they refuse is tried in tests/cluster."""

import json
import re
from typing import Any

import pytest

from dovetail import names
from dovetail.config.settings import Settings
from dovetail.jobs.guests.pod_group import is_run_of_pods
from dovetail.jobs.guests.registry import KINDS
from dovetail.pods.translation.resources import FOREIGN
from dovetail_agent.report.node_labels import LABELS
from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART

Objects = list[dict[str, Any]]
# By policy, whose lease its terms are of.
LEASES = {"dovetail-terms": "dovetail-extender", "dovetail-operator-terms": "dovetail-operator"}
OURS = (
    "bindings",
    "pods",
    "runtime-classes",
    "users",
    "gpujobs-need-pods",
    "counted-quotas",
    "owners",
    "priorities",
    "guests",
    "queue-only",
)
POLICIES = {*LEASES, *(f"dovetail-{name}" for name in OURS)}
# Of policies that look at another object too: which.
EVERY_ONE = {"selector": {}, "parameterNotFoundAction": "Allow"}
OTHERS = {"matchExpressions": [{"key": "app.kubernetes.io/part-of", "operator": "NotIn", "values": ["dovetail"]}]}
PARAMETERS = {"dovetail-runtime-classes": {**EVERY_ONE, "selector": OTHERS}, "dovetail-priorities": EVERY_ONE}
# By which something says that it belongs to a GPUJob.
CLAIMS = (names.LABEL_JOB_NUMBER, names.LABEL_RESERVATION, names.LABEL_ARRAY, names.LABEL_TASK, names.PLAN)


def lease_of(policy: str) -> dict[str, str]:
    return {"name": LEASES[policy], "namespace": "dovetail-system", "parameterNotFoundAction": "Allow"}


def named(objects: Objects, kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def hooks(objects: Objects) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in named(objects, "MutatingWebhookConfiguration")["dovetail"]["webhooks"]}


def test_the_chart_renders_neither_certificate_nor_ca_so_that_no_upgrade_can_take_them_away(render: Render) -> None:
    chart = render()
    assert "dovetail-webhook" not in named(chart, "Secret")
    assert all("caBundle" not in hook["clientConfig"] for hook in hooks(chart).values())


def test_the_certificate_is_kept_by_a_process_for_the_names_that_the_webhook_is_reached_by(render: Render) -> None:
    service = "--name=dovetail-webhook.dovetail-system.svc"
    for url, names_ in (("", [service]), ("https://10.0.0.7:8443", [service, "--name=10.0.0.7"])):
        pod = named(render(webhook__url=url), "Deployment")["dovetail-certificates"]["spec"]
        (container,) = pod["template"]["spec"]["containers"]
        assert [each for each in container["args"] if each.startswith("--name=")] == names_
        assert (pod["replicas"], pod["strategy"]) == (1, {"type": "Recreate"})


def rights_of(objects: Objects, account: str) -> set[tuple[str, str, str]]:
    """Each verb with its resource and the one object that it is for; "" is any object."""
    rules = [
        rule
        for kind in ("Role", "ClusterRole")
        for rule in named(objects, kind).get(f"dovetail-{account}", {"rules": []})["rules"]
    ]
    return {
        (verb, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


def test_that_process_may_write_the_certificate_by_name_and_nothing_by_which_api_servers_trust_it(
    render: Render,
) -> None:
    chart = render()
    assert rights_of(chart, "certificates") == {
        *((verb, "secrets", "dovetail-webhook") for verb in ("get", "create", "patch")),
        ("get", "secrets", "dovetail-webhook-ca"),
    }
    assert "dovetail-certificates" not in named(chart, "ClusterRole")


def test_only_a_hook_s_account_may_write_the_ca_and_what_trusts_it(render: Render) -> None:
    chart = render()
    assert rights_of(chart, "trust") == {
        *((verb, "secrets", "dovetail-webhook-ca") for verb in ("get", "create", "patch")),
        ("get", "secrets", "dovetail-webhook"),
        *((verb, "mutatingwebhookconfigurations", "dovetail") for verb in ("get", "patch")),
    }
    ours = [each for each in chart if each["metadata"]["name"] == "dovetail-trust"]
    assert {each["kind"] for each in ours} >= {"Job", "ServiceAccount", "Role", "ClusterRole", "ClusterRoleBinding"}
    for each in ours:
        annotations = each["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "pre-install,post-install,pre-upgrade,post-upgrade,post-rollback"
        assert "hook-succeeded" in annotations["helm.sh/hook-delete-policy"], each["kind"]


def test_the_webhook_is_reached_by_its_service(render: Render) -> None:
    chart = render()
    service = named(chart, "Service")["dovetail-webhook"]
    client = hooks(chart)["pods.dovetail.dev"]["clientConfig"]
    assert client["service"] == {
        "name": "dovetail-webhook", "namespace": "dovetail-system", "port": 443, "path": "/mutate",
    }  # fmt: skip
    (port,) = service["spec"]["ports"]
    pod = named(chart, "Deployment")["dovetail-webhook"]["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert port["targetPort"] in {each["name"] for each in pod["spec"]["containers"][0]["ports"]}


def test_a_webhook_outside_the_cluster_is_reached_by_its_url(render: Render) -> None:
    chart = render(webhook__url="https://127.0.0.1:9443")
    urls = {
        name: hook["clientConfig"]["url"].removeprefix("https://127.0.0.1:9443") for name, hook in hooks(chart).items()
    }
    assert urls.pop("requests.dovetail.dev") == "/translate"
    assert set(urls.values()) == {"/mutate"}


@pytest.mark.parametrize(
    ("url", "more"),
    [
        ("", {"dnsNames": ["dovetail-webhook.dovetail-system.svc"]}),
        ("https://a.b:1", {"dnsNames": ["dovetail-webhook.dovetail-system.svc", "a.b"]}),
        ("https://10.0.0.7:1", {"dnsNames": ["dovetail-webhook.dovetail-system.svc"], "ipAddresses": ["10.0.0.7"]}),
        ("https://[fd00::1]:1", {"dnsNames": ["dovetail-webhook.dovetail-system.svc"], "ipAddresses": ["fd00::1"]}),
    ],
)
def test_with_cert_manager_the_certificate_is_its_own(render: Render, url: str, more: Any) -> None:
    chart = render(webhook__issuer__name="internal", webhook__issuer__kind="ClusterIssuer", webhook__url=url)
    assert "dovetail-certificates" not in {**named(chart, "Deployment"), **named(chart, "ServiceAccount")}
    certificate = named(chart, "Certificate")["dovetail-webhook"]
    assert certificate["spec"]["issuerRef"] == {"name": "internal", "kind": "ClusterIssuer"}
    assert certificate["spec"].items() >= more.items()
    configuration = named(chart, "MutatingWebhookConfiguration")["dovetail"]
    assert configuration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "dovetail-system/dovetail-webhook"
    }
    assert "caBundle" not in hooks(chart)["pods.dovetail.dev"]["clientConfig"]


def test_the_webhook_has_no_token_and_one_of_it_always_answers(render: Render) -> None:
    chart = render()
    deployment = named(chart, "Deployment")["dovetail-webhook"]["spec"]
    assert deployment["replicas"] == 2
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert deployment["template"]["spec"]["automountServiceAccountToken"] is False
    assert "dovetail-webhook" in named(chart, "PodDisruptionBudget")
    assert not named(render(webhook__replicas=1), "PodDisruptionBudget")


def test_webhook_and_policies_can_be_left_out(render: Render) -> None:
    without = render(webhook__enabled=False, users__required=False, policies__enabled=False)
    assert not named(without, "MutatingWebhookConfiguration")
    assert not POLICIES & set(named(without, "ValidatingAdmissionPolicy"))
    assert "dovetail-webhook" not in named(without, "Deployment")


def test_a_webhook_that_is_away_stops_nobody_elses_pods(render: Render) -> None:
    hook = hooks(render())["pods.dovetail.dev"]
    assert hook["failurePolicy"] == "Fail"
    assert [each["name"] for each in hook["matchConditions"]] == [
        "asks-for-gpus",
        "is-no-placeholder",
        "is-not-complete",
    ]
    (expression,) = hook["namespaceSelector"]["matchExpressions"]
    assert (expression["operator"], expression["values"]) == ("NotIn", ["kube-system", "dovetail-system"])


def test_only_namespaces_that_opt_in_have_requests_translated_and_before_they_are_completed(render: Render) -> None:
    chart = render(config__gpu_resource={"nvidia": "example.com/gpu"}, policies__exemptNamespaces=["gpu-operator"])
    first, second, *_ = hooks(chart)
    assert (first, second) == ("requests.dovetail.dev", "pods.dovetail.dev")
    hook = hooks(chart)[first]
    assert hook["namespaceSelector"]["matchLabels"] == {names.TRANSLATE: "true"}
    (exempt,) = hook["namespaceSelector"]["matchExpressions"]
    assert (exempt["operator"], exempt["values"][-1]) == ("NotIn", "gpu-operator")
    # Of those namespaces, only pods that ask a vendor wait for it.
    (condition,) = hook["matchConditions"]
    assert '"example.com/gpu"' in condition["expression"]
    for resource in FOREIGN:
        prefix = "volcano.sh/vgpu-"
        said = f"r.startsWith('{prefix}')" if resource.startswith(prefix) else f"'{resource}'"
        assert said in condition["expression"]


def test_the_operator_changes_no_tenant_s_quota(render: Render) -> None:
    policy = named(render(), "ValidatingAdmissionPolicy")["dovetail-counted-quotas"]["spec"]
    assert names.LABEL_COUNTED_QUOTA in policy["validations"][0]["expression"]
    assert "dovetail-operator" in policy["matchConditions"][0]["expression"]


@pytest.mark.parametrize(("required", "failure"), [(True, "Fail"), (False, "Ignore")])
def test_a_job_without_its_user_is_refused_or_not_by_webhook_and_policy_alike(
    render: Render, required: bool, failure: str
) -> None:
    chart = render(users__required=required)
    assert hooks(chart)["gpujobs.dovetail.dev"]["failurePolicy"] == failure
    (condition,) = named(chart, "ValidatingAdmissionPolicy")["dovetail-users"]["spec"]["matchConditions"]
    assert ("== '' || request.userInfo.username == '" in condition["expression"]) is not required


def test_users_cannot_be_required_where_no_webhook_writes_them(helm: Helm) -> None:
    done = helm("template", "dovetail", str(CHART), "--set=webhook.enabled=false")
    assert (
        "webhook.enabled is false, so no webhook writes down who made a GPUJob: set users.required=false" in done.stderr
    )


def test_exempt_namespaces_are_exempt_from_both(render: Render) -> None:
    chart = render(policies__exemptNamespaces=["gpu-operator"])
    wanted = ["kube-system", "dovetail-system", "gpu-operator"]
    policies = named(chart, "ValidatingAdmissionPolicy")
    others = policies["dovetail-runtime-classes"]["spec"]["matchConstraints"]
    for selector in (hooks(chart)["pods.dovetail.dev"]["namespaceSelector"], others["namespaceSelector"]):
        assert selector["matchExpressions"][0]["values"] == wanted
    variables = {each["name"]: each["expression"] for each in policies["dovetail-pods"]["spec"]["variables"]}
    assert variables["isExempt"] == f"request.namespace in {json.dumps(wanted, separators=(',', ':'))}"
    assert variables["isShaped"].startswith("!variables.isExempt && ")


@pytest.mark.parametrize(("simulation", "more"), [(True, set()), (False, {"dovetail-agents"})])
def test_every_policy_is_in_force(render: Render, simulation: bool, more: set[str]) -> None:
    chart = render(simulation__enabled=simulation)
    bindings = named(chart, "ValidatingAdmissionPolicyBinding")
    assert set(named(chart, "ValidatingAdmissionPolicy")) == set(bindings) == POLICIES | more
    for name, binding in bindings.items():
        found = lease_of(name) if name in LEASES else PARAMETERS.get(name)
        parameter = {} if found is None else {"paramRef": found}
        assert binding["spec"] == {"policyName": name, "validationActions": ["Deny"], **parameter}


def test_nobody_is_exempt_from_the_policies_on_allocations(render: Render) -> None:
    policies = named(render(), "ValidatingAdmissionPolicy")
    for name in ("dovetail-bindings", "dovetail-pods", "dovetail-owners"):
        assert "namespaceSelector" not in policies[name]["spec"]["matchConstraints"]


def test_the_expressions_use_the_contracts_names() -> None:
    texts = [path.read_text(encoding="utf-8") for path in CHART.glob("templates/*")]
    text = "\n".join(texts)
    for name in (
        *names.MANAGED_RESOURCES,
        *LABELS,
        names.LABEL_DESCRIBED,
        names.REQUEST,
        names.ALLOCATION,
        names.USER,
        names.LABEL_JOB,
        *CLAIMS,
    ):
        assert f"'{name}'" in text
    written = re.search(r"dovetail\[\.\]dev/\(([\w|-]+)\)", text)
    assert written is not None
    assert {f"{names.GROUP}/{each}" for each in written[1].split("|")} == {
        names.VISIBLE_DEVICES, names.MPS_PERCENTAGE, names.MPS_MEMORY,
    }  # fmt: skip


def test_what_a_pod_in_the_queue_is_counted_by_never_changes_and_comes_from_the_webhook(render: Render) -> None:
    policy = named(render(), "ValidatingAdmissionPolicy")["dovetail-pods"]["spec"]
    variables = {each["name"]: each["expression"] for each in policy["variables"]}
    labels = (names.RUN, names.LABEL_QUEUE, names.POD_GROUP, names.KUEUE_QUEUE)
    annotations = (names.REQUEST, names.USER, names.POD_GROUP_SIZE)
    assert all(f"'{name}'" in variables["moved"] for name in (*labels, *annotations))
    # Those of the webhook, and no object's: an object's is a UID.
    assert all(is_run_of_pods(start) for start in re.findall(r"startsWith\('([^']+)'\)", variables["queued"]))
    (created,) = [each["expression"] for each in policy["validations"] if names.USER in each["expression"]]
    assert f"variables.annotations['{names.USER}'] == request.userInfo.username" in created
    assert f"g.name == '{names.QUEUE_GATE}'" in created


def test_pods_status_is_no_way_to_what_the_queue_counts_by(render: Render) -> None:
    policy = named(render(), "ValidatingAdmissionPolicy")["dovetail-pods"]["spec"]
    ours = {each["name"]: each["expression"] for each in policy["variables"]}["oursByStatus"]
    assert f"k.startsWith('{names.GROUP}/') || k == '{names.KUEUE_QUEUE}'" in ours
    assert "object.metadata.labels" in policy["matchConditions"][0]["expression"]


def test_whatever_the_policy_restricts_of_a_new_pod_is_found_by_its_condition(render: Render) -> None:
    policy = named(render(), "ValidatingAdmissionPolicy")["dovetail-pods"]["spec"]
    (condition,) = policy["matchConditions"]
    # Every label, annotation and resource that the rest of the policy names begins with one of these.
    assert f"k.startsWith('{names.GROUP}/') || k.contains('cdi.k8s.io')" in condition["expression"]
    assert f"object.metadata.labels.exists(k, k.startsWith('{names.GROUP}/'))" in condition["expression"]
    variables = {each["name"]: each["expression"] for each in policy["variables"]}
    _, _, ours = variables["isShaped"].partition("'ephemeralcontainers') && ")
    # Of a new pod and of one that gets ephemeral containers.
    assert condition["expression"].count(ours[1:-1]) == 2
    # What decides about the containers of a pod of ours has found it by its shape.
    shaped = {"containers", "served", "zero", "open", "granting", "mounting", "asking"}
    assert variables["containers"].startswith("!variables.isShaped ? [] : ")
    rest = json.dumps([{name: each for name, each in variables.items() if name not in shaped}, policy["validations"]])
    quoted = set(re.findall(r"'([a-z0-9.-]+[.][a-z]+/[^']*)'", rest)) - {"batch/v1"}
    of_others = {each for each in quoted if not each.startswith(f"{names.GROUP}/")}
    # Kueue's label counts on pods that have a run, and by pods/status.
    assert of_others <= {names.KUEUE_QUEUE}


def test_whatever_the_policy_restricts_of_jobs_is_found_by_its_condition(render: Render) -> None:
    policy = named(render(), "ValidatingAdmissionPolicy")["dovetail-owners"]["spec"]
    (condition,) = policy["matchConditions"]
    operator = "system:serviceaccount:dovetail-system:dovetail-operator"
    assert condition["expression"].startswith(f"request.userInfo.username != '{operator}' && (")
    for where in ("object.metadata.labels", "object.spec.template.metadata.labels"):
        assert f"{where}.exists(k, k.startsWith('{names.GROUP}/'))" in condition["expression"]
    for name in (names.PLAN, names.GUESTS_MANAGER):
        assert f"'{name}'" in condition["expression"]
    assert "o.kind == 'GPUJob'" in condition["expression"]
    # All others that it names are labels.
    quoted = set(re.findall(rf"'({names.GROUP}/[^']*)'", json.dumps([policy["variables"], policy["validations"]])))
    labels = {*CLAIMS, names.LABEL_JOB, names.LABEL_PLACEHOLDER} - {names.PLAN}
    assert quoted - labels == {names.PLAN, names.GUESTS_MANAGER, f"{names.GROUP}/"}


def test_a_pod_of_others_meets_one_policy(render: Render) -> None:
    """For each that it meets, the API server converts it anew, even where the first condition ends the policy."""
    meets = set()
    for name, policy in named(render(), "ValidatingAdmissionPolicy").items():
        spec = policy["spec"]["matchConstraints"]
        is_of_pods = any(
            "pods" in rule["resources"] or "pods/status" in rule["resources"] for rule in spec["resourceRules"]
        )
        # Those of opted-in namespaces, and those that look at another object, of which there may be none.
        if is_of_pods and "matchLabels" not in spec.get("namespaceSelector", {}) and "paramKind" not in policy["spec"]:
            meets.add(name)
    assert meets == {"dovetail-pods"}


def test_only_gpus_that_the_queue_counts_wait_in_it(render: Render) -> None:
    policy = named(render(), "ValidatingAdmissionPolicy")["dovetail-queue-only"]["spec"]
    waits = {each["name"]: each["expression"] for each in policy["variables"]}["waits"]
    assert f"'{names.REQUEST}' in object.metadata.annotations" in waits
    assert f"!object.metadata.annotations.exists(k, k.startsWith('{names.REQUEST}.'))" in waits


def test_no_object_enters_the_queue_after_its_creation(render: Render) -> None:
    """Before, its owner could have written any user into it."""
    policy = named(render(), "ValidatingAdmissionPolicy")["dovetail-guests"]["spec"]
    variables = {each["name"]: each["expression"] for each in policy["variables"]}
    assert all(f"'{name}'" in variables["changed"] for name in (names.RUN, names.USER))
    assert all(f"'{name}'" in variables["enters"] for name in (names.LABEL_QUEUE, names.KUEUE_QUEUE))
    assert "!variables.enters" in [each["expression"] for each in policy["validations"]]


@pytest.mark.parametrize("user", ["system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager"])
def test_only_the_job_controller_s_pods_pass_webhook_and_policy(render: Render, user: str) -> None:
    chart = render(policies__jobControllerUser=user)
    policy = named(chart, "ValidatingAdmissionPolicy")["dovetail-pods"]["spec"]
    (claims,) = (each["expression"] for each in policy["validations"] if "variables.isOfItsJob" in each["expression"])
    complete = next(
        each for each in hooks(chart)["pods.dovetail.dev"]["matchConditions"] if each["name"] == "is-not-complete"
    )
    for text in (claims, complete["expression"]):
        assert f"request.userInfo.username == '{user}'" in text


@pytest.mark.parametrize("user", ["", "a' || true || 'b", "a b"])
def test_an_account_that_is_none_is_refused(helm: Helm, user: str) -> None:
    done = helm("template", "dovetail", str(CHART), f"--set-json=policies.jobControllerUser={json.dumps(user)}")
    assert "at '/policies/jobControllerUser'" in done.stderr


def test_an_address_that_is_no_url_is_refused(helm: Helm) -> None:
    done = helm("template", "dovetail", str(CHART), "--set=webhook.url=127.0.0.1:9443")
    assert "at '/webhook/url': '127.0.0.1:9443' does not match pattern" in done.stderr


def test_policies_and_programs_agree_on_which_plugins_say_what_a_container_sees(render: Render) -> None:
    resources = {
        "shared": "nvidia.com/gpu.shared", "site": "gpu.example.org/card", "old": "notamd.com/gpu",
        "partition": "gpu.amd.com/mi300x", "npu": "huawei.com/Ascend910",
    }  # fmt: skip
    expected = Settings.model_validate({"gpu_resource": resources}).vendors.nvidia_resources
    policies = named(render(config__gpu_resource=resources), "ValidatingAdmissionPolicy")
    for name in ("dovetail-pods", "dovetail-runtime-classes"):
        (served,) = (each for each in policies[name]["spec"]["variables"] if each["name"] == "served")
        listed = re.search(r"r in (\[[^]]*\])", served["expression"])
        assert listed is not None
        assert set(json.loads(listed[1])) == expected
    assert {"nvidia.com/gpu", "gpu.example.org/card", "notamd.com/gpu"} <= expected
    assert not {"amd.com/gpu", "gpu.amd.com/mi300x", "huawei.com/Ascend910"} & expected


def test_webhook_and_policies_look_at_the_same_runtime_classes(render: Render) -> None:
    chart = render(runtimeClass__names=["gpu-fast"])
    listed = '["nvidia","gpu-fast"]'
    (asks, *_) = hooks(chart)["pods.dovetail.dev"]["matchConditions"]
    policies = named(chart, "ValidatingAdmissionPolicy")
    (ours,) = policies["dovetail-pods"]["spec"]["matchConditions"]
    (others,) = policies["dovetail-runtime-classes"]["spec"]["matchConditions"]
    for expression in (asks["expression"], ours["expression"], others["expression"]):
        assert f" in {listed}" in expression


def test_the_policies_know_every_variable_that_grants_devices(render: Render) -> None:
    text = json.dumps(named(render(), "ValidatingAdmissionPolicy")["dovetail-pods"])
    for name in (names.ENV_VISIBLE_DEVICES, *names.ENV_OTHER_VISIBLE_DEVICES):
        assert f"'{name}'" in text


@pytest.mark.parametrize("values", [{}, {"policies__gpujobsNeedPods": False}])
def test_the_policy_on_who_makes_gpujobs_is_there_unless_it_is_unwanted(
    render: Render, values: dict[str, bool]
) -> None:
    chart, wanted = render(**values), not values
    for kind in ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"):
        assert ("dovetail-gpujobs-need-pods" in named(chart, kind)) is wanted


# By which requests a pod's labels and annotations change: each subresource that takes the object's metadata along.
POD_UPDATES = {"UPDATE pods", "UPDATE pods/status", "UPDATE pods/ephemeralcontainers", "UPDATE pods/resize"}
BINDINGS = {"CREATE pods/binding", "CREATE bindings"}
JOBS_WRITTEN = {"CREATE gpujobs", "UPDATE gpujobs"}
# The requests that each policy must see: one that is left out is a way past it.
MUST_SEE = {
    "dovetail-pods": {"CREATE pods", *POD_UPDATES},
    "dovetail-bindings": BINDINGS,
    "dovetail-counted-quotas": {f"{verb} resourcequotas" for verb in ("CREATE", "UPDATE", "DELETE")},
    "dovetail-terms": BINDINGS,
    "dovetail-operator-terms": {"CREATE jobs"},
    "dovetail-runtime-classes": {"CREATE pods", "UPDATE pods/ephemeralcontainers"},
    "dovetail-queue-only": {"CREATE pods"},
    "dovetail-owners": {"CREATE jobs", "UPDATE jobs", *JOBS_WRITTEN},
    "dovetail-users": JOBS_WRITTEN,
    "dovetail-priorities": JOBS_WRITTEN,
    "dovetail-gpujobs-need-pods": JOBS_WRITTEN,
    "dovetail-guests": {f"UPDATE {kind.resource.plural}" for kind in KINDS},
    "dovetail-agents": {
        *(f"{verb} {each}" for verb in ("CREATE", "UPDATE") for each in ("gpunodes", "gpunodes/status")),
        "UPDATE nodes/status",
        "CREATE events",
    },
}


def test_each_policy_sees_every_request_by_which_what_it_protects_can_change(render: Render) -> None:
    seen = {
        name: {
            f"{verb} {resource}"
            for rule in policy["spec"]["matchConstraints"]["resourceRules"]
            for verb in rule["operations"]
            for resource in rule["resources"]
        }
        for name, policy in named(render(), "ValidatingAdmissionPolicy").items()
    }
    assert seen.keys() == MUST_SEE.keys()
    assert seen == MUST_SEE
