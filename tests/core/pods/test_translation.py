"""Pods that ask a vendor's whole GPUs, as pods that ask Dovetail for them."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.gpu.request import RequestError
from dovetail.pods.containers import parts_of
from dovetail.pods.demand import ask_of_pod
from dovetail.pods.translation.resources import FOREIGN
from dovetail.pods.translation.translate import remedy, translated

Manifest = dict[str, Any]
NVIDIA = "nvidia.com/gpu"
LIMIT_RANGER = "kubernetes.io/limit-ranger"


def container(name: str, *, requests: Manifest | None = None, **limits: Any) -> Manifest:
    """A container with these limits; `gpu` is NVIDIA's and `amd` AMD's resource."""
    amounts = {{"gpu": NVIDIA, "amd": "amd.com/gpu"}.get(key, key): amount for key, amount in limits.items()}
    return {"name": name, "resources": {"limits": amounts, "requests": amounts if requests is None else requests}}


def make_pod(*containers: Manifest, init: tuple[Manifest, ...] = (), **annotations: str) -> Manifest:
    spec = {"containers": list(containers), **({"initContainers": list(init)} if init else {})}
    return {"metadata": {"name": "p", "annotations": annotations}, "spec": spec}


def translate(pod: Manifest) -> Manifest:
    return translated(pod, typed=msgspec.convert(pod, Pod, strict=False), vendors=DEFAULT_VENDORS)


def requests_of(pod: Manifest) -> dict[str, str]:
    """What each container asks Dovetail for, after translation."""
    parts = parts_of(msgspec.convert(translate(pod), Pod, strict=False))
    return {part.container: str(part.request) for part in parts.parts}


def filled_in(*said: str) -> Manifest:
    return {LIMIT_RANGER: f"LimitRanger plugin set: {'; '.join(said)}"}


def test_whole_gpus_of_a_vendor_are_asked_of_dovetail() -> None:
    pod = translate(make_pod(container("main", gpu="2", cpu="1")))
    assert pod["metadata"]["annotations"] == {names.REQUEST: "2(nvidia)"}
    amounts = {"cpu": "1", names.GPU_MILLI: "2000"}
    assert pod["spec"]["containers"][0]["resources"] == {"limits": amounts, "requests": amounts}
    assert {"key": NVIDIA, "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"]


def test_a_limit_alone_is_the_request_and_a_number_is_a_quantity() -> None:
    assert requests_of(make_pod(container("main", requests={}, gpu=2))) == {"main": "2(nvidia)"}


def test_the_container_that_asks_gets_them_wherever_it_stands() -> None:
    pod = make_pod(container("wait", cpu="1"), container("main", gpu="1"), container("istio-proxy"))
    assert requests_of(pod) == {"main": "1(nvidia)"}
    # The queue takes a request of the whole pod.
    assert translate(pod)["metadata"]["annotations"] == {names.REQUEST: "1(nvidia)"}


def test_each_of_several_asks_for_itself() -> None:
    pod = make_pod(container("a", gpu="1"), container("b", gpu="2"), container("c"))
    assert requests_of(pod) == {"b": "2(nvidia)", "a": "1(nvidia)"}


def test_an_init_container_uses_those_of_the_container_that_asks_the_same() -> None:
    pod = translate(make_pod(container("main", gpu="1"), init=(container("warm", gpu="1"),)))
    parts = parts_of(msgspec.convert(pod, Pod, strict=False))
    assert [part.container for part in parts.parts] == ["main"]
    assert parts.lent == {1: 0}


def test_another_vendor_s_gpus_stay_that_vendor_s() -> None:
    assert requests_of(make_pod(container("main", amd="1"))) == {"main": "1(amd)"}


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(container("main", cpu="1")),
        make_pod(container("main", gpu="0")),
        make_pod(container("main", gpu="2"), **{names.REQUEST: "2(V100)"}),
        make_pod(container("main", gpu="2"), **{f"{names.REQUEST}.main": "2"}),
    ],
)
def test_what_asks_for_no_whole_gpu_or_speaks_to_dovetail_itself_stays(pod: Manifest) -> None:
    assert translate(pod) is pod


def test_to_translate_twice_changes_nothing() -> None:
    once = translate(make_pod(container("main", gpu="2"), container("side")))
    assert translate(once) == once


def test_what_a_limit_range_filled_in_beside_a_request_is_none() -> None:
    said = filled_in(f"{NVIDIA} request for container proxy", f"cpu, {NVIDIA} limit for container proxy")
    assert requests_of(make_pod(container("main", gpu="2"), container("proxy", gpu="1"), **said)) == {
        "main": "2(nvidia)"
    }


def test_what_a_limit_range_filled_in_alone_is_asked_as_kubernetes_does() -> None:
    said = filled_in(f"{NVIDIA} request for container main", f"{NVIDIA} limit for init container setup")
    assert requests_of(make_pod(container("main", gpu="1"), **said)) == {"main": "1(nvidia)"}


@pytest.mark.timeout(120)
def test_spaces_in_the_note_of_a_limit_range_are_passed_over_once() -> None:
    """Anyone may write that note: a megabyte of spaces kept the webhook busy for hours."""
    said = {LIMIT_RANGER: "LimitRanger plugin set:" + " " * (1 << 20)}
    assert requests_of(make_pod(container("main", gpu="2"), **said)) == {"main": "2(nvidia)"}


def test_a_limit_range_adds_nothing_to_a_request_of_dovetail_s_own() -> None:
    said = filled_in(f"{NVIDIA} request for container main", f"{NVIDIA} limit for container main")
    pod = translate(make_pod(container("main", gpu="1"), **said, **{names.REQUEST: "8G,0.5"}))
    assert pod["spec"]["containers"][0]["resources"] == {}
    assert pod["metadata"]["annotations"][names.REQUEST] == "8G,0.5"


@pytest.mark.parametrize(
    ("containers", "sentence"),
    [
        (
            [container("main", gpu="1.5")],
            r'nvidia.com/gpu of container main "1.5": must be a whole number of GPUs, 9999 at most',
        ),
        ([container("main", gpu="many")], r'container main "many"'),
        ([container("main", gpu="10000")], "must be a whole number of GPUs, 9999 at most"),
        ([container("main", gpu="1", amd="1")], "a pod's GPUs are of one kind"),
        ([container("a", gpu="1"), container("b", amd="1")], "a pod's GPUs are of one kind"),
    ],
)
def test_what_no_vendor_could_give_is_refused(containers: list[Manifest], sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        translate(make_pod(*containers))


# --- HAMi and Volcano ----------------------------------------------------------------------------------------------


def hami(gpu: str | None = "1", **parts: str) -> Manifest:
    """A container with HAMi's resources; `mem`, `percent` and `cores` are parts of each GPU."""
    known = {"mem": "nvidia.com/gpumem", "percent": "nvidia.com/gpumem-percentage", "cores": "nvidia.com/gpucores"}
    amounts = {known[key]: amount for key, amount in parts.items()}
    return container("main", **amounts, **({} if gpu is None else {"gpu": gpu}))


