"""The steps by which a node moves to Dovetail, in each of the output formats.

A module of its own: it prints the adoption, as `render_report` the forecast; each command loads only its own.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.answers.observe import Adoption, AdoptionStep
from dovetail_cli.ui import output

_CSV: Final = ("title", "state", "command", "effect")


def render(found: Adoption, *, form: str) -> str:
    """The steps in one of the formats."""
    match form:
        case "table":
            return "\n".join(_text(found))
        case "csv":
            return output.as_csv([msgspec.to_builtins(step) for step in found.steps], columns=_CSV)
        case _:
            return output.document(msgspec.to_builtins(found), form=form)


def _text(found: Adoption) -> Iterator[str]:
    model = f" ({found.model})" if found.model else ""
    yield f"{found.node}: {found.devices} {found.resource}{model}, by {found.system}."
    if found.adopted:
        yield "All steps are done: Dovetail has the node."
    else:
        yield (
            f"Afterwards {found.left_elsewhere} {found.resource} on other nodes are left to {found.system}; "
            f"pods without a node ask for {found.asked_elsewhere:g}."
        )
    for number, step in enumerate(found.steps, start=1):
        yield ""
        yield from _step(number, step=step)
    yield ""
    yield "To give it back:"
    yield from (f"  {command}" for command in found.back)


def _step(number: int, *, step: AdoptionStep) -> Iterator[str]:
    marks = {"done": " (done)", "waits": " (by itself, after the steps before)", "todo": ""}
    yield output.bold(f"{number}. {step.title}{marks[step.state]}")
    if step.command and step.state != "done":
        yield f"   $ {step.command}"
    yield f"   {step.effect}"
