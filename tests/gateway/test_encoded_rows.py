"""Rows of a snapshot are encoded once for each version of an object."""

import json
from collections.abc import Sequence

from dovetail.answers.jobs import JobReference
from dovetail_gateway.stream.feed import EncodedRows


class Made:
    """Rows that count how often each of them is made."""

    def __init__(self) -> None:
        self.of: list[object] = []
        self.rows = EncodedRows(self._row)

    def _row(self, value: Sequence[str]) -> JobReference:
        self.of.append(value)
        return JobReference(namespace=value[0], name=value[1], number=None)


def test_a_row_is_made_once_for_each_version_of_an_object() -> None:
    made, first, second = Made(), ["red", "train"], ["red", "other"]
    texts = [json.loads(bytes(made.rows.of("red/train", value=value))) for value in (first, first, second, second)]
    assert [text["name"] for text in texts] == ["train", "train", "other", "other"]
    assert made.of == [first, second]


def test_an_equal_object_is_another_version() -> None:
    made = Made()
    for _ in range(2):
        made.rows.of("red/train", value=["red", "train"])
    assert len(made.of) == 2


def test_rows_of_objects_that_are_gone_are_forgotten() -> None:
    made = Made()
    for key in ("a/a", "a/b", "a/c"):
        made.rows.of(key, value=key.split("/"))
    made.rows.forget("a/a")
    made.rows.forget("a/never")
    assert len(made.rows) == 2
    made.rows.keep_only({"a/c"})
    assert len(made.rows) == 1
