"""What is asked of the queue without a change."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dovetail_gateway.v3.types.common import Input, JobName, NamespaceName, ObjectName
from dovetail_gateway.v3.types.jobs import JobPath

# Each job takes up to a second of the queue's code.
MOST_JOBS: Final = 20
_JOB: Final = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"


class DoctorQuery(Input, frozen=True, kw_only=True):
    """What the doctor looks at."""

    node: Annotated[ObjectName | None, Meta(description="Only this node, and what the chart installs.")] = None
    namespace: Annotated[
        NamespaceName, Meta(description="The namespace in which it tries whether you may list jobs.")
    ] = "default"


class MovesQuery(Input, frozen=True, kw_only=True):
    """Which jobs are to start, and which count as those that may move."""

    jobs: Annotated[
        str,
        Meta(
            pattern=rf"^{_JOB}(,{_JOB}){{0,{MOST_JOBS - 1}}}$",
            description=f"The waiting jobs as `namespace/name`, at most {MOST_JOBS}, with commas between them. Their "
            "plans hold together.",
        ),
    ]
    willing: Annotated[
        bool,
        Meta(
            description="Only jobs that say that they may move, or whose namespace does: what a request carries out. "
            "Otherwise all that may be preempted count."
        ),
    ] = False

    @property
    def paths(self) -> list[JobPath]:
        """The jobs, each once."""
        words = [each.partition("/") for each in dict.fromkeys(self.jobs.split(","))]
        return [JobPath(namespace=namespace, name=name) for namespace, _, name in words]

    @property
    def namespaces(self) -> list[str]:
        """The namespaces that the request names."""
        return list(dict.fromkeys(each.namespace for each in self.paths))


class NewRequest(Input, frozen=True, kw_only=True):
    """A job that is not submitted: its spec, and the namespace that it would be in."""

    namespace: NamespaceName
    spec: Annotated[msgspec.Raw, Meta(extra_json_schema={"$ref": "#/components/schemas/GPUJobSpec"})]
    in_place_of: Annotated[
        JobName | None,
        Meta(description="A waiting job of the namespace that is left out, as if it were cancelled first."),
    ] = None
