"""An explanation as an answer. Pure."""

from dovetail.answers import questions
from dovetail.answers.explain.answer import NodeAnswer
from dovetail.answers.jobs import DeviceShare
from dovetail.answers.questions import Asked, ExplainedCause, ExplainedChange, ExplainedNode, NeighbourDevice
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.query.explain.explanation import Explanation
from dovetail.query.explain.subjects import Subject


def explanation_row(found: Explanation, *, reader: Reader = EVERYTHING) -> questions.Explanation:
    """The explanation for `reader`.

    What is around it names the tenants of its nodes, so only a reader of everything gets that.
    """
    readable = reader.readable
    subject, answer = found.subject, found.answer
    nodes = answer.nodes if answer else ()
    return questions.Explanation(
        kind=subject.kind,
        name=subject.name or subject.called,
        namespace=subject.namespace,
        number=subject.number,
        state=subject.state,
        summary=readable(found.summary),
        fits=answer.fits if answer else None,
        reason=answer.reason if answer else "",
        asked=_asked(subject),
        notes=list(map(readable, subject.notes)),
        basis=readable(found.basis),
        changes=[
            ExplainedChange(kind=each.kind, text=readable(each.text), node=each.node, request=each.request)
            for each in (answer.changes if answer else ())
        ],
        causes=[
            ExplainedCause(reason=each.reason, text=readable(each.text), nodes=each.nodes)
            for each in (answer.causes if answer else ())
        ],
        nodes=[node_answer_row(node, reader=reader) for node in nodes],
        held=list(found.held),
        around=_around(found) if reader.everything else [],
    )


def node_answer_row(node: NodeAnswer, *, reader: Reader = EVERYTHING) -> ExplainedNode:
    """One node's answer."""
    readable = reader.readable
    return ExplainedNode(
        node=node.node,
        fits=node.fits,
        reason=node.reason,
        message=readable(node.message),
        text=readable(node.text),
        score=node.score,
        terms=dict(node.terms),
        devices=[
            DeviceShare(
                node=node.node,
                index=each.index,
                uuid=each.uuid,
                share_milli=each.share_milli,
                memory_mib=each.memory_mib,
            )
            for each in node.devices
        ],
        note=readable(node.note),
    )


def _asked(subject: Subject) -> Asked | None:
    ask = subject.ask
    if ask is None:
        return None
    return Asked(
        gpu=None if ask.gpu is None else str(ask.gpu),
        workers=subject.workers,
        mode=ask.mode,
        policy=ask.policy,
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
    )


def _around(found: Explanation) -> list[NeighbourDevice]:
    return [
        NeighbourDevice(
            node=name,
            index=use.device.index,
            uuid=use.device.uuid,
            model=use.device.model,
            status=use.status(namespace=found.subject.namespace),
            used_mib=use.used_mib,
            memory_mib=use.device.memory_mib,
            stale=use.stale,
        )
        for name, uses in (found.around or {}).items()
        for use in uses
    ]
