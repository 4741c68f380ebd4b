from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.pods.demand import ask_of_job, ask_of_pod
from dovetail_operator.manifests.batch_job import Manifest, build_job
from tests.operator_.builders import make_job

FIELD_REF = "metadata.annotations['dovetail.dev/{}.0']"


def build(**spec: Any) -> Manifest:
    job = make_job(**spec)
    return build_job(job, ask=ask_of_job(job, default_policy="Balanced"), number=42)


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
        "apiVersion": "dovetail.dev/v1alpha1",
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
        "DOVETAIL_JOB_ID": "42",
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
    assert environment(spec["containers"][0]) == {"NVIDIA_VISIBLE_DEVICES": "void", "DOVETAIL_JOB_ID": "42"}
    assert not spec["containers"][0]["resources"]
    assert names.REQUEST not in manifest["spec"]["template"]["metadata"]["annotations"]


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
    asked = ask_of_job(job, default_policy="Balanced")
    pod = msgspec.convert(build_job(job, ask=asked, number=1)["spec"]["template"], Pod)
    assert ask_of_pod(pod, default_policy="Spread") == asked


def test_the_users_template_is_left_as_it_is() -> None:
    job = make_job()
    before = msgspec.json.encode(job)
    build_job(job, ask=ask_of_job(job, default_policy="Balanced"), number=1)
    assert msgspec.json.encode(job) == before


def test_a_template_s_own_labels_say_nothing_of_whose_its_pods_are() -> None:
    forged = {"dovetail.dev/job": "y", "dovetail.dev/reservation": "true", "dovetail.dev/array": "z", "app": "a"}
    made = build(template={"metadata": {"labels": forged}, **template()})
    labels = made["spec"]["template"]["metadata"]["labels"]
    assert labels == {"dovetail.dev/job": "x", "dovetail.dev/job-number": "42", "app": "a"}
