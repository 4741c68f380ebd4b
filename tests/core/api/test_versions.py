"""Conversion between v1alpha1 and v1beta1: nothing is lost in either direction, and bad objects get a sentence."""

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import gpuquota, gpuquota_v1beta1
from dovetail.api.crd import structural_schema
from dovetail.api.versions import ConversionError, convert_object
from dovetail.decoding import convert
from dovetail.names import API_VERSION as ALPHA
from dovetail.names import LIMIT_FORM
from tests.core.api.objects import objects, unknown

BETA = "dovetail.dev/v1beta1"
KINDS = {ALPHA: gpuquota.GPUQuota, BETA: gpuquota_v1beta1.GPUQuota}
SCHEMAS = {version: structural_schema(kind) for version, kind in KINDS.items()}
METADATA = st.fixed_dictionaries(
    {"name": st.just("team-a")},
    optional={"annotations": st.dictionaries(st.text(min_size=1), st.text(), min_size=1, max_size=2)},
)


def quotas(version: str) -> st.SearchStrategy[dict[str, Any]]:
    """Quotas as the API server stores them: valid by the rules that the conversion relies on."""
    parts = SCHEMAS[version]["properties"]
    whole = st.fixed_dictionaries(
        {
            "apiVersion": st.just(version),
            "kind": st.just("GPUQuota"),
            "metadata": METADATA,
            "spec": objects(parts["spec"]),
        },
        optional={"status": objects(parts["status"])},
    )
    return whole.filter(lambda quota: not {"gpus", "limit"} <= quota["spec"].keys())


@pytest.mark.parametrize(("version", "other"), [(ALPHA, BETA), (BETA, ALPHA)])
@given(data=st.data())
def test_there_and_back_is_the_same_object(version: str, other: str, data: st.DataObject) -> None:
    quota = data.draw(quotas(version))
    before = copy.deepcopy(quota)
    there = convert_object(quota, to=other)
    assert convert_object(there, to=version) == before == quota
    assert there["apiVersion"] == other
    assert list(unknown(there, schema=SCHEMAS[other])) == []
    convert(there, as_type=KINDS[other])


@given(quota=quotas(ALPHA))
def test_both_versions_of_a_quota_limit_the_same(quota: dict[str, Any]) -> None:
    alpha = convert(quota, as_type=gpuquota.GPUQuota).spec
    beta = convert(convert_object(quota, to=BETA), as_type=gpuquota_v1beta1.GPUQuota).spec
    limit = beta.limit or gpuquota_v1beta1.QuotaLimit()
    assert (limit.gpus, limit.models) == (alpha.most.gpus, alpha.most.models)
    assert (limit.running_jobs, limit.queued_jobs) == (alpha.running_jobs, alpha.queued_jobs)
    assert (beta.preemption_policy == "Never") is not alpha.may_preempt
    assert [each.start_time for each in beta.advance_reservations] == [each.start for each in alpha.reservations]


