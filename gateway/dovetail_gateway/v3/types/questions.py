"""What is asked of the queue without a change."""

from typing import Annotated

import msgspec
from msgspec import Meta

from dovetail_gateway.v3.types.common import Input, JobName, NamespaceName, ObjectName


class DoctorQuery(Input, frozen=True, kw_only=True):
    """What the doctor looks at."""

    node: Annotated[ObjectName | None, Meta(description="Only this node, and what the chart installs.")] = None
    namespace: Annotated[
        NamespaceName, Meta(description="The namespace in which it tries whether you may list jobs.")
    ] = "default"


class MovesQuery(Input, frozen=True, kw_only=True):
    """Which jobs count as those that may move."""

    willing: Annotated[
        bool,
        Meta(
            description="Only jobs that say that they may move, or whose namespace does: what a request carries out. "
            "Otherwise all that may be preempted count."
        ),
    ] = False


class NewRequest(Input, frozen=True, kw_only=True):
    """A job that is not submitted: its spec, and the namespace that it would be in."""

    namespace: NamespaceName
    spec: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobSpec"})]
    in_place_of: Annotated[
        JobName | None,
        Meta(description="A waiting job of the namespace that is left out, as if it were cancelled first."),
    ] = None
