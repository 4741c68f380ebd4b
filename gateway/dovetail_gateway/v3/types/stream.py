"""The snapshot of the cluster and the stream of its changes."""

from typing import Annotated

from msgspec import Meta

from dovetail.answers.jobs import JobRow
from dovetail.answers.nodes import NodeRow
from dovetail_gateway.v3.types.common import Input, Row


class GoneJob(Row, frozen=True, kw_only=True):
    """A job that is deleted."""

    namespace: str
    name: str


class Snapshot(Row, frozen=True, kw_only=True):
    """Everything that you may see; `/api/v3/stream?since=EPOCH:SEQ` leads on from here."""

    epoch: str
    seq: int
    jobs: list[JobRow]
    nodes: list[NodeRow]


class Delta(Row, frozen=True, kw_only=True):
    """The data of the event `delta`: rows that are new or changed, and what is gone."""

    seq: int
    jobs: list[JobRow]
    gone_jobs: list[GoneJob]
    nodes: list[NodeRow]
    gone_nodes: list[str]


class StreamQuery(Input, frozen=True, kw_only=True):
    """Where the stream begins; Last-Event-ID takes precedence."""

    since: Annotated[str, Meta(max_length=64, description="EPOCH:SEQ of a snapshot; empty: now.")] = ""
