from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.decoding import UnreadableError
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Vendors
from dovetail.gpu.request import RequestError, parse
from dovetail.jobs.array_tasks import TasksError
from dovetail.jobs.size_limits import MAX_DEPTH
from dovetail.pods.demand import ask_of_job, ask_of_pod
from dovetail_operator.manifests.batch_job import build_job
from dovetail_webhook import mutation
from dovetail_webhook.mutation import patch_of_pod
from tests.operator_.builders import make_job
from tests.spec_values import CARRIED, Carried

Manifest = dict[str, Any]
VOID = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}


def make_pod(gpu: str | None = None, *, limits: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """A pod as the API server shows it to a webhook; `gpu` is its annotation."""
    main = {"name": "main", "resources": {"limits": limits, "requests": limits} if limits else {}}
    metadata = {"name": "p", "annotations": {} if gpu is None else {names.REQUEST: gpu}}
    return {"metadata": metadata, "spec": {"containers": [main], "schedulerName": "default-scheduler", **spec}}


def patch_of_job(job: Manifest, *, user: str | None) -> mutation.Patch:
    return mutation.patch_of_job(mutation.read_job(msgspec.Raw(msgspec.json.encode(job))), user=user)


def mutated(pod: Manifest, *, subresource: str = "") -> Manifest:
    """The pod with its patch applied; each operation replaces one field of the spec."""
    patch = patch_of_pod(pod, subresource=subresource, policy="Balanced", vendors=DEFAULT_VENDORS)
    changes = {operation["path"].removeprefix("/spec/"): operation["value"] for operation in patch}
    return {**pod, "spec": {**pod["spec"], **changes}}


def test_a_pod_with_nothing_but_the_annotation_asks_what_it_says() -> None:
    pod = msgspec.convert(mutated(make_pod("8G,0.5(T4)")), Pod)
    ask = ask_of_pod(pod, ranking=DEFAULT_RANKING)
    assert ask is not None
    assert (ask.gpu, ask.mode) == (parse("8G,0.5(T4)"), "Fractional")
    assert pod.spec.scheduler_name == "dovetail"


def test_a_pod_that_asks_by_resources_alone_is_completed_too() -> None:
    spec = mutated(make_pod(limits={names.GPU_MILLI: "2k"}))["spec"]
    assert spec["schedulerName"] == "dovetail"
    assert spec["containers"][0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"].endswith("visible-devices.0']")


def test_what_is_complete_gets_no_patch() -> None:
    assert patch_of_pod(mutated(make_pod("2")), subresource="", policy="Pack", vendors=DEFAULT_VENDORS) == []


def test_a_pod_on_our_runtime_class_that_asks_nothing_sees_nothing() -> None:
    spec = mutated(make_pod(runtimeClassName="nvidia"))["spec"]
    assert spec["containers"][0]["env"] == [VOID]
    assert spec["schedulerName"] == "default-scheduler"


def test_a_pod_that_asks_a_vendors_plugin_is_placed_by_us_when_it_says_a_model() -> None:
    pod = make_pod("2(V100)", limits={"nvidia.com/gpu": "2"})
    spec = mutated(pod)["spec"]
    assert spec == pod["spec"] | {"schedulerName": "dovetail"}


def test_the_extender_sees_a_pod_with_the_annotation_that_keeps_its_mig_resource() -> None:
    """Without a resource of ours, kube-scheduler would not ask it: neither model nor plan would have an effect."""
    pod = mutated(make_pod("1g.10gb(H100)", limits={"nvidia.com/mig-1g.10gb": "1"}))
    ask = ask_of_pod(msgspec.convert(pod, Pod), ranking=DEFAULT_RANKING)
    assert ask is not None
    assert (ask.gpu, ask.resource) == (parse("1g.10gb(H100)"), "nvidia.com/mig-1g.10gb")
    assert pod["spec"]["schedulerName"] == "dovetail"
    (main,) = pod["spec"]["containers"]
    assert main["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": "1", names.GPU_MILLI: "0"}
    assert mutated(pod) == pod, "a second look changes nothing"


def test_a_pod_with_a_mig_resource_alone_stays_as_it_is() -> None:
    pod = make_pod(limits={"nvidia.com/mig-1g.10gb": "1"})
    assert mutated(pod) == pod


@pytest.mark.parametrize(
    ("gpu", "first", "asks"),
    [
        ("2(V100)", "Managed", {names.GPU_MILLI: "2000"}),
        ("2(V100)", "Vendor", {"nvidia.com/gpu": "2"}),
        ("0.5", "Vendor", {names.GPU_MILLI: "500"}),
        ("1(amd,MI300X)", "Managed", {"amd.com/gpu": "1"}),
    ],
    ids=["managed by default", "vendor by configuration", "a share is managed", "another vendor is its plugin's"],
)
def test_a_pod_that_only_says_what_it_wants_asks_the_kind_of_node_that_has_it(
    gpu: str, first: Any, asks: dict[str, str]
) -> None:
    pod = make_pod(gpu)
    patch = patch_of_pod(pod, subresource="", policy="Balanced", vendors=Vendors(first=first))
    spec = pod["spec"] | {operation["path"].removeprefix("/spec/"): operation["value"] for operation in patch}
    assert spec["containers"][0]["resources"] == {"requests": asks, "limits": asks}
    assert spec["schedulerName"] == "dovetail"
    assert ("runtimeClassName" in spec) is (names.GPU_MILLI in asks)


def test_a_share_of_what_is_never_managed_is_refused() -> None:
    with pytest.raises(RequestError, match="a share needs a node that Dovetail manages"):
        mutated(make_pod("0.5(amd,MI300X)"))


def test_a_containers_own_annotation_asks_managed_nodes() -> None:
    pod = make_pod()
    pod["metadata"]["annotations"] = {f"{names.REQUEST}.main": "1(amd,MI300X)"}
    spec = mutated(pod)["spec"]
    assert spec["schedulerName"] == "dovetail"
    assert spec["containers"][0]["resources"]["limits"] == {names.GPU_MILLI: "1000"}


def test_a_jobs_pod_that_somebody_added_a_container_to_keeps_what_it_has() -> None:
    job = make_job(gpu="0.5")
    template = build_job(job, ask=ask_of_job(job, ranking=DEFAULT_RANKING), number=42)["spec"]["template"]
    before = template["spec"]
    pod = {**template, "spec": {**before, "containers": [{"name": "proxy"}, *before["containers"]]}}
    proxy, main = mutated(pod)["spec"]["containers"]
    assert proxy["env"] == [VOID]
    number = {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.labels['dovetail.dev/job-number']"}}
    assert {"name": "DOVETAIL_JOB_ID", "valueFrom": number} in main["env"]
    assert main["resources"] == before["containers"][0]["resources"]
    # What the Binding will say is counted by the container's place.
    assert (
        main["env"][0]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.annotations['dovetail.dev/visible-devices.1']"
    )


def test_an_ephemeral_container_sees_nothing_and_the_rest_stays() -> None:
    pod = make_pod("not read again", ephemeralContainers=[{"name": "debug"}])
    spec = mutated(pod, subresource="ephemeralcontainers")["spec"]
    assert spec["ephemeralContainers"] == [{"name": "debug", "resources": {}, "env": [VOID]}]
    assert spec["containers"] == pod["spec"]["containers"]


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (
            make_pod("8X,0.5"),
            'gpu "8X,0.5": unknown memory unit "X" (allowed: M, G, %) at character 2; write for example 2, 0.5',
        ),
        (
            make_pod("2", limits={names.GPU_MILLI: "1000"}),
            (
                'gpu "2": the pod\'s resources are dovetail.dev/gpu-milli: 1000, but the request needs '
                "dovetail.dev/gpu-milli: 2000"
            ),
        ),
        (
            make_pod("2", schedulerName="volcano"),
            (
                'schedulerName "volcano": a pod with GPUs of Dovetail is scheduled by dovetail; '
                "write for example nothing there"
            ),
        ),
        (
            make_pod("2", runtimeClassName="kata"),
            (
                'runtimeClassName "kata": a pod with GPUs of Dovetail runs in the class nvidia; '
                "write for example nothing there"
            ),
        ),
        (
            make_pod("2", nodeName="a"),
            (
                'nodeName "a": a pod gets its GPUs when it is scheduled, and this one would not be; '
                "write for example nodeSelector: {kubernetes.io/hostname: a}"
            ),
        ),
        (make_pod(limits={names.GPU_MILLI: "500"}, nodeName="a"), 'nodeName "a": a pod gets its GPUs when it is'),
        (make_pod("0.5", limits={"nvidia.com/gpu": "1"}), 'gpu "0.5": a vendor\'s plugin gives whole GPUs as it likes'),
        (make_pod(limits={names.GPU_MILLI: "much"}), 'resources "much": no quantity; write for example 100m or 2Gi'),
        (make_pod("1", initContainers=[{"name": 7}]), 'pod "p": cannot be read: Expected `str`, got `int`'),
    ],
)
def test_what_cannot_be_is_refused_with_one_sentence(pod: Manifest, sentence: str) -> None:
    with pytest.raises(RequestError) as error:
        mutated(pod)
    assert str(error.value).startswith(sentence)


def test_a_misspelt_annotation_is_refused_with_those_that_there_are() -> None:
    pod = make_pod("1")
    pod["metadata"]["annotations"]["dovetail.dev/gpu-polcy"] = "Pack"
    with pytest.raises(RequestError, match=r'annotation "dovetail.dev/gpu-polcy": is none .* dovetail.dev/gpu-policy,'):
        mutated(pod)


@pytest.mark.parametrize("option", CARRIED, ids=[each.field for each in CARRIED])
def test_each_option_comes_in(option: Carried) -> None:
    turns = option.beside.get("mode") == "TimeShared" or option.value == "TimeShared"
    pod = make_pod("8G,0.5") if turns else make_pod("0.5")
    pod["metadata"]["annotations"] |= {names.MODE: "TimeShared"} if turns else {}
    pod["metadata"]["annotations"][option.annotation] = option.text
    assert mutated(pod)["spec"]["schedulerName"] == "dovetail"


def test_a_runtime_class_of_ones_own_is_refused_only_where_dovetail_gives_the_devices() -> None:
    pod = make_pod("2(V100)", limits={"nvidia.com/gpu": "2"}, runtimeClassName="nvidia-cdi")
    assert mutated(pod)["spec"]["runtimeClassName"] == "nvidia-cdi"
    with pytest.raises(RequestError, match='runtimeClassName "nvidia-cdi"'):
        mutated(make_pod("2(V100)", runtimeClassName="nvidia-cdi"))


@pytest.mark.parametrize("word", [names.MODE, names.POLICY])
def test_a_word_that_the_extender_would_refuse_does_not_come_in(word: str) -> None:
    pod = make_pod("1")
    pod["metadata"]["annotations"][word] = "Wild"
    with pytest.raises(RequestError, match='"Wild": unknown'):
        mutated(pod)


def test_a_job_carries_its_users_name_whatever_it_says() -> None:
    job = {"metadata": {"annotations": {names.USER: "somebody", "mine": "x"}}}
    (operation,) = patch_of_job(job, user="ada")
    assert operation["value"] == {names.USER: "ada", "mine": "x"}
    assert patch_of_job({"metadata": {"annotations": operation["value"]}}, user="ada") == []
    assert patch_of_job({"metadata": {}}, user="ada")[0]["value"] == {names.USER: "ada"}


@pytest.mark.parametrize(
    ("written", "text"), [(0.5, "0.5"), (0.125, "0.125"), (2.0, "2"), (1e-4, "0.0001"), (1.5, "1.5"), (1e3, "1000")]
)
def test_a_request_without_quotes_becomes_the_text_that_it_is(written: float, text: str) -> None:
    assert patch_of_job({"metadata": {}, "spec": {"gpu": written}}, user=None) == [
        {"op": "add", "path": "/spec/gpu", "value": text}
    ]


@pytest.mark.parametrize(("written", "text"), [(0.7, "0.7"), (0.05, "0.05"), (1, "1"), (1.0, "1"), (7, "7")])
def test_a_memory_strategy_without_quotes_becomes_the_text_that_it_is(written: float, text: str) -> None:
    assert patch_of_job({"spec": {"gpu": "0.5", "memory": {"strategy": written}}}, user=None) == [
        {"op": "add", "path": "/spec/memory/strategy", "value": text}
    ]


@pytest.mark.parametrize("memory", [None, [], {}, {"strategy": "0.7"}, {"strategy": True}, {"strategy": None}, 0.7])
def test_whatever_else_a_memory_strategy_is_stays_for_the_schema_to_judge(memory: Any) -> None:
    assert patch_of_job({"spec": {"memory": memory}}, user=None) == []


@pytest.mark.parametrize("gpu", [2, "0.5", None, [], True])
def test_whatever_else_a_request_is_stays_for_the_schema_to_judge(gpu: Any) -> None:
    assert patch_of_job({"spec": {"gpu": gpu}}, user=None) == []


def test_who_made_a_job_stays_when_another_changes_it() -> None:
    job = {"metadata": {"annotations": {names.USER: "ada"}}, "spec": {"gpu": 0.5}}
    assert [operation["path"] for operation in patch_of_job(job, user=None)] == ["/spec/gpu"]


def test_a_share_becomes_a_client_of_mps_where_that_is_configured() -> None:
    pod = make_pod("8G,0.5")
    patch = patch_of_pod(pod, subresource="", policy="Balanced", vendors=DEFAULT_VENDORS, mps_directory="/run/mps")
    (volumes,) = [operation["value"] for operation in patch if operation["path"] == "/spec/volumes"]
    assert [volume["csi"]["volumeAttributes"]["folder"] for volume in volumes] == ["pipe", "shm"]


def test_a_sweep_that_has_no_tasks_is_refused_as_it_comes_in() -> None:
    many = [{"name": name, "values": [str(value) for value in range(40)]} for name in ("a", "b")]
    with pytest.raises(TasksError, match="sweep has 1600 combinations, and 1000 are allowed: make several jobs of it"):
        patch_of_job(a_sweep(*many), user="ada")


@pytest.mark.parametrize(
    ("value", "text"), [(0.1, "0.1"), (32, "32"), (True, "true")], ids=["a share", "a number", "on"]
)
def test_a_value_without_quotes_is_refused_with_the_quotes_that_it_needs(value: Any, text: str) -> None:
    told = f'sweep: the values of parameter lr are text, and {text} is none: write "{text}", in quotes'
    with pytest.raises(TasksError) as refused:
        patch_of_job(a_sweep({"name": "lr", "values": ["1", value]}), user="ada")
    assert str(refused.value) == told


@pytest.mark.parametrize(
    "sweep",
    [None, "x", [], {}, {"parameters": None}, {"parameters": ["x"]}, {"parameters": [{"name": "a", "values": 3}]}],
)
def test_what_is_no_sweep_at_all_is_left_to_the_schema(sweep: Any) -> None:
    assert patch_of_job({"metadata": {"name": "x"}, "spec": {"gpu": 1, "sweep": sweep}}, user=None) == []
    assert patch_of_job({"metadata": {"name": "x"}, "spec": {"gpu": 1, "sweep": sweep}}, user="ada")


def test_a_sweep_that_is_there_is_not_judged_again() -> None:
    assert patch_of_job(a_sweep({"name": "CUDA_VISIBLE_DEVICES", "values": ["1"]}), user=None) == []


def a_sweep(*parameters: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"gpu": 1, "sweep": {"parameters": list(parameters)}}}