def quota_of(spec: Any, version: str = ALPHA, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": "GPUQuota", "metadata": {"name": "a", **metadata}, "spec": spec}


def test_a_limit_that_an_edit_has_widened_keeps_only_its_newer_name() -> None:
    beta = convert_object(quota_of({"gpus": 4}), to=BETA)
    assert beta["metadata"]["annotations"] == {LIMIT_FORM: "gpus"}
    beta["spec"]["limit"]["models"] = {"A100": 2}
    alpha = convert_object(beta, to=ALPHA)
    assert alpha == quota_of({"limit": {"gpus": 4, "models": {"A100": 2}}})


@pytest.mark.parametrize("form", ["gpus", "limit", "other", ""])
@pytest.mark.parametrize(
    ("version", "spec"),
    [
        (ALPHA, {"limit": {"gpus": 8}}),
        (ALPHA, {"runningJobs": 3}),
        (ALPHA, {}),
        (BETA, {"limit": {"gpus": 8, "models": {"A100": 2}}}),
        (BETA, {"limit": {"gpus": 8, "runningJobs": 2}}),
        (BETA, {"limit": {}}),
        (BETA, {}),
    ],
)
def test_an_annotation_that_people_wrote_is_dropped_and_changes_no_limit(
    version: str, spec: dict[str, Any], form: str
) -> None:
    other = ALPHA if version == BETA else BETA
    written = quota_of(spec, version, annotations={LIMIT_FORM: form, "a": "b"})
    back = convert_object(convert_object(written, to=other), to=version)
    kept = back["metadata"]["annotations"].pop(LIMIT_FORM, form)
    assert (back, kept) == (quota_of(spec, version, annotations={"a": "b"}), form)


def test_an_object_of_the_desired_version_is_left_as_it_is() -> None:
    assert convert_object(quota_of({"gpus": "wrong"}), to=ALPHA) == quota_of({"gpus": "wrong"})


CASES = [
    (quota_of([]), BETA, "spec (a list): expected an object"),
    (quota_of(None), BETA, "spec null: expected an object"),
    (quota_of({"limit": 4}), BETA, "spec.limit 4: expected an object"),
    (quota_of({"limit": {"gpus": 1}, "gpus": 2}), BETA, "expected one of them, not both"),
    (quota_of({"mayPreempt": "yes"}), BETA, 'spec.mayPreempt "yes": expected true or false'),
    (quota_of({"mayPreempt": 1}), BETA, "spec.mayPreempt 1: expected true or false"),
    (quota_of({"mayPreempt": []}), BETA, "spec.mayPreempt (a list): expected true or false"),
    (quota_of({"preemptionPolicy": "Ever"}, BETA), ALPHA, 'expected "PreemptLowerPriority" or "Never"'),
    (quota_of({"reservations": {}}), BETA, "spec.reservations (an object): expected a list"),
    (quota_of({"reservations": [1]}), BETA, "spec.reservations[0] 1: expected an object"),
    (quota_of({"reservations": [{"startTime": "x", "start": "y"}]}), BETA, "startTime belongs to the other version"),
    (quota_of({"advanceReservations": "x" * 500}, BETA), ALPHA, "expected a list"),
    (quota_of({"gpus": 1}, annotations="x"), BETA, 'metadata.annotations "x": expected an object'),
    (quota_of({}, "dovetail.dev/v2"), BETA, 'apiVersion "dovetail.dev/v2": expected one of dovetail.dev/v1alpha1'),
    (quota_of({}), "dovetail.dev/v9", 'desired apiVersion "dovetail.dev/v9": expected one of'),
    ({"apiVersion": ALPHA, "kind": "GPUJob"}, BETA, 'kind "GPUJob": expected one of GPUQuota'),
    ({"apiVersion": [], "kind": {}}, BETA, "kind (an object): expected one of GPUQuota"),
    ({}, BETA, "kind null: expected one of GPUQuota"),
]


@pytest.mark.parametrize(("value", "to", "problem"), CASES, ids=[problem for _, _, problem in CASES])
def test_what_cannot_be_converted_is_said_in_a_sentence(value: dict[str, Any], to: str, problem: str) -> None:
    with pytest.raises(ConversionError) as raised:
        convert_object(value, to=to)
    assert problem in str(raised.value)
    assert len(str(raised.value)) < 250


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("limit", "gpus", "runningJobs", "mayPreempt", "reservations", "preemptionPolicy", "advanceReservations")


@given(
    spec=st.dictionaries(st.sampled_from(FIELDS), ANYTHING) | ANYTHING,
    metadata=ANYTHING,
    versions=st.sampled_from([(ALPHA, BETA), (BETA, ALPHA)]),
)
def test_no_object_causes_another_error(spec: Any, metadata: Any, versions: tuple[str, str]) -> None:
    version, to = versions
    quota = {"apiVersion": version, "kind": "GPUQuota", "metadata": metadata, "spec": spec}
    made: dict[str, Any] = {"apiVersion": to}
    with contextlib.suppress(ConversionError):
        made = convert_object(quota, to=to)
    assert made["apiVersion"] == to
