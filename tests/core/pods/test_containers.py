from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.gpu.request import RequestError, parse
from dovetail.pods.containers import Part, Parts, parts_of

CARD = {"resources": {"limits": {names.GPU_MILLI: "1000"}}}


def make_pod(*containers: str, init: tuple[str, ...] = (), sidecars: tuple[str, ...] = (), **texts: str) -> Pod:
    """A pod with these containers; `gpu` is its own annotation, `gpu_x` that for container x."""
    annotations = {names.GROUP + "/" + key.replace("_", ".", 1): text for key, text in texts.items()}
    sides: list[dict[str, Any]] = [{"name": name, "restartPolicy": "Always"} for name in sidecars]
    spec = {
        "containers": [{"name": name} for name in containers or ("main",)],
        "initContainers": [*({"name": name} for name in init), *sides],
    }
    return msgspec.convert({"metadata": {"name": "p", "annotations": annotations}, "spec": spec}, Pod)


def make_bare(*containers: dict[str, Any], **annotations: str) -> Pod:
    metadata = {"annotations": {f"{names.GROUP}/{key.replace('_', '-')}": text for key, text in annotations.items()}}
    return msgspec.convert({"metadata": metadata, "spec": {"containers": containers}}, Pod)


def told(parts: Parts) -> dict[str, str]:
    return {part.container: str(part.request) for part in parts.parts}


def test_the_pods_annotation_is_for_its_only_container() -> None:
    found = parts_of(make_pod("a", sidecars=("proxy",), init=("setup",), gpu="0.5"))
    assert found.parts == (Part(index=0, container="a", request=parse("0.5")),)


def test_of_several_containers_the_default_one_is_meant() -> None:
    pod = make_pod("wait", "main", gpu="0.5")
    named = replace(pod.metadata, annotations={**pod.metadata.annotations, names.DEFAULT_CONTAINER: "main"})
    assert told(parts_of(replace(pod, metadata=named))) == {"main": "0.5"}


@pytest.mark.parametrize("default", [None, "gone"])
def test_none_of_several_containers_is_chosen_silently(default: str | None) -> None:
    pod = make_pod("wait", "main", gpu="0.5")
    said = {} if default is None else {names.DEFAULT_CONTAINER: default}
    pod = replace(pod, metadata=replace(pod.metadata, annotations={**pod.metadata.annotations, **said}))
    problem = "the pod has several containers, wait, main, and nothing says which one it is for"
    with pytest.raises(
        RequestError, match=f"{problem}; write for example dovetail.dev/gpu.wait or dovetail.dev/gpu.main"
    ):
        parts_of(pod)


def test_an_annotation_names_its_container() -> None:
    assert told(parts_of(make_pod("a", "b", gpu_b="0.5"))) == {"b": "0.5"}


def test_several_containers_ask_each_for_itself_and_the_largest_comes_first() -> None:
    found = parts_of(make_pod("a", "b", sidecars=("c",), gpu="0.25", gpu_b="0.5", gpu_c="0.5"))
    assert [(part.index, part.container) for part in found.parts] == [(1, "b"), (2, "c"), (0, "a")]
    assert found.mode == "Fractional"


def test_a_container_that_was_put_before_it_takes_no_devices() -> None:
    proxy, main = {"name": "proxy"}, {"name": "main", **CARD}
    assert told(parts_of(make_bare(proxy, main, gpu="1"))) == {"main": "1"}


def test_an_init_container_uses_the_devices_of_one_that_asks_the_same() -> None:
    found = parts_of(make_pod("a", "b", init=("warm", "plain"), gpu_b="2(V100)", gpu_warm="2(V100)"))
    assert told(found) == {"b": "2(V100)"}
    assert [found.source(index) for index in range(4)] == [None, 1, 1, None]
    assert found.request(2) == parse("2(V100)")