def test_a_pod_that_asks_a_plugin_and_us_is_refused_and_loses_neither() -> None:
    pod = make_pod(limits={"nvidia.com/gpu": "1"})
    pod["spec"]["containers"].append({"name": "b", "resources": {"limits": {names.GPU_MILLI: "500"}}})
    with pytest.raises(RequestError, match="a pod's GPUs are of one kind"):
        mutated(pod)


def test_a_container_of_a_plugin_s_loses_the_variables_that_would_win_over_it() -> None:
    pod = make_pod(limits={"nvidia.com/gpu": "1"}, runtimeClassName="nvidia-cdi")
    mine = {"name": "MINE", "value": "1"}
    wins = [{"name": name, "value": "all"} for name in ("NVIDIA_VISIBLE_DEVICES", "ASCEND_VISIBLE_DEVICES")]
    pod["spec"]["containers"][0]["env"] = [*wins, mine]
    assert mutated(pod)["spec"]["containers"][0]["env"] == [mine]


def test_an_amount_of_0_is_refused_in_a_sentence() -> None:
    with pytest.raises(RequestError, match=r"it asks nvidia\.com/gpu: 0, which gives it no device"):
        mutated(make_pod(limits={"nvidia.com/gpu": "0"}, runtimeClassName="nvidia"))


