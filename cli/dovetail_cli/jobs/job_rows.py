"""A job as one line of text, as Slurm writes it: `dovetail.query.jobs.columns`. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dovetail.api.gpujob import GPUJob
from dovetail.query.jobs.columns import COLUMNS, View
from dovetail.query.jobs.states import SHORT
from dovetail_cli.ui.times import elapsed

_NO_VALUE: Final = "-"
_BY_LETTERS: Final[Mapping[str, str]] = {
    "R": "green", "PD": "yellow", "H": "yellow", "PR": "yellow", "F": "red", "TO": "red", "CD": "dim", "CA": "dim",
}  # fmt: skip
# The colours of states on a terminal, by the text of the cell.
COLOURS: Final[Mapping[str, Mapping[str, str]]] = {
    "ST": _BY_LETTERS,
    "STATE": {phase: _BY_LETTERS[letters] for phase, letters in SHORT.items()},
}


def row(job: GPUJob, *, fields: Sequence[str], view: View) -> dict[str, Any]:
    """The columns as numbers and texts, by their names."""
    return {field: _cell(field, value=COLUMNS[field](job, view)) for field in fields}


def _cell(field: str, *, value: Any) -> Any:
    if write := _WRITERS.get(field):
        return write(value)
    return _NO_VALUE if value is None else value


def _limit(seconds: float | None) -> str:
    return "UNLIMITED" if seconds is None else elapsed(seconds)


def _memory(mebibytes: int) -> str:
    if not mebibytes:
        return "0"
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


_WRITERS: Final[Mapping[str, Callable[[Any], str]]] = {"TIME": elapsed, "TIMELIMIT": _limit, "MEMORY": _memory}
