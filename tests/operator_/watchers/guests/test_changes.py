"""Which fields of a record are changed, and which need another record."""

from typing import Any

import pytest

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import NO_TEMPLATE, GPUJobSpec, MemoryRequest, job_of
from dovetail.decoding import convert
from dovetail.jobs.guests.kind import Guest
from dovetail.jobs.guests.record import Manifest, record_of
from dovetail_operator.watchers.guests import changes
from tests.core.jobs.guests.examples import kind_named


@pytest.mark.parametrize(
    ("wanted", "change"),
    [
        ({}, {"priority": 10, "preemptible": True}),
        ({"priority": 200, "preemptible": False}, {}),
        ({"priority": 200}, {"preemptible": True}),
    ],
    ids=["defaults", "same", "one"],
)
def test_what_follows_the_guest_is_compared_with_what_the_record_has(
    wanted: dict[str, Any], change: dict[str, Any]
) -> None:
    for is_held in (True, False):
        assert changes.followed(GPUJobSpec(priority=200, preemptible=False), wanted=wanted, is_held=is_held) == change


@pytest.mark.parametrize(
    ("wanted", "fields"),
    [
        ({"gpu": "1"}, set()),
        ({"gpu": "1", "workers": 2}, {"workers"}),
        ({"gpu": "2", "mode": "Fractional"}, {"gpu", "mode"}),
        ({}, {"gpu"}),
        ({"gpu": "1", "workload": "Training"}, {"workload"}),
        ({"gpu": "1", "memory": {"strategy": "0.7"}}, {"memory"}),
    ],
    ids=["same", "workers", "request-and-mode", "no-gpu", "workload", "memory"],
)
def test_a_field_that_the_guest_does_not_have_counts_as_its_default(wanted: dict[str, Any], fields: set[str]) -> None:
    assert changes.fixed(GPUJobSpec(gpu="1"), wanted=wanted).keys() == fields


def test_the_memory_strategy_is_compared_with_that_of_the_record() -> None:
    spec = GPUJobSpec(gpu="1", memory=MemoryRequest(strategy="0.7"))
    assert changes.fixed(spec, wanted={"gpu": "1", "memory": {"strategy": "0.7"}}) == {}
    assert changes.fixed(spec, wanted={"gpu": "1"}).keys() == {"memory"}


def wanted_of(*, annotations: dict[str, str] | None = None, **template: Any) -> Manifest:
    """The record of a held batch Job with these fields in its pod template."""
    spec = {"containers": [{"name": "main", "image": "busybox"}], **template}
    pods = {"metadata": {"annotations": {names.REQUEST: "1", **(annotations or {})}}, "spec": spec}
    body = {"metadata": {"name": "train", "namespace": "team", "uid": "u"}, "spec": {"suspend": True, "template": pods}}
    return record_of(convert(body, as_type=Guest), kind=kind_named("Job"))


def sized(cpu: str) -> list[dict[str, Any]]:
    """A container that takes this of its node's CPU."""
    return [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]


def merged(before: Any, *, patch: Any) -> Any:
    """The value after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key), patch=value)
    return after


NODES = {"nodeSelector": {"pool": "a", "zone": "1"}}
ANYWHERE = {"tolerations": [{"operator": "Exists"}]}
AFFINITY = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NODES, {"nodeSelector": {"pool": "b"}}),
        (NODES, {}),
        ({}, NODES),
        (NODES | AFFINITY, ANYWHERE),
        ({"containers": sized("1")}, {"containers": sized("64")}),
        ({"annotations": {names.POLICY: "Spread"}}, {"annotations": {names.POLICY: "Pack"}}),
        ({"annotations": {names.POLICY: "Spread"}}, {}),
    ],
    ids=["other-node", "any-node", "one-node", "several", "cpu", "policy", "default-policy"],
)
def test_the_record_of_a_held_guest_follows_its_template(before: dict[str, Any], after: dict[str, Any]) -> None:
    record, wanted = job_of(wanted_of(**before)), wanted_of(**after)
    change = changes.followed(record.spec, wanted=wanted["spec"], is_held=True)
    assert change
    changed = job_of(merged(values_of(record), patch={"spec": change}))
    assert values_of(changed.spec) == values_of(job_of(wanted).spec)
    assert changes.followed(job_of(wanted).spec, wanted=wanted["spec"], is_held=True) == {}
    assert changes.followed(record.spec, wanted=wanted["spec"], is_held=False) == {}, "it runs as it was planned"
    assert changes.fixed(record.spec, wanted=wanted["spec"]) == {}, "it keeps its place in the queue"


def test_labels_of_the_template_are_followed_and_empty_ones_are_none() -> None:
    wanted = wanted_of()
    record = job_of(wanted)
    template = {**wanted["spec"]["template"], "metadata": {"labels": {}}}
    assert changes.followed(record.spec, wanted={**wanted["spec"], "template": template}, is_held=True) == {}
    template = {**template, "metadata": {"labels": {"app": "train"}}}
    change = changes.followed(record.spec, wanted={**wanted["spec"], "template": template}, is_held=True)
    assert change == {"template": {"metadata": {"labels": {"app": "train"}}}}


def test_a_template_that_is_not_kept_is_not_compared() -> None:
    assert changes.followed(GPUJobSpec(template=NO_TEMPLATE), wanted=wanted_of()["spec"], is_held=True) == {}
