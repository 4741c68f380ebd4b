from dataclasses import replace
from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob, MemoryUse
from dovetail.engine.model.ranking import DEFAULT_RANKING, Ranking
from dovetail.pods.demand import as_started, ask_of_job, ask_of_pod
from dovetail.pods.options import annotations
from dovetail_operator.manifests.batch_job import Manifest, build_job, is_of_another_size, is_of_another_template
from tests.operator_.builders import make_job
from tests.spec_values import CARRIED, Carried

FIELD_REF = "metadata.annotations['dovetail.dev/{}.0']"
JOB_ID = "metadata.labels['dovetail.dev/job-number']"


def build(**spec: Any) -> Manifest:
    job = make_job(**spec)
    return build_job(job, ask=ask_of_job(job, ranking=DEFAULT_RANKING), number=42)


def template(**pod_spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": "busybox"}], **pod_spec}}


def pod_spec(manifest: Manifest) -> Manifest:
    spec: Manifest = manifest["spec"]["template"]["spec"]
    return spec


def environment(container: Manifest) -> dict[str, str]:
    """Variables by name: the value, or the path of the field that it comes from."""
    return {
        entry["name"]: entry["value"] if "value" in entry else entry["valueFrom"]["fieldRef"]["fieldPath"]
        for entry in container["env"]
    }


def test_the_job_has_the_gpujobs_name_and_belongs_to_it() -> None:
    metadata = build()["metadata"]
    assert (metadata["namespace"], metadata["name"]) == ("team", "x")
    (owner,) = metadata["ownerReferences"]
    assert owner == {
        "apiVersion": "dovetail.dev/v1beta1",
        "kind": "GPUJob",
        "name": "x",
        "uid": "uid-x",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def test_every_worker_is_a_completion() -> None:
    spec = build(workers=3, activeDeadlineSeconds=60)["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    # A second pod of a worker would hold a second set of devices while the first one leaves.
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["activeDeadlineSeconds"] == 60


def test_the_pods_are_ours_to_schedule() -> None:
    spec = pod_spec(build())
    assert spec["schedulerName"] == "dovetail"
    assert spec["runtimeClassName"] == "nvidia"
    assert spec["priorityClassName"] == "dovetail-gpujob"
    assert spec["restartPolicy"] == "Never"


def test_what_a_user_may_not_choose_is_overridden() -> None:
    own = {
        "schedulerName": "other",
        "runtimeClassName": "runc",
        "priorityClassName": "vip",
        "priority": 9,
    }
    spec = pod_spec(build(template=template(**own)))
    assert (spec["schedulerName"], spec["runtimeClassName"], spec["priorityClassName"]) == (
        "dovetail",
        "nvidia",
        "dovetail-gpujob",
    )
    assert "priority" not in spec


def test_what_a_user_may_choose_is_kept() -> None:
    spec = pod_spec(build(template=template(restartPolicy="OnFailure", tolerations=[{"operator": "Exists"}])))
    assert spec["restartPolicy"] == "OnFailure"
    assert spec["tolerations"] == [{"operator": "Exists"}]


def test_an_evicted_pod_costs_no_retry_where_kubernetes_allows_it() -> None:
    assert "podFailurePolicy" in build()["spec"]
    assert "podFailurePolicy" not in build(template=template(restartPolicy="OnFailure"))["spec"]


@pytest.mark.parametrize(
    ("spec", "resources"),
    [
        ({"gpu": 2}, {names.GPU_MILLI: "2000"}),
        ({"gpu": "0.5"}, {names.GPU_MILLI: "500"}),
        ({"gpu": "2x8G,0.5"}, {names.GPU_MILLI: "1000", names.GPU_MEMORY_MIB: "16384"}),
        ({"gpu": "8G,0.5", "mode": "TimeShared"}, {names.GPU_TURN: "1", names.GPU_MEMORY_MIB: "8192"}),
    ],
)
def test_the_first_container_asks_for_the_sums(spec: dict[str, Any], resources: dict[str, str]) -> None:
    first = pod_spec(build(**spec))["containers"][0]
    assert first["resources"] == {"requests": resources, "limits": resources}


def test_a_whole_device_is_seen_by_the_uuids_of_the_binding() -> None:
    seen = environment(pod_spec(build(gpu=2))["containers"][0])
    assert seen == {
        "NVIDIA_VISIBLE_DEVICES": FIELD_REF.format("visible-devices"),
        "DOVETAIL_GPU_UUIDS": FIELD_REF.format("visible-devices"),
        "CUDA_VISIBLE_DEVICES": "0,1",
        "DOVETAIL_JOB_ID": JOB_ID,
    }


def test_a_share_is_limited_by_mps() -> None:
    seen = environment(pod_spec(build(gpu="0.5"))["containers"][0])
    assert seen["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == FIELD_REF.format("mps-percentage")
    assert seen["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == FIELD_REF.format("mps-memory")


def test_no_users_variable_brings_in_a_device() -> None:
    every = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
    containers = [
        {"name": "main", "env": [every, {"name": "MINE", "value": "$(DOVETAIL_JOB_ID)"}]},
        {"name": "side", "env": [every]},
    ]
    spec = pod_spec(build(template=template(containers=containers, initContainers=[{"name": "init", "env": [every]}])))
    main, side = spec["containers"]
    (init,) = spec["initContainers"]
    assert environment(main)["NVIDIA_VISIBLE_DEVICES"] == FIELD_REF.format("visible-devices")
    assert [entry["name"] for entry in main["env"]].count("NVIDIA_VISIBLE_DEVICES") == 1
    assert main["env"][-1]["name"] == "MINE"
    assert environment(side) == environment(init) == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_our_resources_are_asked_for_by_the_first_container_alone() -> None:
    greedy = {"limits": {names.GPU_MILLI: "8000", "cpu": "1"}}
    containers = [{"name": "main", "resources": greedy}, {"name": "side", "resources": greedy}]
    main, side = pod_spec(build(template=template(containers=containers)))["containers"]
    assert main["resources"]["limits"] == {"cpu": "1", names.GPU_MILLI: "1000"}
    assert side["resources"] == {"limits": {"cpu": "1"}}


def test_a_job_without_gpu_is_a_plain_pod_that_sees_none() -> None:
    manifest = build(resources={"device": "cpu"}, template=template(runtimeClassName="nvidia"))
    spec = pod_spec(manifest)
    assert "runtimeClassName" not in spec
    assert environment(spec["containers"][0]) == {"NVIDIA_VISIBLE_DEVICES": "void", "DOVETAIL_JOB_ID": JOB_ID}
    assert not spec["containers"][0]["resources"]
    assert names.REQUEST not in manifest["spec"]["template"]["metadata"]["annotations"]


def test_the_number_is_in_a_label_and_the_containers_are_the_same_in_each_cluster() -> None:
    job = make_job(gpu=2)
    ask = ask_of_job(job, ranking=DEFAULT_RANKING)
    here, there = (build_job(job, ask=ask, number=number)["spec"]["template"] for number in (42, 7))
    assert [each["metadata"]["labels"][names.LABEL_JOB_NUMBER] for each in (here, there)] == ["42", "7"]
    assert here["spec"] == there["spec"]


def test_the_pods_say_what_they_ask_and_whose_they_are() -> None:
    own = {"labels": {"team": "vision", names.LABEL_JOB: "forged"}, "annotations": {"note": "kept"}}
    manifest = build(gpu="8G,0.5(T4)", policy="Pack", template={**template(), "metadata": own})
    metadata = manifest["spec"]["template"]["metadata"]
    assert metadata["labels"] == {"team": "vision", names.LABEL_JOB: "x", names.LABEL_JOB_NUMBER: "42"}
    assert metadata["annotations"] == {
        "note": "kept",
        names.REQUEST: "8G,0.5(T4)",
        names.MODE: "Fractional",
        names.POLICY: "Pack",
    }


@pytest.mark.parametrize("forged", ["allocation", "visible-devices.0", "mps-percentage.1", "mps-memory.0"])
def test_a_forged_allocation_does_not_reach_the_pod(forged: str) -> None:
    own = {"annotations": {f"dovetail.dev/{forged}": "GPU-1"}}
    metadata = build(template={**template(), "metadata": own})["spec"]["template"]["metadata"]
    assert f"dovetail.dev/{forged}" not in metadata["annotations"]


@pytest.mark.parametrize("gpu", ["1", "2(V100)", "0.5", "2x8G,0.5", "0.25@cuda:1"])
@pytest.mark.parametrize("mode", [None, "TimeShared"])
def test_the_extender_reads_from_the_pod_what_the_job_asked(gpu: str, mode: str | None) -> None:
    spec: dict[str, Any] = {"mode": mode} if mode else {}
    job = make_job(gpu=gpu, **spec)
    asked = ask_of_job(job, ranking=DEFAULT_RANKING)
    pod = msgspec.convert(build_job(job, ask=asked, number=1)["spec"]["template"], Pod)
    assert ask_of_pod(pod, ranking=Ranking(policy="Spread")) == asked


def test_the_users_template_is_left_as_it_is() -> None:
    job = make_job()
    before = msgspec.json.encode(job)
    build_job(job, ask=ask_of_job(job, ranking=DEFAULT_RANKING), number=1)
    assert msgspec.json.encode(job) == before


def test_a_template_s_own_labels_say_nothing_of_whose_its_pods_are() -> None:
    forged = {"dovetail.dev/job": "y", "dovetail.dev/reservation": "true", "dovetail.dev/array": "z", "app": "a"}
    made = build(template={"metadata": {"labels": forged}, **template()})
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels == {"dovetail.dev/job": "x", "dovetail.dev/job-number": "42", "app": "a"}


def built(job: GPUJob, *, resource: str = "", **how: Any) -> Manifest:
    """The batch Job of a job whose workers ask this resource of a vendor's plugin, if one is given."""
    return build_job(job, ask=replace(ask_of_job(job, ranking=DEFAULT_RANKING), resource=resource), number=42, **how)


def test_the_batch_job_says_which_attempt_it_is_and_what_its_promise_rests_on() -> None:
    job = make_job(status={"attempt": 3})
    assert built(job)["metadata"]["annotations"][names.ATTEMPT] == "3"
    assert names.MEMORY_ESTIMATE not in built(job)["metadata"]["annotations"]
    use = MemoryUse(strategy="Dynamic", basis="1 run", estimate_mib=5500)
    text = built(job, memory=use)["metadata"]["annotations"][names.MEMORY_ESTIMATE]
    assert msgspec.json.decode(text, type=MemoryUse) == use


def test_a_batch_job_is_of_another_template_once_the_template_is_edited() -> None:
    job = make_job()
    child = msgspec.convert(built(job), Job)
    assert not is_of_another_template(child, job=job)
    assert not is_of_another_template(child, job=make_job(priority=99, gpu=4))
    edited = template(restartPolicy="OnFailure")
    assert is_of_another_template(child, job=make_job(template=edited))
    assert is_of_another_template(child, job=make_job(template={**template(), "metadata": {"labels": {"a": "b"}}}))
    unknown = msgspec.structs.replace(child.metadata, annotations={})
    assert not is_of_another_template(msgspec.structs.replace(child, metadata=unknown), job=make_job(template=edited))


def test_a_batch_job_is_of_another_size_once_its_workers_request_something_else() -> None:
    job, sized = make_job(), make_job(rightSize="8G,0.5")
    ask = ask_of_job(job, ranking=DEFAULT_RANKING)
    smaller = as_started(ask, job=sized, use=None)
    child = msgspec.convert(built(job), Job)
    assert not is_of_another_size(child, job=job, ask=ask)
    assert is_of_another_size(child, job=sized, ask=smaller)
    made = msgspec.convert(build_job(sized, ask=smaller, number=1), Job)
    assert made.metadata.annotations[names.RIGHT_SIZE] == "8G,0.5"
    assert not is_of_another_size(made, job=sized, ask=smaller)
    assert is_of_another_size(made, job=job, ask=ask)
    assert is_of_another_size(made, job=sized, ask=as_started(ask, job=make_job(rightSize="8G,0.4"), use=None))


def test_a_vendor_s_resource_is_asked_of_the_plugin_and_named_on_the_batch_job() -> None:
    made = built(make_job(gpu=2, template=template(runtimeClassName="site")), resource="amd.com/gpu")
    assert made["metadata"]["annotations"][names.GPU_RESOURCE] == "amd.com/gpu"
    spec = pod_spec(made)
    assert spec["runtimeClassName"] == "site"
    assert spec["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "2"}
    assert names.GPU_RESOURCE not in built(make_job(gpu=2))["metadata"]["annotations"]


def test_the_pods_of_a_reservation_prove_that_they_are_of_one() -> None:
    made = build(reservation={"durationSeconds": 60})
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert made["metadata"]["labels"] == labels
    assert labels[names.LABEL_RESERVATION] == "true"
    assert names.LABEL_RESERVATION not in build()["metadata"]["labels"]


def test_a_job_of_a_pool_goes_to_its_nodes_and_any_other_anywhere() -> None:
    assert names.LABEL_POOL in str(pod_spec(build(pool="fast"))["affinity"])
    assert "affinity" not in pod_spec(build())


@pytest.mark.parametrize("said", CARRIED, ids=[each.field for each in CARRIED])
def test_what_the_job_says_replaces_what_the_template_says(said: Carried) -> None:
    own = {"annotations": {each.annotation: "another" for each in CARRIED}}
    made = build(template={**template(), "metadata": own}, **said.spec)
    found = made["spec"]["template"]["metadata"]["annotations"]
    assert found[said.annotation] == said.text
    assert "another" not in found.values()


def test_each_annotation_that_a_field_declares_has_an_example() -> None:
    assert tuple(each.annotation for each in CARRIED) == annotations.NAMES


@pytest.mark.parametrize("spec", [{"gpu": "0.5", "priority": 7}, {"gpu": 1, "priority": 7}])
def test_only_who_takes_turns_has_a_weight_in_them(spec: dict[str, Any]) -> None:
    assert names.PRIORITY not in build(**spec)["spec"]["template"]["metadata"]["annotations"]


def test_a_job_s_own_variable_for_its_number_is_replaced_in_the_first_container_only() -> None:
    own = [{"name": names.ENV_JOB_ID, "value": "1"}, {"name": "MINE", "value": "2"}]
    containers = [{"name": "main", "env": own}, {"name": "side", "env": own}]
    main, side = pod_spec(build(template=template(containers=containers)))["containers"]
    assert (environment(main)[names.ENV_JOB_ID], environment(main)["MINE"]) == (JOB_ID, "2")
    assert environment(side)[names.ENV_JOB_ID] == "1"


def test_a_job_without_a_deadline_has_none() -> None:
    assert "activeDeadlineSeconds" not in build()["spec"]


@pytest.mark.parametrize(("resource", "seen"), [("nvidia.com/gpu", None), ("amd.com/gpu", "void")])
def test_only_nvidia_s_plugin_says_itself_which_of_its_devices_a_container_sees(
    resource: str, seen: str | None
) -> None:
    made = built(make_job(gpu=2), resource=resource)
    assert environment(pod_spec(made)["containers"][0]).get("NVIDIA_VISIBLE_DEVICES") == seen


@pytest.mark.parametrize(
    ("resource", "own", "numbers"),
    [
        ("nvidia.com/gpu", (), "0,1"),
        ("nvidia.com/gpu", ({"name": "CUDA_VISIBLE_DEVICES", "value": "1"},), "1"),
        ("amd.com/gpu", (), None),
        ("example.com/gpu", (), None),
    ],
)
def test_the_devices_of_nvidia_s_plugin_are_numbered_as_cuda_counts_them_in_the_container(
    resource: str, own: tuple[dict[str, str], ...], numbers: str | None
) -> None:
    job = make_job(gpu=2, template=template(containers=[{"name": "main", "env": list(own)}]))
    seen = environment(pod_spec(built(job, resource=resource))["containers"][0])
    assert seen.get("CUDA_VISIBLE_DEVICES") == numbers
    # Nothing knows them before kubelet has chosen.
    assert "DOVETAIL_GPU_UUIDS" not in seen


def test_a_job_without_gpus_gets_no_notice_of_preemption_for_them() -> None:
    assert names.NOTICE_VOLUME in str(pod_spec(build())["volumes"])
    assert "volumes" not in pod_spec(build(resources={"device": "cpu"}))


def test_the_digest_of_a_template_is_the_one_that_earlier_operators_wrote() -> None:
    """Another digest would restart every running job when the operator is upgraded."""
    assert built(make_job())["metadata"]["annotations"][names.TEMPLATE] == "1e8e5fb6f42070b0"
