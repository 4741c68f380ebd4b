"""Which pods and jobs could keep their device memory on the host."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod, PodSpec
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.pods.containers import host_room_mib
from dovetail.pods.demand import ask_of_job, ask_of_pod
from tests.core.builders import make_job

TURN = {names.GPU_TURN: "1", names.GPU_MEMORY_MIB: "1024"}


def container(name: str, *, memory: str = "", ours: bool = False, **more: Any) -> dict[str, Any]:
    asks = (TURN if ours else {}) | ({"memory": memory} if memory else {})
    return {"name": name, "resources": {"requests": asks}} | more


def room(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **requests: str) -> int:
    texts = {f"{names.REQUEST}.{name}": text for name, text in requests.items()}
    pod = msgspec.convert(
        {
            "metadata": {"name": "p", "annotations": texts | {names.MODE: "TimeShared"}},
            "spec": {"containers": list(containers), "initContainers": list(init)},
        },
        Pod,
    )
    ask = ask_of_pod(pod, ranking=DEFAULT_RANKING)
    assert ask is not None
    return ask.host_room_mib


def test_the_container_with_the_device_has_the_room_and_no_other() -> None:
    side = container("side", memory="64Gi")
    assert room(side, container("main", memory="2Gi", ours=True), main="1G,1") == 1536


def test_a_pod_that_requests_no_memory_has_no_room() -> None:
    assert room(container("main", ours=True), main="1G,1") == 0


def test_two_containers_with_devices_are_two_processes_and_not_moved() -> None:
    both = [container(name, memory="8Gi", ours=True) for name in ("a", "b")]
    assert room(*both, a="1G,1", b="1G,1") == 0


def test_nor_is_one_whose_init_container_uses_its_device_with_memory_of_its_own() -> None:
    main, first = (container(name, memory="8Gi", ours=True) for name in ("main", "first"))
    assert room(main, init=(first,), main="1G,1", first="1G,1") == 0


def test_the_workers_of_a_job_have_what_their_template_says() -> None:
    spec = {"containers": [{"name": "c", "resources": {"limits": {"memory": "21Gi"}}}]}
    job = make_job(gpu="20G,1", mode="TimeShared", template={"spec": spec})
    assert ask_of_job(job, ranking=DEFAULT_RANKING).host_room_mib == 20992


@pytest.mark.parametrize(("memory", "expected"), [("512Mi", 0), ("513Mi", 1), ("1000M", 441)])
def test_what_the_driver_needs_beside_is_taken_off_and_less_than_a_mib_is_none(memory: str, expected: int) -> None:
    spec = msgspec.convert({"containers": [container("c", memory=memory)]}, PodSpec)
    assert host_room_mib(spec, container=0) == expected
    assert host_room_mib(spec, container=1) == 0
