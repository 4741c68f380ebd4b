from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.pods.containers import parts_of
from dovetail.pods.injection import completed

Manifest = dict[str, Any]
ALL = {"name": names.ENV_VISIBLE_DEVICES, "value": "all"}


def make_spec(*containers: Manifest, **more: Any) -> Manifest:
    return {"schedulerName": "default-scheduler", "containers": list(containers or ({"name": "main"},)), **more}


def complete(spec: Manifest, **annotations: str) -> Manifest:
    """`gpu`, `gpu_mode` and so on are the pod's annotations; `gpu__x` is that for container x."""
    texts = {f"dovetail.dev/{key.replace('__', '.').replace('_', '-')}": text for key, text in annotations.items()}
    pod = msgspec.convert({"metadata": {"annotations": texts}, "spec": spec}, Pod)
    return completed(spec, asked=parts_of(pod))


def environment(container: Manifest) -> dict[str, str]:
    return {
        entry["name"]: entry["value"] if "value" in entry else entry["valueFrom"]["fieldRef"]["fieldPath"]
        for entry in container["env"]
    }


def annotation(name: str) -> str:
    return f"metadata.annotations['dovetail.dev/{name}']"


def test_an_annotated_pod_is_ours_to_schedule_and_asks_for_the_sums() -> None:
    spec = complete(make_spec(), gpu="2x8G,0.5")
    assert (spec["schedulerName"], spec["runtimeClassName"]) == ("dovetail", "nvidia")
    amounts = {names.GPU_MILLI: "1000", names.GPU_MEMORY_MIB: "16384"}
    assert spec["containers"][0]["resources"] == {"requests": amounts, "limits": amounts}


def test_a_share_sees_its_devices_and_its_limits() -> None:
    assert environment(complete(make_spec(), gpu="8G,0.5")["containers"][0]) == {
        "NVIDIA_VISIBLE_DEVICES": annotation("visible-devices.0"),
        "DOVETAIL_GPU_UUIDS": annotation("visible-devices.0"),
        "CUDA_VISIBLE_DEVICES": "0",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": annotation("mps-percentage.0"),
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": annotation("mps-memory.0"),
    }


def test_every_other_container_sees_none_whatever_it_says() -> None:
    side, init, debug = ({"name": name, "env": [ALL]} for name in ("side", "init", "debug"))
    spec = make_spec({"name": "main"}, side, initContainers=[init], ephemeralContainers=[debug])
    done = complete(spec, gpu__main="1")
    others = done["containers"][1], *done["initContainers"], *done["ephemeralContainers"]
    assert [environment(each) for each in others] == [{"NVIDIA_VISIBLE_DEVICES": "void"}] * 3


def test_each_container_with_devices_reads_its_own_annotations() -> None:
    spec = make_spec(
        {"name": "a"}, {"name": "b"}, initContainers=[{"name": "warm"}, {"name": "side", "restartPolicy": "Always"}]
    )
    done = complete(spec, gpu="0.5", gpu__b="0.25", gpu__warm="0.25", gpu__side="0.1")
    seen = [environment(each)["NVIDIA_VISIBLE_DEVICES"] for each in (*done["containers"], *done["initContainers"])]
    assert seen == [annotation(f"visible-devices.{index}") for index in (0, 1, 1, 3)]
    asked = [each["resources"]["limits"][names.GPU_MILLI] for each in (*done["containers"], *done["initContainers"])]
    assert asked == ["500", "250", "250", "100"]


def test_a_users_own_variables_and_resources_stay() -> None:
    mine = {"name": "MINE", "value": "$(CUDA_VISIBLE_DEVICES)"}
    done = complete(make_spec({"name": "main", "env": [ALL, mine], "resources": {"limits": {"cpu": "1"}}}), gpu="1")
    main = done["containers"][0]
    assert main["env"][-1] == mine
    assert main["resources"] == {"limits": {"cpu": "1", names.GPU_MILLI: "1000"}, "requests": {names.GPU_MILLI: "1000"}}


def test_the_amount_0_by_which_we_place_a_pod_without_devices_stays() -> None:
    nothing = {"resources": {"requests": {names.GPU_MILLI: "0"}, "limits": {names.GPU_MILLI: "0"}}}
    (main,) = complete(make_spec({"name": "main", **nothing}, schedulerName="dovetail"))["containers"]
    assert main["resources"] == nothing["resources"]
    assert environment(main) == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_a_container_that_a_vendors_plugin_serves_sees_what_the_plugin_says() -> None:
    resources = {"limits": {"nvidia.com/gpu": "1"}}
    mine = {"name": "MINE", "value": "x"}
    plugin = {"name": "main", "env": [ALL, mine], "resources": resources}
    done = complete(make_spec(plugin, {"name": "side"}, runtimeClassName="nvidia"))
    assert done["containers"][0] == {"name": "main", "env": [mine], "resources": resources}
    assert environment(done["containers"][1]) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert done["schedulerName"] == "default-scheduler"


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"gpu__main": "2"},
        {"gpu": "8G,0.5", "gpu__side": "0.25"},
        {"gpu__main": "0.5", "gpu_mode": "TimeShared"},
    ],
)
def test_what_is_complete_stays_as_it_is(annotations: dict[str, str]) -> None:
    spec = make_spec({"name": "main"}, {"name": "side", "env": [ALL]}, initContainers=[{"name": "init"}])
    once = complete(spec, **annotations)
    assert complete(once, **annotations) == once


def test_the_spec_that_was_given_is_not_changed() -> None:
    spec = make_spec()
    complete(spec, gpu="1")
    assert spec == make_spec()