def test_a_pod_without_a_word_asks_nothing() -> None:
    assert parts_of(make_pod("a")) == Parts()


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        (
            make_pod("a", gpu_b="1"),
            'dovetail.dev/gpu.b "b": the pod has no container b; write for example a',
        ),
        (
            make_pod("a", init=("warm",), gpu="1", gpu_warm="2"),
            (
                'init container warm "2": it uses the devices of a container that asks the same, but these ask 1; '
                "write for example 1"
            ),
        ),
        (
            make_pod("a", init=("warm",), gpu_warm="2"),
            (
                'init container warm "2": it uses the devices of a container that asks the same, but these ask nothing;'
                " write for example the request on a container"
            ),
        ),
        (
            make_pod("a", "b", gpu="1", gpu_b="0.5"),
            (
                'dovetail.dev/gpu "a 1, b 0.5": the devices of one pod are in one mode; '
                "write for example dovetail.dev/gpu-mode: Fractional"
            ),
        ),
        (
            make_pod("a", gpu="1", gpu_a="1"),
            (
                'dovetail.dev/gpu "1": every container has an annotation of its own; '
                "write for example dovetail.dev/gpu.a alone"
            ),
        ),
        (
            make_bare({"name": "a"}, {"name": "b", **CARD}, {"name": "c", **CARD}, gpu="1"),
            (
                'container "c": it asks for GPUs, but no annotation says what; '
                "write for example dovetail.dev/gpu.c: '0.5'"
            ),
        ),
        (make_pod("a", gpu_a="8Q,1"), 'gpu "8Q,1": unknown memory unit "Q" (allowed: M, G, %) at character 2; '),
    ],
)
def test_what_cannot_be_is_one_sentence(pod: Pod, sentence: str) -> None:
    with pytest.raises(RequestError) as error:
        parts_of(pod)
    assert str(error.value).startswith(sentence)


def bare(**limits: str) -> Parts:
    """What a container with bare resources asks."""
    amounts = {names.GROUP + "/" + name.replace("_", "-"): amount for name, amount in limits.items()}
    return parts_of(make_bare({"name": "main", "resources": {"limits": amounts}}))


@pytest.mark.parametrize(
    ("limits", "request_"),
    [
        ({"gpu_milli": "999"}, "0.999"),
        ({"gpu_milli": "1000"}, "1"),
        ({"gpu_milli": "2000"}, "2"),
        ({"gpu_milli": "9999000"}, "9999"),
        ({"gpu_milli": "500", "gpu_memory_mib": "1024"}, "1G,0.5"),
        ({"gpu_milli": "1000", "gpu_memory_mib": "4096"}, "4G,1"),
        ({"gpu_turn": "1", "gpu_memory_mib": "2048"}, "2G,1"),
        ({"gpu_turn": "2", "gpu_memory_mib": "4096"}, "2x2G,1"),
        ({"gpu_milli": "2000", "gpu_memory_mib": "4097"}, "2x2G,1"),
        ({"gpu_milli": "500", "gpu_memory_mib": str(1 << 40)}, "1073741824G,0.5"),
    ],
)
def test_bare_resources_are_a_request_with_memory_per_device(limits: dict[str, str], request_: str) -> None:
    (part,) = bare(**limits).parts
    assert part.request == parse(request_)


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({"gpu_milli": "10000000"}, '"10000": the number of GPUs may be 9999 at most; write for example 2'),
        ({"gpu_milli": "1500"}, '"1500": dovetail.dev/gpu-milli above 1000 must be a multiple of 1000'),
        ({"gpu_memory_mib": "8192"}, '"8192": dovetail.dev/gpu-memory-mib needs dovetail.dev/gpu-milli or'),
        (
            {"gpu_milli": "500", "gpu_memory_mib": str((1 << 40) + 1)},
            "dovetail.dev/gpu-memory-mib may be 1099511627776 at most; write for example 8192",
        ),
    ],
)
def test_bare_resources_that_are_no_request_are_refused_in_a_sentence(limits: dict[str, str], problem: str) -> None:
    with pytest.raises(RequestError) as caught:
        bare(**limits)
    assert problem in str(caught.value)
