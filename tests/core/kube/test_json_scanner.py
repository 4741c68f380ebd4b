import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.decoding import UnreadableError
from dovetail.kube import json_scanner

TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from('"\\{}[],:/ \n\x00é\u202e𝄞\ud800'), st.sampled_from(string.ascii_letters))
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=20,
)
SPACED = st.sampled_from([(None, (", ", ": ")), (None, (",", ":")), (2, (" , ", " : "))])


def written(value: Any, *, spaced: tuple[Any, Any]) -> bytes:
    return json.dumps(value, indent=spaced[0], separators=spaced[1], ensure_ascii=True).encode()


@given(st.lists(VALUES, max_size=5), SPACED)
def test_the_elements_are_those_that_json_finds(value: list[Any], spaced: tuple[Any, Any]) -> None:
    assert [json.loads(part) for part in json_scanner.elements(written(value, spaced=spaced))] == value


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5), SPACED)
def test_the_members_are_those_that_json_finds(value: dict[str, Any], spaced: tuple[Any, Any]) -> None:
    parts = json_scanner.members(written(value, spaced=spaced))
    assert {name: json.loads(part) for name, part in parts.items()} == value
    assert json.loads(json_scanner.joined(parts)) == value


@pytest.mark.parametrize("depth", [1_100, 9_999, 1_000_000])
def test_depth_is_no_obstacle(depth: int) -> None:
    deep = b"[" * depth + b'"]\\""' + b"]" * depth
    assert json_scanner.members(b'{"a": ' + deep + b', "b": 1}') == {"a": deep, "b": b"1"}


@pytest.mark.parametrize("place", range(json_scanner._BLOCK_BYTES - 6, json_scanner._BLOCK_BYTES + 2))
def test_a_string_may_go_over_the_end_of_a_block(place: int) -> None:
    # Backslashes and the closing quote meet the end of the block at each place.
    first = "x" * (place - 2) + '\\\\\\"]\\' + "\x00"
    text = json.dumps([first, "]", {"a": [1]}]).encode()
    assert [json.loads(part) for part in json_scanner.elements(text)] == [first, "]", {"a": [1]}]


def test_backslashes_alone_fill_a_block() -> None:
    value = ["\\" * json_scanner._BLOCK_BYTES, '"\\' * json_scanner._BLOCK_BYTES]
    assert [json.loads(part) for part in json_scanner.elements(json.dumps(value).encode())] == value


@pytest.mark.parametrize(
    "text",
    [b"", b" ", b"1", b'"a"', b"[", b"]", b"[1", b'["a]', b"[1]]", b"[[1]", b"[1][2]", b"[1] x", b"x [1]", b'{"a": 1}'],
)
def test_what_is_no_array_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableError):
        json_scanner.elements(text)


@pytest.mark.parametrize(
    "text", [b'{"a"}', b"{,}", b'{"a": 1,}', b"{1: 2}", b'{"a": 1}{}', b"[]", b'{"\xff": 1}', b'{"\\ud800x": 1}']
)
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(UnreadableError):
        json_scanner.members(text)


@given(st.binary(max_size=300) | TEXTS.map(lambda text: text.encode(errors="surrogatepass")))
def test_nothing_but_its_own_error_leaves_it(text: bytes) -> None:
    for take in (json_scanner.members, json_scanner.elements):
        try:
            take(text)
        except UnreadableError:
            continue
