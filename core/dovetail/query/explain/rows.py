"""An explanation as numbers and texts, for programs. Pure."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from dovetail.answers.explain.answer import Cause, Change, NodeAnswer
from dovetail.api.gpujob import Mode, Policy
from dovetail.engine.model.claims import DeviceClaim
from dovetail.query.explain.explanation import Explanation, Held
from dovetail.query.explain.subjects import State, Subject


class AskRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a subject requests.

    gpu         the GPUs of each worker, as compact text; None for none
    workers     the number of workers that need room
    mode        how the devices are shared
    policy      how nodes are ranked
    cpu_milli   the CPU of each worker's host, in thousandths
    memory_mib  the memory of each worker's host, in MiB
    """

    gpu: str | None
    workers: int
    mode: Mode
    policy: Policy
    cpu_milli: int
    memory_mib: int


class NodeAnswerRow(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one node.

    node     its name
    fits     whether the pod could go there now
    reason   why it does not fit; empty if it fits
    message  the reason with the node's numbers
    text     the reason in words that all nodes of one cause share
    score    how good the node is, from 0 to 1; None if the pod does not fit
    terms    the terms of the score
    devices  what the pod would get
    note     why the node's measurements do not count; empty if they do
    """

    node: str
    fits: bool
    reason: str
    message: str
    text: str
    score: float | None
    terms: Mapping[str, float]
    devices: Sequence[DeviceClaim]
    note: str


class DeviceAround(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a node that the subject is on.

    node              the node's name
    index             the device's index on its node
    uuid              its UUID
    model             its model
    status            in words, such as `In use by job 5`
    memory_used_mib   the memory in use, in MiB
    memory_total_mib  its memory, in MiB
    """

    node: str
    index: int
    uuid: str
    model: str
    status: str
    memory_used_mib: int
    memory_total_mib: int


class ExplanationRow(msgspec.Struct, frozen=True, kw_only=True):
    """An explanation.

    kind       what the subject is
    name       its name, or the request's text
    namespace  its namespace; empty for a request
    number     a job's number
    state      how far it is
    summary    the answer in one sentence
    fits       whether every worker has a place now; None if that is not the question
    reason     why it does not fit, in one word
    ask        what it requests; None for no GPU, or an unreadable request
    notes      further sentences, such as the queue's
    basis      how nodes and devices are compared, if any fit
    changes    what would make it fit
    reasons    how many nodes refuse, by cause
    nodes      the answer of each node
    placement  the devices that it holds
    around     all devices of its nodes
    """

    kind: Literal["Pod", "GPUJob", "Request"]
    name: str
    namespace: str
    number: int | None
    state: State
    summary: str
    fits: bool | None
    reason: str
    ask: AskRow | None
    notes: Sequence[str]
    basis: str
    changes: Sequence[Change]
    reasons: Sequence[Cause]
    nodes: list[NodeAnswerRow]
    placement: Sequence[Held]
    around: list[DeviceAround]


def explanation_row(found: Explanation) -> ExplanationRow:
    """The explanation for programs."""
    subject, answer = found.subject, found.answer
    return ExplanationRow(
        kind=subject.kind,
        name=subject.name or subject.called,
        namespace=subject.namespace,
        number=subject.number,
        state=subject.state,
        summary=found.summary,
        fits=answer.fits if answer else None,
        reason=answer.reason if answer else "",
        ask=_ask(subject),
        notes=subject.notes,
        basis=found.basis,
        changes=answer.changes if answer else (),
        reasons=answer.causes if answer else (),
        nodes=[node_answer_row(node) for node in answer.nodes] if answer else [],
        placement=found.held,
        around=_around(found),
    )


def node_answer_row(node: NodeAnswer) -> NodeAnswerRow:
    """One node's answer for programs."""
    return NodeAnswerRow(
        node=node.node,
        fits=node.fits,
        reason=node.reason,
        message=node.message,
        text=node.text,
        score=node.score,
        terms=node.terms,
        devices=node.devices,
        note=node.note,
    )


def _ask(subject: Subject) -> AskRow | None:
    ask = subject.ask
    if ask is None:
        return None
    return AskRow(
        gpu=None if ask.gpu is None else str(ask.gpu),
        workers=subject.workers,
        mode=ask.mode,
        policy=ask.policy,
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
    )


def _around(found: Explanation) -> list[DeviceAround]:
    return [
        DeviceAround(
            node=name,
            index=use.device.index,
            uuid=use.device.uuid,
            model=use.device.model,
            status=use.status(namespace=found.subject.namespace),
            memory_used_mib=use.device.used_mib,
            memory_total_mib=use.device.memory_mib,
        )
        for name, uses in (found.around or {}).items()
        for use in uses
    ]
