"""Devices as people name them."""

import msgspec
import pytest

from dovetail.api.gpunode import GPUNode
from dovetail.query.errors import InvalidQueryError, NotFoundError
from dovetail.query.nodes.device_names import Named, named
from tests.cli.builders import make_gpunode


def node(name: str = "a", *, cordoned: tuple[str, ...] = ()) -> GPUNode:
    made = make_gpunode(name)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, cordoned=list(cordoned)))


@pytest.mark.parametrize(
    ("words", "uuids"),
    [
        (["a:1"], ["GPU-a-1"]),
        (["a:0,1"], ["GPU-a-0", "GPU-a-1"]),
        (["a:0-1"], ["GPU-a-0", "GPU-a-1"]),
        (["a:all"], ["GPU-a-0", "GPU-a-1"]),
        (["a:GPU-a-1"], ["GPU-a-1"]),
        (["GPU-b-0"], ["GPU-b-0"]),
        (["a:1", "GPU-a-1", "b:1"], ["GPU-a-1", "GPU-b-1"]),
    ],
)
def test_a_word_names_devices(words: list[str], uuids: list[str]) -> None:
    assert [each.uuid for each in named(words, gpunodes=[node("a"), node("b")])] == uuids


def test_a_cordoned_device_that_its_node_no_longer_reports_has_a_name_too() -> None:
    assert named(["GPU-old"], gpunodes=[node(cordoned=("GPU-old",))]) == [Named(node="a", index=None, uuid="GPU-old")]


@pytest.mark.parametrize(
    ("word", "error", "says"),
    [
        ("x:0", NotFoundError, '"x:0": no node x reports devices; those that do: a, b'),
        ("a:9", NotFoundError, '"a:9": a has no device 9; of devices it has 2 \\(0 to 1\\)'),
        ("GPU-none", NotFoundError, 'no node reports a device "GPU-none": write node:2'),
        ("a:GPU-b-0", InvalidQueryError, '"GPU-b-0" is neither an index, a range nor a UUID of that node'),
        ("a", InvalidQueryError, '"a" is a node: write a:2 for one of its devices, or a:all'),
        ("a:", InvalidQueryError, '"a:" names no device'),
        (":1", InvalidQueryError, '":1" names no device'),
        ("a:1-0", InvalidQueryError, "the range 1-0 goes from a smaller index to a larger one"),
        ("a:-1", InvalidQueryError, '"-1" is neither an index'),
        ("a:0,,1", InvalidQueryError, '"" is neither an index'),
        ("a:²", InvalidQueryError, '"²" is neither an index'),
    ],
)
def test_a_word_that_names_no_device_is_refused_with_a_sentence(word: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        named([word], gpunodes=[node("a"), node("b")])


def test_the_error_says_if_no_node_reports_devices() -> None:
    with pytest.raises(NotFoundError, match="none does yet"):
        named(["a:0"], gpunodes=[])