@pytest.mark.parametrize(
    ("asked", "request_", "mode"),
    [
        (hami(mem="3000", cores="30"), "3000M,0.3(nvidia)", None),
        (hami("2", percent="30", cores="30"), "2x30%,0.3(nvidia)", None),
        (hami(mem="3000"), "3000M,1(nvidia)", "TimeShared"),
        (hami("2", mem="8000", cores="0"), "2x8000M,1(nvidia)", "TimeShared"),
        (hami(None, mem="3000", cores="100"), "3000M,1(nvidia)", None),
        (hami("2", percent="100", cores="100"), "2(nvidia)", None),
        (hami(percent="100", cores="30"), "1(nvidia)", None),
        (hami(cores="30"), "1(nvidia)", None),
        (container("main", **{"nvidia.com/mig-3g.20gb": "2"}), "2x3g.20gb", None),
        (container("main", **{"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "8000",
                              "volcano.sh/vgpu-cores": "50"}), "2x8000M,0.5(nvidia)", None),
        (container("main", **{"volcano.sh/vgpu-number": "2"}), "2(nvidia)", None),
        (container("main", **{"volcano.sh/vgpu-memory": "8000"}), "8000M,1(nvidia)", "TimeShared"),
    ],
)  # fmt: skip
def test_parts_of_gpus_by_resources_are_asked_of_dovetail(asked: Manifest, request_: str, mode: str | None) -> None:
    pod = translate(make_pod(asked))
    annotations = pod["metadata"]["annotations"]
    assert (annotations[names.REQUEST], annotations.get(names.MODE)) == (request_, mode)
    amounts = pod["spec"]["containers"][0]["resources"]["limits"]
    assert amounts.keys() <= set(names.MANAGED_RESOURCES)
    # The extender reads the same from annotations and resources.
    assert ask_of_pod(msgspec.convert(pod, Pod, strict=False), ranking=DEFAULT_RANKING) is not None


