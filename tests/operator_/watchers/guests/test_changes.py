"""Which fields of a record are changed, and which need another record."""

from typing import Any

import pytest

from dovetail.api.gpujob import GPUJobSpec
from dovetail_operator.watchers.guests import changes


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
    assert changes.followed(GPUJobSpec(priority=200, preemptible=False), wanted=wanted) == change


@pytest.mark.parametrize(
    ("wanted", "fields"),
    [
        ({"gpu": "1"}, set()),
        ({"gpu": "1", "workers": 2}, {"workers"}),
        ({"gpu": "2", "mode": "Fractional"}, {"gpu", "mode"}),
        ({}, {"gpu"}),
    ],
    ids=["same", "workers", "request-and-mode", "no-gpu"],
)
def test_a_field_that_the_guest_does_not_have_counts_as_its_default(wanted: dict[str, Any], fields: set[str]) -> None:
    assert changes.fixed(GPUJobSpec(gpu="1"), wanted=wanted).keys() == fields
