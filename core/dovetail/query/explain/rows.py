"""An explanation as an answer. Pure."""

from typing import TypeVar

from msgspec.structs import replace as with_fields

from dovetail.answers import questions
from dovetail.answers.questions import Asked, ExplainedCause, ExplainedChange, ExplainedNode, NeighbourDevice
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.query.explain.explanation import Explanation
from dovetail.query.explain.subjects import Subject

Said = TypeVar("Said", ExplainedChange, ExplainedCause)


def explanation_row(found: Explanation, *, reader: Reader = EVERYTHING) -> questions.Explanation:
    """The explanation for `reader`.

    What is around it names the tenants of its nodes, so only a reader of everything gets that.
    """
    readable = reader.readable
    subject, answer = found.subject, found.answer
    return questions.Explanation(
        kind=subject.kind,
        name=subject.name or subject.called.message,
        namespace=subject.namespace,
        number=subject.number,
        state=subject.state,
        summary=readable(found.summary),
        details=reader.details(found.sentence),
        fits=answer.fits if answer else None,
        reason=answer.reason if answer else "",
        asked=_asked(subject),
        notes=[readable(note.message) for note in subject.notes],
        note_details=[reader.details(note) for note in subject.notes],
        basis=readable(found.basis.message),
        basis_details=reader.details(found.basis),
        changes=[_readable(each, reader=reader) for each in (answer.changes if answer else ())],
        causes=[_readable(each, reader=reader) for each in (answer.causes if answer else ())],
        nodes=[_node(each, reader=reader) for each in (answer.nodes if answer else ())],
        held=list(found.held),
        around=_around(found) if reader.everything else [],
    )


def _readable(found: Said, *, reader: Reader) -> Said:
    return with_fields(found, text=reader.readable(found.text), details=reader.readable_details(found.details))


def _node(found: ExplainedNode, *, reader: Reader) -> ExplainedNode:
    return with_fields(
        found,
        message=reader.readable(found.message),
        text=reader.readable(found.text),
        note=reader.readable(found.note),
        details=reader.readable_details(found.details),
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
