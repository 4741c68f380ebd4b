"""Containers with shares are clients of their node's MPS; nobody else is."""

from typing import Any

import msgspec

from dovetail.api.builtin import Pod
from dovetail.pods.containers import parts_of
from dovetail.pods.injection import completed
from dovetail.pods.mps_client import job_with_mps, with_mps

Manifest = dict[str, Any]
MPS = "/run/dovetail/mps"


def complete(gpu: str, *, mode: str = "", **spec: Any) -> Manifest:
    annotations = {"dovetail.dev/gpu.main": gpu} | ({"dovetail.dev/gpu-mode": mode} if mode else {})
    whole = {"containers": [{"name": "main"}, {"name": "side"}], **spec}
    pod = msgspec.convert({"metadata": {"annotations": annotations}, "spec": whole}, Pod)
    return completed(whole, asked=parts_of(pod))


def test_a_share_finds_the_daemon_and_its_shared_memory() -> None:
    spec = with_mps(complete("8G,0.5"), directory=MPS)
    main, side = spec["containers"]
    assert {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": f"{MPS}/pipe"} in main["env"]
    assert {mount["mountPath"] for mount in main["volumeMounts"]} == {f"{MPS}/pipe", "/dev/shm"}
    assert [volume["csi"] for volume in spec["volumes"]] == [
        {"driver": "mps.dovetail.dev", "volumeAttributes": {"folder": "pipe"}},
        {"driver": "mps.dovetail.dev", "volumeAttributes": {"folder": "shm"}},
    ]
    assert "volumeMounts" not in side


def test_whole_devices_and_turns_have_nothing_to_do_with_mps() -> None:
    for spec in (complete("2"), complete("8G,0.5", mode="TimeShared")):
        assert with_mps(spec, directory=MPS) == spec


def test_without_a_directory_nothing_is_added() -> None:
    spec = complete("8G,0.5")
    assert with_mps(spec, directory="") == spec


def test_doing_it_twice_changes_nothing() -> None:
    once = with_mps(complete("8G,0.5"), directory=MPS)
    assert with_mps(once, directory=MPS) == once


def test_nothing_of_the_node_is_mounted_by_its_path() -> None:
    spec = with_mps(complete("8G,0.5"), directory=MPS)
    assert {key for volume in spec["volumes"] for key in volume} == {"name", "csi"}


def test_a_spec_that_was_completed_with_paths_of_the_node_is_completed_afresh() -> None:
    before = with_mps(complete("8G,0.5"), directory=MPS)
    paths = {"dovetail-mps-pipe": f"{MPS}/pipe", "dovetail-mps-shm": f"{MPS}/shm"}
    old = {**before, "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()]}
    assert with_mps(old, directory=MPS) == before


def test_a_pod_s_own_shared_memory_makes_room_for_that_of_mps() -> None:
    spec = complete("8G,0.5", volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}])
    spec["containers"][0]["volumeMounts"] = [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "data", "mountPath": "/data"},
    ]
    mounts = with_mps(spec, directory=MPS)["containers"][0]["volumeMounts"]
    assert [mount["mountPath"] for mount in mounts] == ["/data", f"{MPS}/pipe", "/dev/shm"]


def test_the_pods_of_a_job_get_it_too() -> None:
    job = {"kind": "Job", "spec": {"completions": 2, "template": {"metadata": {}, "spec": complete("8G,0.5")}}}
    done = job_with_mps(job, directory=MPS)
    assert done["spec"]["completions"] == 2
    assert done["spec"]["template"]["spec"]["volumes"]
