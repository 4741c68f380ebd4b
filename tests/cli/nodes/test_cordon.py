"""Devices out of use and back: which are meant, and what is written."""

from typing import Any

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpunode import GPUNode
from dovetail.query.errors import NotFoundError
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.nodes import cordon
from dovetail_cli.nodes.cordon import Wish, sentence
from dovetail_cli.ui.errors import CommandError
from tests.cli.builders import make_gpunode
from tests.core.kube.api import Answer, Api

NODES = "/apis/dovetail.dev/v1beta1/gpunodes"
CORDON, UNCORDON = Wish(cordoned=True), Wish(cordoned=False)
CONFLICT = Answer(status=409, body={"code": 409, "reason": "Conflict", "message": "changed"})


def node(name: str = "a", *, cordoned: tuple[str, ...] = (), version: str = "1") -> GPUNode:
    made = make_gpunode(name)
    spec = msgspec.structs.replace(made.spec, cordoned=list(cordoned))
    metadata = msgspec.structs.replace(made.metadata, resource_version=version)
    return msgspec.structs.replace(made, metadata=metadata, spec=spec)


def wire(gpunode: GPUNode) -> Answer:
    return Answer(body=values_of(gpunode))


def listed(*gpunodes: GPUNode) -> Answer:
    return Answer(body={"metadata": {"resourceVersion": "1"}, "items": [values_of(each) for each in gpunodes]})


async def test_cordoning_adds_to_what_is_cordoned_with_one_write_for_a_node(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {NODES}", listed(node(cordoned=("GPU-old",), version="7")))
    api.answer(f"PATCH {NODES}/a", wire(node()))
    rows = await cordon.cordon(cluster, words=["a:all"], wish=CORDON)
    (written,) = api.of(f"PATCH {NODES}/a")
    assert written.body == {
        "metadata": {"resourceVersion": "7"},
        "spec": {"cordoned": ["GPU-old", "GPU-a-0", "GPU-a-1"]},
    }
    assert [(row["index"], row["cordoned"], row["changed"]) for row in rows] == [(0, True, True), (1, True, True)]


@pytest.mark.parametrize(("cordoned", "wish"), [(("GPU-a-1",), CORDON), ((), UNCORDON)])
async def test_what_is_so_already_is_not_written(
    api: Api, cluster: Cluster, cordoned: tuple[str, ...], wish: Wish
) -> None:
    api.answer(f"GET {NODES}", listed(node(cordoned=cordoned)))
    (row,) = await cordon.cordon(cluster, words=["a:1"], wish=wish)
    assert not row["changed"]
    assert api.of(f"PATCH {NODES}/a") == []


async def test_uncordoning_leaves_the_others_cordoned(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {NODES}", listed(node(cordoned=("GPU-a-0", "GPU-a-1"))))
    api.answer(f"PATCH {NODES}/a", wire(node()))
    await cordon.cordon(cluster, words=["a:0"], wish=UNCORDON)
    assert api.of(f"PATCH {NODES}/a")[0].body["spec"] == {"cordoned": ["GPU-a-1"]}


async def test_a_change_of_somebody_else_in_between_is_kept(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {NODES}", listed(node(version="1")))
    api.answer(f"PATCH {NODES}/a", CONFLICT, wire(node()))
    api.answer(f"GET {NODES}/a", wire(node(cordoned=("GPU-a-0",), version="2")))
    await cordon.cordon(cluster, words=["a:1"], wish=CORDON)
    first, second = [request.body for request in api.of(f"PATCH {NODES}/a")]
    assert (first["metadata"], first["spec"]) == ({"resourceVersion": "1"}, {"cordoned": ["GPU-a-1"]})
    assert (second["metadata"], second["spec"]) == ({"resourceVersion": "2"}, {"cordoned": ["GPU-a-0", "GPU-a-1"]})


async def test_a_node_that_never_stands_still_is_given_up(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {NODES}", listed(node()))
    api.answer(f"PATCH {NODES}/a", *[CONFLICT] * 10)
    api.answer(f"GET {NODES}/a", *[wire(node())] * 10)
    with pytest.raises(CommandError, match="was changed by others 10 times in between: try again"):
        await cordon.cordon(cluster, words=["a:1"], wish=CORDON)


async def test_nothing_is_written_when_one_of_the_devices_does_not_exist(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {NODES}", listed(node()))
    with pytest.raises(NotFoundError):
        await cordon.cordon(cluster, words=["a:0", "a:9"], wish=CORDON)
    assert api.of(f"PATCH {NODES}/a") == []


async def test_what_was_mended_is_noted_with_its_time_though_it_was_not_cordoned(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {NODES}", listed(node()))
    api.answer(f"PATCH {NODES}/a", wire(node()))
    await cordon.cordon(cluster, words=["a:1"], wish=Wish(cordoned=False, mended=True))
    spec: dict[str, Any] = api.of(f"PATCH {NODES}/a")[0].body["spec"]
    assert list(spec) == ["mended"]
    assert list(spec["mended"]) == ["GPU-a-1"]


@pytest.mark.parametrize(
    ("cordoned", "changed", "mended", "says"),
    [
        (True, True, False, "a:1 (GPU-a-1) cordoned"),
        (True, False, False, "a:1 (GPU-a-1) cordoned already"),
        (False, True, False, "a:1 (GPU-a-1) uncordoned"),
        (False, False, False, "a:1 (GPU-a-1) not cordoned"),
        (False, True, True, "a:1 (GPU-a-1) uncordoned; its faults of before count no more"),
    ],
)
def test_people_are_told_what_became_of_each(cordoned: bool, changed: bool, mended: bool, says: str) -> None:
    row = {"node": "a", "index": 1, "uuid": "GPU-a-1", "cordoned": cordoned, "changed": changed}
    assert sentence(row, mended=mended) == says


async def test_what_another_cordoned_meanwhile_is_no_news_and_stays(api: Api, cluster: Cluster) -> None:
    api.answer(f"GET {NODES}", listed(node(version="7")))
    api.answer(f"PATCH {NODES}/a", CONFLICT, wire(node()))
    api.answer(f"GET {NODES}/a", wire(node(cordoned=("GPU-a-0", "GPU-x"), version="8")))
    rows = await cordon.cordon(cluster, words=["a:all"], wish=CORDON)
    assert [row["changed"] for row in rows] == [False, True]
    assert api.of(f"PATCH {NODES}/a")[-1].body == {
        "metadata": {"resourceVersion": "8"},
        "spec": {"cordoned": ["GPU-a-0", "GPU-x", "GPU-a-1"]},
    }
