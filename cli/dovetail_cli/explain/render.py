"""An explanation in each of the output formats. Pure.

A module of its own: it loads NumPy with the answers, which the options in `command` do not wait for.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from dovetail.answers.explain.nodes import devices_text
from dovetail.answers.node_rows import memory_text
from dovetail.answers.questions import ExplainedNode, Explanation
from dovetail_cli.ui import output

NODES_SHOWN: Final = 20
CSV_COLUMNS: Final = ("node", "fits", "reason", "message", "score", "devices")


def render(found: Explanation, *, form: str, everything: bool) -> str:
    """The explanation in one of the formats; `everything` lifts the limit on nodes in the text."""
    match form:
        case "table":
            return output.wrapped(text(found, most=None if everything else NODES_SHOWN))
        case "csv":
            return output.as_csv([_csv_row(node) for node in found.nodes], columns=CSV_COLUMNS)
        case _:
            return output.document(msgspec.to_builtins(found), form=form)


def text(found: Explanation, *, most: int | None) -> str:
    """The text for people: the sentence, what would help, the counted reasons, and the nodes."""
    notes = "".join(f"\n{_sentence(note)}." for note in found.notes)
    parts = [
        f"{output.bold(found.summary)}{notes}",
        *([] if found.fits is None else _answers(found, most=most)),
        *([f"{_sentence(found.basis)}."] if found.basis else []),
        *([_surroundings(found)] if found.around else []),
    ]
    return "\n\n".join(parts)


def _answers(found: Explanation, *, most: int | None) -> Iterator[str]:
    """What would help, the counted reasons, and the nodes."""
    if found.changes:
        yield "What would have to change:\n" + "\n".join(f"  - {change.text}" for change in found.changes)
    if found.causes:
        yield output.table(
            [["NODES", "REASON", "WHY"], *([str(cause.nodes), cause.reason, cause.text] for cause in found.causes)],
            width=output.terminal_width(),
        )
    if not found.nodes:
        yield "There are no nodes."
        return
    shown = found.nodes[:most]
    rest = len(found.nodes) - len(shown)
    more = f"\n… and {rest:,} more nodes: --all shows them, -o json has everything" if rest else ""
    lines = [["NODE", "ANSWER", "SCORE", "WHY"], *map(_line, shown)]
    yield output.table(lines, width=output.terminal_width()) + more


def _line(node: ExplainedNode) -> list[str]:
    if not node.fits:
        return [node.node, node.reason, "", "; ".join(filter(None, (node.message, node.note)))]
    terms = ", ".join(f"{name} {value:.2f}" for name, value in node.terms.items())
    return [
        node.node,
        "fits",
        f"{node.score:.3f}",
        "; ".join(filter(None, (devices_text(node.devices), terms, node.note))),
    ]


def _surroundings(found: Explanation) -> str:
    lines = [["NODE", "GPU", "MODEL", "MEMORY", "STATUS"]]
    lines += [
        [
            each.node,
            str(each.index),
            each.model,
            memory_text(each.used_mib, memory_mib=each.memory_mib, stale=each.stale),
            each.status,
        ]
        for each in found.around
    ]
    return output.table(lines, width=output.terminal_width())


def _sentence(note: str) -> str:
    """The note with a capital."""
    return note[:1].upper() + note[1:]


def _csv_row(node: ExplainedNode) -> dict[str, Any]:
    return {**msgspec.to_builtins(node), "devices": " ".join(device.uuid for device in node.devices)}