def translation(pod: Manifest) -> dict[str, Any]:
    return {each["path"]: each["value"] for each in mutation.patch_of_request(pod, vendors=DEFAULT_VENDORS)}


def test_a_pod_that_asks_a_vendor_asks_dovetail_after_translation() -> None:
    patch = translation(make_pod(limits={"nvidia.com/gpu": "2"}))
    assert patch["/metadata/annotations"] == {names.REQUEST: "2(nvidia)"}
    assert patch["/spec/containers"][0]["resources"]["limits"] == {names.GPU_MILLI: "2000"}
    assert [each["key"] for each in patch["/spec/tolerations"]] == ["nvidia.com/gpu"]
    assert "/spec/schedulerName" not in patch


@pytest.mark.parametrize("spec", [{"schedulerName": "volcano"}, {"nodeName": "a"}])
def test_a_pod_of_another_scheduler_or_with_a_node_keeps_what_it_says(spec: Manifest) -> None:
    assert translation(make_pod(limits={"nvidia.com/gpu": "2"}, **spec)) == {}


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "hami-scheduler"])
def test_a_pod_of_the_schedulers_whose_words_are_translated_leaves_them(scheduler: str) -> None:
    patch = translation(make_pod(limits={"nvidia.com/gpu": "2"}, schedulerName=scheduler))
    assert patch["/spec/schedulerName"] == names.SCHEDULER_NAME


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/gpumem", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage", "nvidia.com/priority",
     "volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-cores"],
)  # fmt: skip
@pytest.mark.parametrize(("request_", "spec"), [("8G,0.5", {}), (None, {"schedulerName": names.SCHEDULER_NAME})])
def test_a_resource_that_no_node_has_is_refused_beside_a_request(
    resource: str, request_: str | None, spec: Manifest
) -> None:
    with pytest.raises(RequestError, match=f'container main "{resource}: 3": no node of Dovetail has this'):
        mutated(make_pod(request_, limits={resource: "3"}, **spec))