@pytest.mark.parametrize(
    ("annotations", "request_"),
    [
        ({"nvidia.com/use-gputype": "A100,V100"}, "1(nvidia,A100|V100)"),
        ({"nvidia.com/use-gputype": "NVIDIA-NVIDIA A30"}, "1(nvidia,A30)"),
        ({"nvidia.com/use-gputype": "Tesla V100-SXM2-32GB"}, "1(nvidia,Tesla V100-SXM2-32GB)"),
        ({"nvidia.com/nouse-gputype": "1080, 2080"}, "1(nvidia,!GTX1080,!GTX1080TI,!RTX2080,!RTX2080TI)"),
        ({"nvidia.com/use-gputype": "L40", "nvidia.com/nouse-gputype": "L40S"}, "1(nvidia,L40|L40S,!L40S)"),
        ({"nvidia.com/nouse-gputype": "MYGPU"}, "1(nvidia,!MYGPU)"),
        ({"nvidia.com/use-gputype": ""}, "1(nvidia)"),
    ],
)
def test_hami_s_words_for_models_mean_the_models_that_contain_them(annotations: dict[str, str], request_: str) -> None:
    assert requests_of(make_pod(container("main", gpu="1"), **annotations)) == {"main": request_}


def test_hami_s_models_are_nvidia_s() -> None:
    pod = make_pod(container("main", amd="1"), **{"nvidia.com/use-gputype": "A100"})
    assert requests_of(pod) == {"main": "1(amd)"}


