"""The option --topology of gbatch."""

import pytest

from dovetail.api.gpujob import SubGroups, TopologySpec
from dovetail_cli.submit import pod_options
from dovetail_cli.ui.errors import UsageError


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, None),
        ("required=rack", TopologySpec(required="rack")),
        ("preferred=nvlink", TopologySpec(preferred="nvlink")),
        (
            "required=zone, preferred=rack,group=4:nvlink",
            TopologySpec(required="zone", preferred="rack", sub_groups=SubGroups(size=4, required="nvlink")),
        ),
    ],
)
def test_rules_are_read(text: str | None, found: TopologySpec | None) -> None:
    assert pod_options.topology(text, workers=8) == found


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("rack", '--topology "rack": write required=LEVEL, preferred=LEVEL or group=SIZE:LEVEL'),
        ("near=rack", "such as required=rack"),
        ("required=rack,required=zone", "such as required=rack"),
        ("required=Rack", '"Rack" is no name of a level'),
        ("required=", '"" is no name of a level'),
        ("group=3:nvlink", "the number of workers (--nodes), which is 8, must be a multiple of the group's size"),
        ("group=nvlink", '"" is no name of a level'),
        ("group=x:nvlink", "must be a multiple of the group's size"),
    ],
)
def test_other_rules_are_refused_with_an_example(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        pod_options.topology(text, workers=8)
    assert told in str(refused.value)
