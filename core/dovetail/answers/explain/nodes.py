"""Ask every node, and summarize the answers."""

from collections.abc import Mapping, Sequence
from typing import Final

from dovetail.answers.explain.answer import Answer
from dovetail.answers.explain.question import KEY, Question
from dovetail.answers.explain.remedies import changes
from dovetail.answers.questions import ExplainedNode
from dovetail.api.devices import DeviceShare
from dovetail.api.reasons import capacity as says
from dovetail.api.reasons import explain as explains
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.filter.device_choice import FreeDevices
from dovetail.engine.filter.fit import Judgement
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.refusals import UNRESOLVABLE, Refusal
from dovetail.engine.score.score import relative, terms, warmed, warmth, weigh
from dovetail.pods.node_affinity import Exclusion

# The terms of an answer.
_SHOWN: Final = ("utilization", "memory", "cpu", "fragmentation")


def answer(question: Question) -> Answer:
    """The answer of every node, with the summary and what would help.

    The best nodes come first, then those where an end of jobs could help, then others by name.
    """
    fitting, refusals = _judged(question)
    excluded = {name: _why(found) for name, found in question.exclusions.items()}
    closed_to_pods = [closed(name, reason=question.exclusions[name].kind, says=why) for name, why in excluded.items()]
    nodes = (*fitting, *_refusing(refusals, question=question), *closed_to_pods)
    clauses = {found.text: found.text_details for found in refusals.values()}
    clauses |= {why.message: why.clauses for why in excluded.values()}
    shortage = shortage_of(question)
    if shortage is None:
        place = _place(fitting, of=len(nodes), workers=question.workers)
        return Answer(fits=True, sentence=place, nodes=nodes, clauses=clauses)
    return Answer(
        fits=False,
        sentence=shortage,
        reason=shortage.reason,
        nodes=nodes,
        changes=tuple(changes(question)),
        clauses=clauses,
    )


def shortage_of(question: Question) -> Shortage | None:
    """Why not all workers fit; None when they do."""
    ledger = question.view.ledger
    found = place(ledger, ask=question.ask, workers=question.workers, key=KEY, nodes=question.nodes)
    if not isinstance(found, Shortage):
        return None
    if question.nodes or not question.exclusions:
        return found
    gpu = question.ask.gpu
    if gpu is None:
        return Shortage.of(says.NO_NODE() + says.KEPT_OFF())
    need = says.NEED(count=gpu.count * question.workers, available=0, profile=gpu.mig)
    return Shortage.of(need + says.KEPT_OFF())


def devices_text(devices: Sequence[DeviceShare]) -> str:
    """`GPU 0,1`, or nothing for a pod without devices."""
    return f"GPU {indexes_text(devices)}" if devices else ""


def indexes_text(devices: Sequence[DeviceShare]) -> str:
    """`0,1`."""
    return ",".join(str(device.index) for device in devices)


def _judged(question: Question) -> tuple[list[ExplainedNode], dict[str, Refusal]]:
    """The nodes that the pods may use: those that fit, the best first, and why the others do not."""
    judged = Judgement(question.view.ledger, ask=question.ask, nodes=question.nodes, key=KEY)
    rows = [row for row, fits in enumerate(judged.fits.tolist()) if fits]
    names = [question.nodes[row] for row in rows]
    alone = Judgement(question.view.ledger, ask=question.ask, nodes=names, key=KEY)
    policy = question.ask.policy
    parts = relative(terms(alone, fragmentation=question.ranking.alone(alone, key=KEY)), policy=policy)
    scores = warmed(weigh(parts, policy=policy, weights=question.ask.weights), ask=question.ask, nodes=names)
    columns = {name: getattr(parts, name).tolist() for name in _SHOWN}
    if question.ask.warm:
        columns["warm"] = warmth(question.ask, nodes=names).tolist()

    def values(free: FreeDevices) -> Sequence[float]:
        return question.term.device_values(free, key=KEY)

    fitting = [
        ExplainedNode(
            node=question.nodes[row],
            fits=True,
            score=float(scores[at]),
            terms={name: column[at] for name, column in columns.items()},
            devices=[
                DeviceShare(
                    node=question.nodes[row],
                    index=each.index,
                    uuid=each.uuid,
                    share_milli=each.share_milli,
                    memory_mib=each.memory_mib,
                )
                for each in judged.devices(row, values=values)
            ],
            note=question.view.ledger.unmeasured_reason(question.nodes[row]),
        )
        for at, row in enumerate(rows)
    ]
    found = ((name, judged.refusal(row)) for row, name in enumerate(question.nodes))
    refusals = {name: refusal for name, refusal in found if refusal is not None}
    return sorted(fitting, key=lambda node: (-(node.score or 0.0), node.node)), refusals


def _refusing(refusals: Mapping[str, Refusal], *, question: Question) -> list[ExplainedNode]:
    """The nodes that refuse: those where an end of jobs could help come first."""
    refusing = [
        ExplainedNode(
            node=name,
            fits=False,
            reason=found.kind,
            message=found.message.removeprefix(f"{name}: "),
            text=found.text,
            note=question.view.ledger.unmeasured_reason(name),
            details=list(found.details),
        )
        for name, found in refusals.items()
    ]
    return sorted(refusing, key=lambda node: (node.reason in UNRESOLVABLE, node.node))


def closed(name: str, *, reason: str, says: Sentence) -> ExplainedNode:
    """A node that is closed to the pods, in words that all nodes of the cause share."""
    text = says.message
    return ExplainedNode(node=name, fits=False, reason=reason, message=text, text=text, details=list(says.clauses))


def _why(found: Exclusion) -> Sentence:
    if found.kind == "NodeAffinity":
        return explains.AFFINITY_ELSEWHERE()
    says_what = explains.SELECTOR_ASKS if found.kind == "NodeSelector" else explains.TAINT_NOT_TOLERATED
    return says_what(what=found.what)


def _place(fitting: list[ExplainedNode], *, of: int, workers: int) -> Sentence:
    if workers > 1:
        return explains.ALL_FIT(workers=workers, fitting=len(fitting), nodes=of)
    best = fitting[0]
    fits = explains.FITS(fitting=len(fitting), nodes=of, node=best.node)
    return fits + explains.WITH_DEVICES(indexes=indexes_text(best.devices)) if best.devices else fits
