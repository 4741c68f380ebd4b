"""Pods of which several containers ask, from filter to the annotations that their environments read."""

from typing import Any

from dovetail import names
from dovetail.pods.allocation import allocation_in
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_pod
from tests.extender.harness import Face


def container(name: str, milli: int = 0, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {names.GPU_MILLI: str(milli)} if milli else {}}, **more}


def make_several(*containers: dict[str, Any], init: tuple[dict[str, Any], ...] = (), **texts: str) -> dict[str, Any]:
    """A pod whose containers ask by their own annotations."""
    pod = make_pod(containers=list(containers), initContainers=list(init))
    pod["metadata"]["annotations"] = {f"{names.REQUEST}.{name}": text for name, text in texts.items()}
    return pod


async def bound(api: ApiServer, face: Face, pod: dict[str, Any]) -> dict[str, str]:
    """The annotations once the pod is bound."""
    api.put("pods", pod)
    assert "a" in (await face.filter(pod, "a", "b"))["NodeNames"]
    assert await face.bind(pod, "a") == ""
    return dict(api.objects["pods"]["default/p"]["metadata"]["annotations"])


async def test_each_container_reads_its_own_devices(api: ApiServer, face: Face) -> None:
    found = await bound(
        api, face, make_several(container("a", 1000), container("b"), container("c", 2000), a="1", c="2")
    )
    allocation = allocation_in(found)
    assert allocation is not None
    assert [each.index for each in allocation.containers] == [0, 2]
    one, two = (found[names.per_container(names.VISIBLE_DEVICES, index=index)].split(",") for index in (0, 2))
    assert (len(one), len(two), len({*one, *two})) == (1, 2, 3)


async def test_a_sidecar_has_devices_of_its_own_and_an_init_container_those_of_another(
    api: ApiServer, face: Face
) -> None:
    init = (container("warm", 500), container("side", 250, restartPolicy="Always"))
    pod = make_several(container("main", 500), init=init, main="0.5", warm="0.5", side="0.25")
    found = await bound(api, face, pod)
    allocation = allocation_in(found)
    assert allocation is not None
    assert {each.index: each.devices[0].share_milli for each in allocation.containers} == {0: 500, 2: 250}
    assert found["dovetail.dev/mps-percentage.2"] == "25"


async def test_what_does_not_fit_together_is_told(api: ApiServer, face: Face) -> None:
    pod = make_several(container("a", 5000), container("b", 4000), a="5", b="4")
    answer = await face.filter(pod, "a", "b")
    said = "the GPUs of the pod's 2 containers do not fit together, ever"
    assert answer["FailedAndUnresolvableNodes"] == {"a": said, "b": said}
