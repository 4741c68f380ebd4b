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
from dovetail.pods.translation import translated

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
        make_pod(container("main", **{"nvidia.com/mig-1g.10gb": "1"})),
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