@pytest.mark.parametrize(
    ("annotations", "policy"),
    [
        ({"hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "binpack"}, "Spread"),
        ({"hami.io/gpu-scheduler-policy": "binpack"}, "Pack"),
        ({"hami.io/gpu-scheduler-policy": "binpack", names.POLICY: "Balanced"}, "Balanced"),
        ({}, None),
    ],
)
def test_hami_s_policy_for_nodes_is_dovetail_s(annotations: dict[str, str], policy: str | None) -> None:
    pod = translate(make_pod(container("main", gpu="1"), **annotations))
    assert pod["metadata"]["annotations"].get(names.POLICY) == policy


@pytest.mark.parametrize(
    ("asked", "annotations", "sentence"),
    [
        (hami(mem="3000", percent="30"), {}, "nvidia.com/gpumem and nvidia.com/gpumem-percentage both say the memory"),
        (hami(percent="101"), {}, "nvidia.com/gpumem-percentage is a percentage, 100 at most"),
        (hami(cores="101", mem="1"), {}, "nvidia.com/gpucores is a percentage, 100 at most"),
        (hami(mem="1.5"), {}, r'nvidia.com/gpumem of container main "1.5": must be a whole number'),
        (hami(mem="many"), {}, 'container main "many"'),
        (hami("10000", mem="1"), {}, "must be a whole number of GPUs, 9999 at most"),
        (container("main", gpu="1", **{"nvidia.com/priority": "0"}), {}, '"nvidia.com/priority: 0": is HAMi\'s'),
        (container("main", gpu="1", **{"volcano.sh/vgpu-number": "1"}), {}, "a pod's GPUs are of one kind"),
        (container("main", gpu="1", **{"nvidia.com/mig-1g.10gb": "1"}), {}, "a pod's GPUs are of one kind"),
        (
            hami(),
            {"nvidia.com/use-gpuuuid": "GPU-1"},
            'nvidia.com/use-gpuuuid "GPU-1": Dovetail knows devices by their',
        ),
        (hami(), {"nvidia.com/nouse-gpuuuid": "GPU-1"}, "cordon"),
        (hami(), {"nvidia.com/vgpu-mode": "mig"}, "a request for MIG instances names their profile"),
        (hami(), {"nvidia.com/use-gputype": "A(1"}, r'nvidia.com/use-gputype "A\(1": "A\(1" is no model name'),
        (hami(), {"nvidia.com/use-gputype": "A," * 4097}, "it has 8194 characters, and at most 8192 are allowed"),
        (hami(), {"hami.io/gpu-scheduler-policy": "mutex"}, 'gpu-scheduler-policy "mutex": unknown policy'),
    ],
)
def test_what_hami_says_and_dovetail_cannot_do_is_refused_in_a_sentence(
    asked: Manifest, annotations: dict[str, str], sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        translate(make_pod(asked, **annotations))


def test_containers_with_and_without_a_limit_of_compute_are_refused_together() -> None:
    side = {**hami(mem="1000"), "name": "side"}
    with pytest.raises(RequestError, match="limit their compute, or none of them does"):
        translate(make_pod(hami(mem="3000", cores="30"), side))


# --- KAI -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "requests", "mode"),
    [
        ({"gpu-fraction": "0.5"}, {"main": "0.5(nvidia)"}, None),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, {"main": "2x0.25(nvidia)"}, None),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "side"}, {"side": "0.5(nvidia)"}, None),
        ({"gpu-memory": "2000"}, {"main": "2000M,1(nvidia)"}, "TimeShared"),
        ({"gpu-memory": "2048", "gpu-fraction-num-devices": "2"}, {"main": "2x2G,1(nvidia)"}, "TimeShared"),
    ],
)
def test_kai_s_fractions_are_asked_of_dovetail(
    annotations: dict[str, str], requests: dict[str, str], mode: str | None
) -> None:
    pod = make_pod(container("main", cpu="1"), container("side"), **annotations)
    pod["spec"]["schedulerName"] = "kai-scheduler"
    assert requests_of(pod) == requests
    done = translate(pod)
    assert done["spec"]["schedulerName"] == names.SCHEDULER_NAME
    assert done["metadata"]["annotations"].get(names.MODE) == mode


@pytest.mark.parametrize(
    ("annotations", "sentence"),
    [
        ({"gpu-fraction": "0.5", "gpu-memory": "2000"}, "both say how much of a GPU"),
        ({"gpu-fraction": "half"}, 'gpu-fraction "half": expected a number'),
        ({"gpu-fraction": "0"}, 'gpu-fraction "0": must be above 0'),
        ({"gpu-fraction": "0.3333"}, 'gpu-fraction "0.3333": a share has at most three decimals'),
        ({"gpu-fraction": "2"}, 'gpu-fraction "2": must be from 0.001 to 1'),
        ({"gpu-fraction": "8G,0.5"}, "must be from 0.001 to 1"),
        ({"gpu-memory": "2Gi"}, 'gpu-memory "2Gi": must be a whole number of MiB above 0'),
        ({"gpu-memory": "0"}, "must be a whole number of MiB above 0"),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"}, 'gpu-fraction-num-devices "0": must be from 1'),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "x"}, "the pod has no container x"),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "init"}, "an init container uses the devices of"),
    ],
)
def test_what_kai_says_and_dovetail_cannot_do_is_refused_in_a_sentence(
    annotations: dict[str, str], sentence: str
) -> None:
    with pytest.raises(RequestError, match=sentence):
        translate(make_pod(container("main"), init=(container("init"),), **annotations))


