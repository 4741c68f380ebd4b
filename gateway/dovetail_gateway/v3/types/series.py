"""What was used over time, and by whom."""

from typing import Annotated

from msgspec import Meta

from dovetail.answers.use.series import Subject
from dovetail.answers.use.usage import UsageGroup
from dovetail.api.historyquery import Moment
from dovetail_gateway.v3.types.common import Input, NamespaceName


class SeriesQuery(Input, frozen=True, kw_only=True):
    """Whose curves, and of which time."""

    of: Annotated[Subject, Meta(description="What the curves are of. Device: each device of the node `name`.")] = (
        "Cluster"
    )
    name: Annotated[
        Annotated[str, Meta(max_length=253)] | None,
        Meta(
            description="The node, the model, the namespace, the project or the job. Without it: all models, or all "
            "namespaces and projects that you may list."
        ),
    ] = None
    namespace: Annotated[NamespaceName | None, Meta(description="The namespace of the job.")] = None
    since: Annotated[
        Moment | None, Meta(description="The beginning; without it an hour before the end, or the start of the job.")
    ] = None
    until: Annotated[Moment | None, Meta(description="The end; without it now.")] = None


class MomentQuery(Input, frozen=True, kw_only=True):
    """Which time."""

    at: Annotated[Moment, Meta(description="The time; its step has one value of each device.")]


class UsageQuery(Input, frozen=True, kw_only=True):
    """Which days, and by what they are grouped."""

    by: Annotated[UsageGroup, Meta(description="What the rows are.")] = "Namespace"
    since: Annotated[Moment | None, Meta(description="The first day (UTC); without it 30 days before the end.")] = None
    until: Annotated[Moment | None, Meta(description="The day before which it ends; without it tomorrow.")] = None
    namespace: Annotated[NamespaceName | None, Meta(description="Only this namespace.")] = None
