"""An explanation in each of the output formats. Pure."""

from typing import Any, Final

import msgspec

from dovetail.explain.answer import Answer, NodeAnswer
from dovetail.explain.nodes import devices_text
from dovetail.query.explain.explanation import Explanation
from dovetail.query.explain.rows import explanation_row, node_answer_row
from dovetail_cli.ui import output

NODES_SHOWN: Final = 20
CSV_COLUMNS: Final = ("node", "fits", "reason", "message", "score", "devices")


def render(explanation: Explanation, *, form: str, everything: bool) -> str:
    """The explanation in one of the formats; `everything` lifts the limit on nodes in the text."""
    match form:
        case "json":
            return output.as_json(msgspec.to_builtins(explanation_row(explanation)))
        case "yaml":
            return output.as_yaml(msgspec.to_builtins(explanation_row(explanation)))
        case "csv":
            nodes = explanation.answer.nodes if explanation.answer else ()
            return output.as_csv([_csv_row(node) for node in nodes], columns=CSV_COLUMNS)
        case _:
            return text(explanation, most=None if everything else NODES_SHOWN)


def text(explanation: Explanation, *, most: int | None) -> str:
    """The text for people: the sentence, what would help, the counted reasons, and the nodes."""
    subject, answer = explanation.subject, explanation.answer
    parts = [output.bold(explanation.summary) + "".join(f"\n{_sentence(note)}." for note in subject.notes)]
    if answer is not None:
        if answer.changes:
            parts.append("What would have to change:\n" + "\n".join(f"  - {change.text}" for change in answer.changes))
        if answer.causes:
            parts.append(_causes(answer))
        parts.append(_nodes(answer, most=most))
    if explanation.basis:
        parts.append(f"{_sentence(explanation.basis)}.")
    if explanation.around:
        parts.append(_surroundings(explanation))
    return "\n\n".join(parts)


def _causes(answer: Answer) -> str:
    lines = [["NODES", "REASON", "WHY"]]
    lines += [[str(cause.nodes), cause.reason, cause.text] for cause in answer.causes]
    return output.table(lines)


def _nodes(answer: Answer, *, most: int | None) -> str:
    if not answer.nodes:
        return "There are no nodes."
    shown = answer.nodes[:most]
    lines = [["NODE", "ANSWER", "SCORE", "WHY"], *map(_line, shown)]
    rest = len(answer.nodes) - len(shown)
    more = f"\n… and {rest:,} more nodes: --all shows them, -o json has everything" if rest else ""
    return output.table(lines) + more


def _line(node: NodeAnswer) -> list[str]:
    if not node.fits:
        return [node.node, node.reason, "", "; ".join(filter(None, (node.message, node.note)))]
    terms = ", ".join(f"{name} {value:.2f}" for name, value in node.terms.items())
    why = "; ".join(filter(None, (devices_text(node), terms, node.note)))
    return [node.node, "fits", f"{node.score:.3f}", why]


def _surroundings(explanation: Explanation) -> str:
    namespace = explanation.subject.namespace
    lines = [["NODE", "GPU", "MODEL", "MEMORY MiB", "STATUS"]]
    for name, uses in (explanation.around or {}).items():
        lines += [
            [
                name,
                str(use.device.index),
                use.device.model,
                f"{use.device.used_mib}/{use.device.memory_mib}",
                use.status(namespace=namespace),
            ]
            for use in uses
        ]
    return output.table(lines)


def _sentence(note: str) -> str:
    return note[:1].upper() + note[1:]


def _csv_row(node: NodeAnswer) -> dict[str, Any]:
    devices = " ".join(device.uuid for device in node.devices)
    return {**msgspec.to_builtins(node_answer_row(node)), "devices": devices}
