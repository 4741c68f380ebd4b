"""The companion of a ResourceQuota that limits a vendor's GPUs."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import names
from dovetail.formats.quantities import whole
from dovetail_operator.manifests.counted_quota import ResourceQuota, companion_name, counted_quota, is_counted, says

NVIDIA = "nvidia.com/gpu"
MILLI, TURNS = f"requests.{names.GPU_MILLI}", f"requests.{names.GPU_TURN}"


def quota(hard: Any = "4", *, used: Any = None, **spec: Any) -> ResourceQuota:
    metadata = {"name": "gpus", "namespace": "team", "uid": "u1"}
    limits = {} if hard is None else {f"requests.{NVIDIA}": hard, "pods": "9"}
    status = {} if used is None else {"used": {f"requests.{NVIDIA}": used}}
    return msgspec.convert({"metadata": metadata, "spec": {"hard": limits, **spec}, "status": status}, ResourceQuota)


def made(found: ResourceQuota) -> ResourceQuota:
    """Its companion, as the API server returns it."""
    wanted = counted_quota(found, resource=NVIDIA)
    assert wanted is not None
    return msgspec.convert(wanted, ResourceQuota, strict=False)


def test_the_vendor_s_gpus_are_limited_in_thousandths_of_dovetail_s() -> None:
    wanted = counted_quota(quota("4"), resource=NVIDIA)
    assert wanted is not None
    assert wanted["spec"] == {"hard": {MILLI: "4000", TURNS: "4"}}
    assert wanted["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "ResourceQuota", "name": "gpus", "uid": "u1"}
    ]
    assert (wanted["metadata"]["name"], wanted["metadata"]["namespace"]) == ("dovetail-gpus", "team")
    assert is_counted(made(quota("4")))


@given(hard=st.integers(0, 9999), used=st.integers(0, 99999))
def test_both_together_never_exceed_the_limit(hard: int, used: int) -> None:
    left = whole(made(quota(str(hard), used=str(used))).spec.hard[TURNS])
    assert left == max(0, hard - used)


@pytest.mark.parametrize("found", [quota(None), quota("many"), quota("4", used="many"), made(quota("4"))])
def test_what_limits_none_or_is_unreadable_or_the_operator_s_own_has_no_companion(found: ResourceQuota) -> None:
    assert counted_quota(found, resource=NVIDIA) is None


def test_the_pods_that_are_counted_are_the_same() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    found = made(quota("4", scopes=["NotTerminating"], scopeSelector=selector))
    assert (found.spec.scopes, found.spec.scope_selector) == (["NotTerminating"], selector)


def test_it_says_what_is_wanted_however_the_amount_is_written() -> None:
    wanted = counted_quota(quota("4"), resource=NVIDIA)
    assert wanted is not None
    stored = msgspec.structs.replace(made(quota("4")).spec, hard={MILLI: "4k", TURNS: 4})
    assert says(msgspec.structs.replace(made(quota("4")), spec=stored), wanted=wanted)


@pytest.mark.parametrize("found", [quota("5"), quota("4", used="1"), quota("4", scopes=["Terminating"])])
def test_another_limit_or_other_pods_are_not_what_is_wanted(found: ResourceQuota) -> None:
    wanted = counted_quota(quota("4"), resource=NVIDIA)
    assert wanted is not None
    assert not says(made(found), wanted=wanted)


def test_an_unreadable_amount_is_not_what_is_wanted() -> None:
    wanted = counted_quota(quota("4"), resource=NVIDIA)
    assert wanted is not None
    spec = msgspec.structs.replace(made(quota("4")).spec, hard={MILLI: "x", TURNS: "4"})
    assert not says(msgspec.structs.replace(made(quota("4")), spec=spec), wanted=wanted)


def test_names_beyond_the_longest_stay_distinct() -> None:
    assert companion_name("a" * 240 + "b") != companion_name("a" * 240 + "c")
    assert len(companion_name("a" * 253)) <= 253
