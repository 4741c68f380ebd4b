"""How large a GPUJob may be: refusals in a sentence, and a depth that is measured without recursion."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.gpujob import job_of
from dovetail.jobs.size_limits import MAX_DEPTH, JobLimits, depth_of, refusal_of_job, refusal_of_spec, without_bulk

LIMITS = JobLimits(spec_bytes=10_000, array_bytes=100_000)
VALUES = st.recursive(
    st.none() | st.integers() | st.text(st.sampled_from('ab[]{}"\\\n/é')),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from('[{"\\')), inner, max_size=4),
    max_leaves=30,
)


def spec(*, size: int = 100, **fields: Any) -> bytes:
    """A spec of about that many bytes."""
    containers = [{"name": "main", "image": "i" * max(0, size - 100)}]
    return msgspec.json.encode({"gpu": 1, "template": {"spec": {"containers": containers}}, **fields})


def nested(depth: int) -> bytes:
    return b'{"template":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"


def deepest(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(deepest, value.values()), default=0)
    return 1 + max(map(deepest, value), default=0) if isinstance(value, list) else 0


def test_an_ordinary_spec_is_within_the_limits() -> None:
    assert refusal_of_spec(spec(), limits=JobLimits()) is None


def test_a_spec_that_is_too_large_is_refused_with_its_size_and_what_is_allowed() -> None:
    said = refusal_of_spec(spec(size=20_000), limits=LIMITS)
    assert said is not None
    assert said.message.startswith("spec has 19,9")
    assert "10,000 at most (gpujobs.max_spec_bytes)" in said.message


@pytest.mark.parametrize(
    ("fields", "tasks"),
    [
        ({"array": {"indexes": "0-99"}}, 100),
        ({"sweep": {"parameters": [{"name": "LR", "values": [f"{at}" for at in range(50)]}]}}, 50),
    ],
)
def test_an_array_is_bounded_together_with_its_template(fields: dict[str, Any], tasks: int) -> None:
    said = refusal_of_spec(spec(size=5_000, **fields), limits=LIMITS)
    assert said is not None
    assert said.message.startswith(f"the specs of {tasks} tasks with ")
    assert "100,000 at most (gpujobs.max_array_bytes)" in said.message
    assert refusal_of_spec(spec(size=300, **fields), limits=LIMITS) is None


@pytest.mark.parametrize("array", [{"indexes": "9-1"}, {"indexes": 5}, [], {"indexes": "0-99999999999"}])
def test_an_array_that_cannot_be_counted_is_left_to_those_who_read_it(array: Any) -> None:
    assert refusal_of_spec(spec(size=5_000, array=array), limits=LIMITS) is None


@pytest.mark.parametrize(
    ("depth", "is_refused"), [(MAX_DEPTH, False), (MAX_DEPTH + 1, True), (900, True), (9_999, True)]
)
def test_a_template_is_nested_so_deep_at_most(depth: int, is_refused: bool) -> None:
    said = refusal_of_spec(nested(depth), limits=JobLimits())
    text = None if said is None else said.message
    assert text == (f"spec.template is nested {depth:,} levels deep and may be 64 at most" if is_refused else None)


@given(VALUES)
def test_the_depth_is_that_of_the_values_whatever_their_texts_hold(value: Any) -> None:
    assert depth_of(json.dumps(value).encode()) == deepest(value)


@given(st.binary(max_size=200))
def test_the_depth_of_what_is_no_json_is_some_number(text: bytes) -> None:
    assert depth_of(text) >= 0


def test_metadata_has_a_limit_of_its_own_and_keeps_what_dovetail_reads() -> None:
    labels = {f"team.example/{at}": "x" * 60 for at in range(6_000)} | {"dovetail.dev/array": "sweep"}
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": f"{at}"} for at in range(9)]
    meta = {"name": "x", "labels": labels, "ownerReferences": owners, "finalizers": ["a/b"]}
    job = job_of({"metadata": meta, "spec": json.loads(spec())})
    said = refusal_of_job(job, limits=JobLimits())
    assert said is not None
    assert said.message.startswith("metadata has ")
    kept = without_bulk(job.metadata)
    assert (kept.labels, kept.owner_references, kept.finalizers) == ({"dovetail.dev/array": "sweep"}, (), ("a/b",))
