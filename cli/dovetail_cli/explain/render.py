"""An explanation in each of the output formats. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from dovetail.answers.explain.answer import Cause, Change, NodeAnswer
from dovetail.answers.explain.nodes import devices_text
from dovetail.answers.node_text import memory_text
from dovetail.query.explain.explanation import Explanation
from dovetail.query.explain.rows import ExplanationRow, NodeAnswerRow, explanation_row
from dovetail_cli.ui import output

NODES_SHOWN: Final = 20
CSV_COLUMNS: Final = ("node", "fits", "reason", "message", "score", "devices")


def render(explanation: Explanation, *, form: str, everything: bool) -> str:
    """The explanation in one of the formats; `everything` lifts the limit on nodes in the text."""
    if form == "table":
        return text(explanation, most=None if everything else NODES_SHOWN)
    return document(explanation_row(explanation), form=form)


def document(row: ExplanationRow, *, form: str) -> str:
    """The explanation for programs."""
    match form:
        case "json":
            return output.as_json(msgspec.to_builtins(row))
        case "yaml":
            return output.as_yaml(msgspec.to_builtins(row))
        case _:
            return output.as_csv([_csv_row(node) for node in row.nodes], columns=CSV_COLUMNS)


def text(explanation: Explanation, *, most: int | None) -> str:
    """The text for people: the sentence, what would help, the counted reasons, and the nodes."""
    answer = explanation.answer
    parts = [
        head(explanation.summary, notes=explanation.subject.notes),
        *([] if answer is None else answers(answer.changes, causes=answer.causes, nodes=answer.nodes, most=most)),
        *([f"{sentence(explanation.basis)}."] if explanation.basis else []),
        *([_surroundings(explanation)] if explanation.around else []),
    ]
    return "\n\n".join(parts)


def head(summary: str, *, notes: Sequence[str]) -> str:
    """The sentence, and the notes below it."""
    return output.bold(summary) + "".join(f"\n{sentence(note)}." for note in notes)


def answers(
    changes: Sequence[Change], *, causes: Sequence[Cause], nodes: Sequence[NodeAnswer], most: int | None
) -> Iterator[str]:
    """What would help, the counted reasons, and the nodes."""
    if changes:
        yield "What would have to change:\n" + "\n".join(f"  - {change.text}" for change in changes)
    if causes:
        yield output.table(
            [["NODES", "REASON", "WHY"], *([str(cause.nodes), cause.reason, cause.text] for cause in causes)]
        )
    if not nodes:
        yield "There are no nodes."
        return
    shown = nodes[:most]
    rest = len(nodes) - len(shown)
    more = f"\n… and {rest:,} more nodes: --all shows them, -o json has everything" if rest else ""
    yield output.table([["NODE", "ANSWER", "SCORE", "WHY"], *map(_line, shown)]) + more


def _line(node: NodeAnswer) -> list[str]:
    if not node.fits:
        return [node.node, node.reason, "", "; ".join(filter(None, (node.message, node.note)))]
    terms = ", ".join(f"{name} {value:.2f}" for name, value in node.terms.items())
    why = "; ".join(filter(None, (devices_text(node), terms, node.note)))
    return [node.node, "fits", f"{node.score:.3f}", why]


def _surroundings(explanation: Explanation) -> str:
    namespace = explanation.subject.namespace
    lines = [["NODE", "GPU", "MODEL", "MEMORY", "STATUS"]]
    for name, uses in (explanation.around or {}).items():
        lines += [
            [
                name,
                str(use.device.index),
                use.device.model,
                memory_text(use),
                use.status(namespace=namespace),
            ]
            for use in uses
        ]
    return output.table(lines)


def sentence(note: str) -> str:
    """The note with a capital."""
    return note[:1].upper() + note[1:]


def _csv_row(node: NodeAnswerRow) -> dict[str, Any]:
    return {**msgspec.to_builtins(node), "devices": " ".join(device.uuid for device in node.devices)}
