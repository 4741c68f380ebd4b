"""What the API server refuses by a structural schema is told in one sentence, and what it takes has no problem."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.crd import structural_schema
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.schema_problems import Schema, first_problem
from tests.core.api.objects import objects

SCHEMA: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 4},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "least": {"type": "number", "minimum": 0.5},
        "any": {"type": "number"},
        "ready": {"type": "boolean"},
        "word": {"type": "string", "enum": ["One", "Two"]},
        "few": {"type": "array", "maxItems": 2, "items": {"type": "integer"}},
        "by": {
            "type": "object",
            "maxProperties": 1,
            "additionalProperties": {"type": "integer", "minimum": 0},
            "propertyNames": {"pattern": "^[a-z]$"},
        },
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@given(data=st.data())
def test_what_the_schema_allows_has_no_problem(data: st.DataObject) -> None:
    schema = structural_schema(GPUQuota)["properties"]["spec"]
    assert first_problem(data.draw(objects(schema)), schema=schema, path="spec") == ""


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"name": "a"}, 'name "a": must have 2 to 4 characters'),
        ({"name": "abcde"}, 'name "abcde": must have 2 to 4 characters'),
        ({"name": 7}, "name 7: must be a text"),
        ({"count": 0}, "count 0: must be a whole number from 1 to 9"),
        ({"count": 10}, "count 10: must be a whole number from 1 to 9"),
        ({"count": 1.5}, "count 1.5: must be a whole number from 1 to 9"),
        ({"count": True}, "count true: must be a whole number from 1 to 9"),
        ({"least": 0.4}, "least 0.4: must be a number of at least 0.5"),
        ({"any": "x"}, 'any "x": must be a number'),
        ({"ready": 1}, "ready 1: must be true or false"),
        ({"word": "one"}, 'word "one": must be one of One, Two'),
        ({"few": {}}, "few (an object): must be a list"),
        ({"few": [1, 2, 3]}, "few (a list): must have at most 2 entries"),
        ({"few": [1, "x"]}, 'few[1] "x": must be a whole number'),
        ({"by": {"a": 1, "b": 2}}, "by (an object): must have at most 1 entries"),
        ({"by": {"a": -1}}, "by.a -1: must be a whole number of at least 0"),
        ({"by": {"A:": 1}}, 'by: the name "A:" must match ^[a-z]$'),
        ({"cuont": 1}, 'unknown field "cuont"; did you mean "count"?'),
        ({"zzz": 1}, 'unknown field "zzz"; the fields are name, count'),
        ({"name": "x" * 200}, f'name "{"x" * 99}…: must have 2 to 4 characters'),
    ],
)
def test_a_wrong_value_is_named_with_its_path_and_what_is_allowed(change: dict[str, Any], problem: str) -> None:
    assert first_problem({"name": "abc"} | change, schema=SCHEMA).startswith(problem)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "ab"}, {"name": "abcd"}, {"count": 1}, {"count": 9}, {"least": 0.5}, {"least": 7}, {"any": -3},
        {"ready": False}, {"word": "Two"}, {"few": []}, {"few": [1, 2]}, {"by": {"a": 0}}, {"open": {"x": [1]}},
        {"count": None},
    ],
)  # fmt: skip
def test_the_bounds_themselves_are_allowed(change: dict[str, Any]) -> None:
    assert first_problem({"name": "abc"} | change, schema=SCHEMA) == ""


def test_a_missing_field_is_named() -> None:
    assert first_problem({}, schema=SCHEMA) == "the object: name is missing"
    assert first_problem({}, schema=SCHEMA, path="spec") == "spec: name is missing"
    assert first_problem([], schema=SCHEMA) == "the object (a list): must be an object"
