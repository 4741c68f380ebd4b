"""The report of a replay in each of the output formats.

A module of its own: it prints the forecast, as `render` the snapshot; each command loads only its own.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from dovetail.answers.observe import Forecast, ForecastPod, ReplaySums
from dovetail.formats.durations import human
from dovetail_cli.ui import output

SHOWN: Final = 20
_COLUMNS: Final = ("POD", "DEVICES", "WAITED", "REPLAYED", "DOVETAIL", "GAIN")
_CSV: Final = (
    "namespace", "name", "owner", "devices", "resource", "created", "started", "waited", "replayed", "underDovetail",
)  # fmt: skip


def render(found: Forecast, *, form: str, everything: bool) -> str:
    """The report in one of the formats; `everything` lifts the limit on pods in the text."""
    match form:
        case "table":
            return text(found, most=None if everything else SHOWN)
        case "csv":
            return output.as_csv([msgspec.to_builtins(item) for item in found.items], columns=_CSV)
        case _:
            return output.document(msgspec.to_builtins(found), form=form)


def text(found: Forecast, *, most: int | None) -> str:
    """The text for people: how good the replay is, the sums, and the pods that gain the most."""
    shown = found.items[:most]
    rest = len(found.items) - len(shown)
    more = f"\n… and {rest} more: --all shows them, -o json has everything" if rest else ""
    table = output.table([list(_COLUMNS), *map(_row, shown)], width=output.terminal_width()) + more
    return "\n\n".join(["\n".join(_sentences(found)), table])


def _sentences(found: Forecast) -> Iterator[str]:
    pods = len(found.items)
    within = f"within {found.within_seconds:g} s"
    yield f"{pods} pods since {found.since}, mean wait {human(found.observed_mean_wait)}."
    yield f"A replay in the order of their own scheduler meets {found.reproduced:.0%} of their starts {within}."
    if not found.trusted:
        yield "That is below 95%: do not rely on what follows."
        yield "Deleted pods may be the cause, or pods that waited for something else than room, such as a quota."
    yield f"In that order: {_sums(found.own_order, pods=pods)}."
    yield f"By Dovetail's queue and engine: {_sums(found.dovetail, pods=pods)}."
    equal = pods - found.sooner - found.later
    yield f"{found.sooner} pods start sooner, {found.later} later, {equal} {within} of each other."
    yield from (f"{note}." for note in found.notes)


def _sums(sums: ReplaySums, *, pods: int) -> str:
    return (
        f"{sums.started} of {pods} start, mean wait {human(sums.mean_wait)}, "
        f"{sums.idle_device_hours:g} device hours free while a pod waits"
    )


def _row(item: ForecastPod) -> list[str]:
    waited = human(item.waited) + ("" if item.started else " so far")
    name = f"{item.namespace}/{item.name}"
    return [name, str(item.devices), waited, _wait(item.replayed), _wait(item.under_dovetail), _gain(item)]


def _wait(seconds: float | None) -> str:
    return "does not start" if seconds is None else human(seconds)


def _gain(item: ForecastPod) -> str:
    if item.replayed is None or item.under_dovetail is None:
        return "" if item.replayed == item.under_dovetail else ("starts" if item.replayed is None else "does not start")
    gain = item.replayed - item.under_dovetail
    return human(gain) if gain >= 0 else f"-{human(-gain)}"