def test_a_pod_of_another_system_on_its_runtime_class_alone_keeps_its_resources() -> None:
    pod = make_pod(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3"}, runtimeClassName="nvidia")
    assert mutated(pod)["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpumem"] == "3"


def test_a_pod_that_asks_no_vendor_is_not_translated() -> None:
    assert translation(make_pod("2")) == {}


AT_BIND = {
    names.ALLOCATION: "{}",
    names.TERM: "7",
    f"{names.VISIBLE_DEVICES}.0": "GPU-1",
    f"{names.MPS_MEMORY}.0": "0=8G",
    f"{names.MPS_PERCENTAGE}.0": "50",
    f"{names.CDI_CONTAINER}main": "nvidia.com/gpu=GPU-1",
}


def test_a_copy_loses_what_was_written_when_the_other_was_bound() -> None:
    pod = make_pod("0.5")
    pod["metadata"]["annotations"] |= AT_BIND
    patch = mutation.patch_of_copy(pod)
    assert {each["op"] for each in patch} == {"remove"}
    paths = {each["path"].removeprefix("/metadata/annotations/").replace("~1", "/") for each in patch}
    assert paths == set(AT_BIND)


@pytest.mark.parametrize("annotations", [{}, {f"{names.CDI_CONTAINER}main": "nvidia.com/gpu=all"}, {"a~b/c": "d"}])
def test_what_is_no_copy_keeps_its_annotations(annotations: dict[str, str]) -> None:
    pod = make_pod("0.5")
    pod["metadata"]["annotations"] |= annotations
    assert mutation.patch_of_copy(pod) == []


def test_a_pod_without_annotations_is_no_copy() -> None:
    assert mutation.patch_of_copy({"metadata": {"annotations": None}, "spec": {}}) == []


@pytest.mark.parametrize(("policy", "written"), [("SPREAD", "Spread"), ("pack", "Pack"), ("BALANCED", "Balanced")])
def test_a_policy_gets_the_letters_of_the_schema(policy: str, written: str) -> None:
    (change,) = patch_of_job({"metadata": {}, "spec": {"policy": policy}}, user=None)
    assert change == {"op": "add", "path": "/spec/policy", "value": written}


@pytest.mark.parametrize("policy", ["Spread", "RANDOM", 3, None])
def test_a_policy_that_is_written_so_or_is_none_is_left_to_the_schema(policy: Any) -> None:
    assert patch_of_job({"metadata": {}, "spec": {"policy": policy}}, user=None) == []


def test_new_resources_that_are_no_request_are_refused() -> None:
    resources = {"migProfile": "1g.5gb", "share": 0.5}
    with pytest.raises(RequestError, match="a MIG profile goes with count and models alone"):
        patch_of_job({"metadata": {}, "spec": {"resources": resources}}, user="ada")
    # A job that is stored may still be cancelled.
    assert patch_of_job({"metadata": {}, "spec": {"resources": resources}}, user=None) == []


def test_a_share_of_four_decimals_is_left_to_the_schema_which_names_its_field() -> None:
    changes = patch_of_job({"metadata": {}, "spec": {"resources": {"share": 0.5555}}}, user="ada")
    assert [each["path"] for each in changes if each["path"].startswith("/spec/resources")] == []


@pytest.mark.parametrize("resources", [{"share": "half"}, {"memory": "much"}, {"device": "cpu"}, [], None])
def test_fields_of_resources_that_the_schema_judges_are_left_to_it(resources: Any) -> None:
    (user,) = patch_of_job({"metadata": {}, "spec": {"resources": resources}}, user="ada")
    assert user["path"] == "/metadata/annotations"


def test_a_pod_may_have_as_many_containers_as_are_allowed_and_no_more() -> None:
    spec = {"containers": [{"name": f"c{index}"} for index in range(mutation.MAX_CONTAINERS)]}
    assert mutation.pod_with({"name": "p"}, spec=spec)["spec"] is spec
    with pytest.raises(UnreadableError, match="it has 257 containers, and 256 are allowed"):
        mutation.pod_with({"name": "p"}, spec={**spec, "initContainers": [{"name": "one-more"}]})


def test_a_container_whose_gpus_no_annotation_can_name_is_refused_where_annotations_deliver_them() -> None:
    pod = make_pod("1", containers=[{"name": "c" * 63}])
    options: dict[str, Any] = {"subresource": "", "policy": "Balanced", "vendors": DEFAULT_VENDORS}
    assert patch_of_pod(pod, **options)
    with pytest.raises(RequestError, match="too many for the annotation with its GPUs"):
        patch_of_pod(pod, delivery="CDI", **options)


def test_a_job_whose_template_is_nested_too_deeply_is_unreadable() -> None:
    deep: Any = "x"
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    job = {"metadata": {"name": "x"}, "spec": {"gpu": 1, "template": deep}}
    with pytest.raises(UnreadableError, match=r"spec\.template is nested"):
        mutation.read_job(msgspec.Raw(msgspec.json.encode(job)))


def test_a_sweep_of_a_job_with_a_generated_name_is_judged_too() -> None:
    many = [{"name": name, "values": [str(value) for value in range(40)]} for name in ("a", "b")]
    sweep = a_sweep(*many)
    del sweep["metadata"]["name"]
    sweep["metadata"]["generateName"] = "x-"
    with pytest.raises(TasksError, match="and 1000 are allowed"):
        patch_of_job(sweep, user="ada")


def test_a_mig_container_with_other_limits_is_shown_to_the_extender_too() -> None:
    pod = mutated(make_pod("1g.10gb(H100)", limits={"nvidia.com/mig-1g.10gb": "1", "cpu": "2"}))
    (main,) = pod["spec"]["containers"]
    assert main["resources"]["limits"][names.GPU_MILLI] == "0"


def test_a_pod_of_the_scheduler_alone_may_ask_no_other_system_for_gpus() -> None:
    with pytest.raises(RequestError):
        mutated(make_pod(limits={"volcano.sh/vgpu-number": "1"}, schedulerName=names.SCHEDULER_NAME))


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])
def test_a_request_of_one_container_is_not_dropped_beside_a_plugin_s_devices(resource: str) -> None:
    pod = make_pod(None, limits={resource: "1"})
    pod["metadata"]["annotations"] = {f"{names.REQUEST}.main": "1"}
    with pytest.raises(RequestError) as refused:
        mutated(pod)
    assert str(refused.value).startswith(
        f'dovetail.dev/gpu.main "1": a pod\'s GPUs are of one kind, and its containers ask {resource}'
    )


@pytest.mark.parametrize(
    ("written", "removed"),
    [
        ({names.ALLOCATION: "{}"}, {names.ALLOCATION, f"{names.CDI_CONTAINER}main"}),
        ({names.TERM: "7"}, {names.TERM}),
        ({}, set()),
    ],
)
def test_devices_of_a_toolkit_are_a_copy_s_only_beside_an_allocation(
    written: dict[str, str], removed: set[str]
) -> None:
    """Without one they are the user's own words, which the policies judge."""
    pod = make_pod()
    pod["metadata"]["annotations"] = {**written, f"{names.CDI_CONTAINER}main": "nvidia.com/gpu=0", "mine": "x"}
    steps = mutation.patch_of_copy(pod)
    assert {step["path"].rpartition("/")[2].replace("~1", "/").replace("~0", "~") for step in steps} == removed
    assert {step["op"] for step in steps} <= {"remove"}
