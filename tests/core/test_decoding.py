"""Whatever a text from outside is, decoding gives a value or one error of ours."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.meta import ObjectMeta
from dovetail.decoding import Decoder, UnreadableError, convert, decode

HOSTILE = {
    "nested deeper than the stack": '{"name":' + "[" * 100_000 + "]" * 100_000 + "}",
    "an unknown field nested deeper than the stack": '{"x":' + '{"a":' * 9_999 + "1" + "}" * 9_999 + "}",
    "an integer of more digits than Python converts": '{"generation":' + "9" * 5_000 + "}",
    "a number beyond a machine word": '{"generation":1e999}',
    "bytes that are no UTF-8": b'{"name":"\xff\xfe"}',
    "a lone surrogate": '{"name":"\\ud800"}',
    "another type": '{"name":1}',
    "no JSON": "{",
    "nothing": "",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_text_is_one_error_of_ours(text: str | bytes) -> None:
    for read in (Decoder(ObjectMeta).decode, lambda given: decode(given, as_type=ObjectMeta)):
        with pytest.raises(UnreadableError) as caught:
            read(text)
        assert 0 < len(caught.value.problem) <= 300


@given(st.binary() | st.text() | st.integers(0, 10_000).map(lambda depth: "[" * depth))
def test_no_text_brings_any_other_error(text: bytes | str) -> None:
    try:
        decode(text, as_type=dict[str, Any])
    except UnreadableError:
        return


class _Tree(msgspec.Struct):
    a: "_Tree | None" = None


def test_a_value_nested_deeper_than_the_stack_is_not_converted() -> None:
    value: dict[str, Any] = {}
    for _ in range(100_000):
        value = {"a": value}
    with pytest.raises(UnreadableError, match="nested too deeply"):
        convert(value, as_type=_Tree)
