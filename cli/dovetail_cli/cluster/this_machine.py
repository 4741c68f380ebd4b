"""What a queue on one's own machine says, without the words of a cluster. Pure.

Its API has the words of Kubernetes, as every cluster's: `-o json` and kubectl show them. What people read has none:
there is one node, and it is their machine.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from dovetail.answers.jobs import EventRow
from dovetail.answers.questions import DryRun, ExplainedChange, Explanation
from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster.connection import Cluster

# Kubernetes' reasons for the end of a batch Job.
_REASONS: Final[Mapping[str, str]] = {
    "BackoffLimitExceeded": "Failed",
    "PodFailurePolicy": "Failed",
    "DeadlineExceeded": "TimeLimit",
    "ContainerCreating": "Starting",
}
_WORDS: Final = (
    ("No node reports a GPU", "This machine has no GPU"),
    ("no node has ", "this machine does not have "),
    (" on node local", ""),
    ("node local ", "this machine "),
    (" on one node", ""),
    (" failed on local:", " failed:"),
    ("on local after", "after"),
)
_MORE: Final = "MoreNodes"
_ON_CPU: Final = "run it on the CPU: gbatch --cpu-fallback"


def is_one(cluster: Cluster) -> bool:
    """Whether the cluster is the queue of this machine."""
    return cluster.client.connection.local_data is not None


def said(text: str) -> str:
    """The sentence in the words of one machine."""
    for cluster_words, words in (*_WORDS, *((f"({code}: ", "(") for code in _REASONS)):
        text = text.replace(cluster_words, words)
    return text


def reason(code: str) -> str:
    """The reason as people call it."""
    return _REASONS.get(code, code)


def job(cluster: Cluster, *, job: GPUJob) -> GPUJob:
    """The job with its reasons and sentences in these words; on a cluster as it is."""
    if not is_one(cluster):
        return job
    status = job.status
    attempts = [replace(each, reason=reason(each.reason), message=said(each.message)) for each in status.attempts]
    # A reason of the queue's own keeps its code.
    shown = replace(status, reason=reason(status.reason), message=said(status.message), attempts=attempts)
    return replace(job, status=shown)


def events(*, events: Sequence[EventRow]) -> list[EventRow]:
    """The events in these words."""
    return [replace(each, reason=reason(each.reason), message=said(each.message)) for each in events]


def answer(cluster: Cluster, *, answer: DryRun | None) -> DryRun | None:
    """The queue's answer in these words; on a cluster as it is."""
    if answer is None or not is_one(cluster):
        return answer
    return replace(answer, message=said(answer.message), text=said(answer.text))


def explanation(*, found: Explanation) -> Explanation:
    """The explanation in these words.

    A machine gets no further node: where only that would help, the CPU does.
    """
    changes = [
        ExplainedChange(kind=each.kind, text=_ON_CPU, node="", request="")
        if each.kind == _MORE
        else replace(each, text=said(each.text))
        for each in found.changes
    ]
    return replace(
        found,
        summary=said(found.summary),
        notes=[said(each) for each in found.notes],
        changes=changes,
        nodes=[replace(each, message=said(each.message)) for each in found.nodes],
    )
