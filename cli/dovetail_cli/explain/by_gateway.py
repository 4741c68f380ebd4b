"""A job's explanation by the gateway, in the shapes of one that was made here. Pure."""

from collections.abc import Sequence

from dovetail.answers.explain.answer import Cause, Change, NodeAnswer
from dovetail.answers.questions import Explanation
from dovetail.api.gpujob import GPUJob
from dovetail.query.explain.explanation import Held
from dovetail.query.explain.rows import ExplanationRow, node_answer_row
from dovetail_cli.explain import render


def shown(found: Explanation, *, job: GPUJob, form: str, everything: bool) -> str:
    """The explanation in one of the formats; `everything` lifts the limit on nodes in the text."""
    return text(found, everything=everything) if form == "table" else render.document(_row(found, job=job), form=form)


def text(found: Explanation, *, everything: bool) -> str:
    """The text for people: the sentence, what would help, the counted reasons, and the nodes."""
    most = None if everything else render.NODES_SHOWN
    parts = [render.head(found.summary, notes=found.notes)]
    if found.fits is not None:
        parts += render.answers(_changes(found), causes=_causes(found), nodes=_nodes(found), most=most)
    if found.basis:
        parts.append(f"{render.sentence(found.basis)}.")
    return "\n\n".join(parts)


def _row(found: Explanation, *, job: GPUJob) -> ExplanationRow:
    return ExplanationRow(
        kind="GPUJob",
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        number=job.status.number,
        state=found.state,  # type: ignore[arg-type]  # a later gateway may know more states
        summary=found.summary,
        fits=found.fits,
        reason=found.reason,
        ask=None,
        notes=found.notes,
        basis=found.basis,
        changes=_changes(found),
        reasons=_causes(found),
        nodes=list(map(node_answer_row, _nodes(found))),
        placement=[
            Held(
                pod=each.pod,
                node=each.node,
                index=each.index,
                uuid=each.uuid,
                share_milli=each.share_milli,
                memory_mib=each.memory_mib,
            )
            for each in found.held
        ],
        around=[],
    )


def _changes(found: Explanation) -> Sequence[Change]:
    return [
        Change(kind=each.kind, text=each.text, node=each.node, request=each.request)  # type: ignore[arg-type]  # as above
        for each in found.changes
    ]


def _causes(found: Explanation) -> Sequence[Cause]:
    return [Cause(reason=each.reason, text=each.text, nodes=each.nodes) for each in found.causes]


def _nodes(found: Explanation) -> Sequence[NodeAnswer]:
    return [
        NodeAnswer(node=each.node, reason=each.reason, message=each.message, score=each.score)  # type: ignore[arg-type]  # as above
        for each in found.nodes
    ]