def test_a_fraction_beside_a_whole_gpu_is_refused() -> None:
    with pytest.raises(RequestError, match=r"nvidia\.com/gpu: 1 and gpu-fraction: 0\.5"):
        translate(make_pod(container("main", gpu="1"), **{"gpu-fraction": "0.5"}))


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (
            make_pod(hami(mem="3000")),
            'annotation dovetail.dev/gpu.main: "3000M,1" and dovetail.dev/gpu-mode: "TimeShared"',
        ),
        (make_pod(container("main"), **{"gpu-fraction": "0.5"}), "It asks gpu-fraction: 0.5, which only"),
        (make_pod(hami(mem="3000", percent="3")), "Dovetail would refuse them: resources of container main"),
    ],
)
def test_the_cure_is_said_in_the_words_of_the_pod(pod: Manifest, sentence: str) -> None:
    said = remedy(msgspec.convert(pod, Pod, strict=False), vendors=DEFAULT_VENDORS)
    assert said is not None
    assert sentence in said


def test_a_pod_without_gpus_needs_no_cure() -> None:
    assert (
        remedy(msgspec.convert(make_pod(container("main", cpu="1")), Pod, strict=False), vendors=DEFAULT_VENDORS)
        is None
    )


AMOUNTS = st.sampled_from(["0", "1", "30", "100", "101", "3000", "1.5", "-1", "x"])
WORDS = st.sampled_from(["", "A100", "1080,2080", "0.5", "2000", "0", "mig", "spread", "(", "main"])
RESOURCES = [NVIDIA, "amd.com/gpu", "nvidia.com/mig-1g.10gb", *FOREIGN]
KEYS = [
    "gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name", "nvidia.com/use-gputype",
    "nvidia.com/nouse-gputype", "nvidia.com/vgpu-mode", "hami.io/node-scheduler-policy",
]  # fmt: skip


@given(
    amounts=st.dictionaries(st.sampled_from(RESOURCES), AMOUNTS, max_size=4),
    annotations=st.dictionaries(st.sampled_from(KEYS), WORDS, max_size=3),
)
def test_what_others_say_is_translated_whole_or_refused_and_nothing_of_it_is_left(
    amounts: dict[str, str], annotations: dict[str, str]
) -> None:
    pod = make_pod(container("main", **amounts), **annotations)
    try:
        done = translate(pod)
    except RequestError:
        return
    if done is pod:
        assert all(str(amount) in {"0", "-1"} for amount in amounts.values())
        return
    assert done["spec"]["containers"][0]["resources"]["limits"].keys() <= set(names.MANAGED_RESOURCES)
    ask = ask_of_pod(msgspec.convert(done, Pod, strict=False), ranking=DEFAULT_RANKING)
    assert ask is not None
    assert translate(done) == done


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_dovetail_is_asked_for_as_many_as_the_vendor_was(counts: list[int]) -> None:
    pod = make_pod(*(container(f"c{at}", **({"gpu": str(count)} if count else {})) for at, count in enumerate(counts)))
    done = msgspec.convert(translate(pod), Pod, strict=False)
    ask = ask_of_pod(done, ranking=DEFAULT_RANKING)
    asked = 0 if ask is None or ask.gpu is None else sum(each.count for each in (ask.gpu, *ask.more))
    assert asked == sum(counts)
    assert not any(
        NVIDIA in each["resources"].get("limits", {}) for each in translate(pod)["spec"]["containers"] if sum(counts)
    )


def test_the_mode_that_a_pod_says_itself_stays() -> None:
    """Without it, memory alone is a turn of the whole device."""
    taken = translate(make_pod(hami(mem="3000"), **{names.MODE: "TimeShared"}))
    fixed = translate(make_pod(hami(mem="3000"), **{names.MODE: "Fractional"}))
    assert [each["metadata"]["annotations"][names.MODE] for each in (taken, fixed)] == ["TimeShared", "Fractional"]
