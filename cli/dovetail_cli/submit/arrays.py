"""gbatch's arrays and sweeps: --array, --param and --param-file. Reads only that file."""

import csv
import io
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from dovetail.api.gpujob import MAX_TASKS, ArraySpec, SweepParameter, SweepSpec
from dovetail.api.gpujob.execution import INDEXES_PATTERN
from dovetail.jobs.array_indexes import IndexesError, indexes_in
from dovetail_cli.ui.errors import CommandError, UsageError
from dovetail_cli.ui.files import read_text

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")
# As the operator fills them in: `${HOME}` is the shell's.
_FILLED_IN: Final = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_RANGE_PARTS: Final = (2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """The tasks that one submission means: an array, a sweep, or neither."""

    array: ArraySpec | None = None
    sweep: SweepSpec | None = None


def read(
    *,
    array: str | None,
    params: Sequence[str],
    param_file: str | None,
    name_template: str | None,
    max_concurrent: int | None,
) -> Many:
    """What gbatch's options on several tasks say together. Raises `UsageError`."""
    limit = _check_limit(max_concurrent)
    if array is not None:
        if params or param_file or name_template:
            raise UsageError("--array counts tasks: --param, --param-file and --name-template are for sweeps")
        return Many(array=_array(array, limit=limit))
    if not params and param_file is None:
        for option, given in (("--name-template", name_template), ("--max-concurrent", max_concurrent)):
            if given is not None:
                group = " (or --group)" if option == "--max-concurrent" else ""
                raise UsageError(f"{option} is about several tasks: give --param, --param-file or --array too{group}")
        return Many()
    parameters = [_parameter(text) for text in params]
    rows = [] if param_file is None else _rows(Path(param_file))
    _check_once([name for name, _ in parameters] + list(rows[0] if rows else ()))
    sweep = _sweep(parameters, rows=rows, limit=limit, template=name_template or "")
    return Many(sweep=sweep)


def check_placeholders(words: Sequence[str], *, sweep: SweepSpec | None) -> None:
    """Raise `UsageError` for a placeholder in a sweep's command that no parameter fills in."""
    if sweep is None:
        return
    known = [each.name for each in sweep.parameters]
    for word in words:
        for name in _FILLED_IN.findall(word):
            if name not in known:
                from dovetail.formats.suggestions import suggestion

                there = ", ".join(f"{{{each}}}" for each in known)
                near = suggestion(name, known=known)
                raise UsageError(
                    f'{{{name}}} in "{word}" is no parameter: --param names {there}{near}; '
                    "braces that are none belong into a script"
                )


def _array(text: str, *, limit: int | None) -> ArraySpec:
    if not re.fullmatch(INDEXES_PATTERN.strip("^$"), text):
        raise UsageError(
            f'--array "{text}": write indexes below 100000, such as 0-15, 0-15:2, 1,3,7-9 or 0-15%4 (four at a time)'
        )
    if "%" in text and limit is not None:
        raise UsageError(f'--array "{text}" says with % how many tasks run at a time: leave --max-concurrent out')
    try:
        indexes_in(text)
    except IndexesError as error:
        raise UsageError(f"--{error}") from error
    return ArraySpec(indexes=text, parallelism=limit)


def _parameter(text: str) -> tuple[str, list[str]]:
    """`lr=0.1,0.01` or `seed=1:5` (both ends, in steps of 1 or as a third number says)."""
    name, equals, said = text.partition("=")
    if not equals or not said:
        raise UsageError(f'--param "{text}": write a name and values, such as lr=0.1,0.01 or seed=1:5')
    if not _NAME.fullmatch(name):
        raise UsageError(
            f'--param "{text}": "{name}" is no name: letters, digits and "_" are, not beginning with a digit'
        )
    values = _range(text, said=said) if ":" in said and "," not in said else said.split(",")
    if not all(values):
        raise UsageError(f'--param "{text}": a value between two commas is missing')
    return name, values


def _range(text: str, *, said: str) -> list[str]:
    parts = said.split(":")
    try:
        numbers = [Decimal(part) for part in parts]
        start, stop, step = numbers if len(numbers) == _RANGE_PARTS[1] else (*numbers, Decimal(1))
    except (InvalidOperation, ValueError):
        # No numbers: a value with a colon, such as an image.
        return [said]
    if not all(number.is_finite() for number in numbers):
        return [said]
    steps = _steps(start, stop=stop, step=step)
    if steps is None or steps < 0:
        raise UsageError(f'--param "{text}": {start} never comes to {stop} in steps of {step}')
    count = steps.to_integral_value(ROUND_FLOOR) + 1
    if count > MAX_TASKS:
        raise UsageError(f'--param "{text}": that are {count:g} values, and {MAX_TASKS} tasks are allowed')
    return [f"{(start + at * step).normalize():f}" for at in range(int(count))]


def _steps(start: Decimal, *, stop: Decimal, step: Decimal) -> Decimal | None:
    """The steps from `start` to `stop`; None where no number of them gets there."""
    try:
        return (stop - start) / step
    except ArithmeticError:
        # The step is 0, or the numbers are too far apart.
        return None


def _rows(path: Path) -> list[dict[str, str]]:
    try:
        text = read_text(path)
    except CommandError as error:
        # A file that is not there stays one: its exit code is another.
        raise type(error)(f"--param-file {error}") from error
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        rows = list(reader)
        names = list(reader.fieldnames or ())
    except csv.Error as error:
        raise UsageError(f"--param-file {path}: {error}") from error
    _check_once(names)
    if not rows or not all(_NAME.fullmatch(name or "") for name in names):
        raise UsageError(
            f"--param-file {path}: the first line names the parameters (such as lr,bs), each other is a task"
        )
    for number, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise UsageError(f"--param-file {path}: line {number} has not as many values as the first line has names")
    return rows


def _sweep(
    parameters: Sequence[tuple[str, list[str]]],
    *,
    rows: Sequence[Mapping[str, str]],
    limit: int | None,
    template: str,
) -> SweepSpec:
    count = len(rows) or 1
    for _, values in parameters:
        count *= len(values)
    if count > MAX_TASKS:
        raise UsageError(f"--param: that are {count} combinations, and {MAX_TASKS} tasks are allowed")
    _check_template(template, known={"index", *(name for name, _ in parameters), *(rows[0] if rows else ())})
    if not rows:
        columns = [SweepParameter(name=name, values=values) for name, values in parameters]
        return SweepSpec(parameters=columns, parallelism=limit, name_template=template)
    names = [name for name, _ in parameters]
    products = list(itertools.product(*(values for _, values in parameters)))
    tasks = [{**row, **dict(zip(names, values, strict=True))} for row in rows for values in products]
    columns = [SweepParameter(name=name, values=[task[name] for task in tasks]) for name in tasks[0]]
    return SweepSpec(parameters=columns, combine="Zip", parallelism=limit, name_template=template)


def _check_template(template: str, *, known: set[str]) -> None:
    words = ", ".join(f"{{{each}}}" for each in sorted(known))
    for name in _PLACEHOLDER.findall(template):
        if name not in known:
            raise UsageError(f'--name-template "{template}": {{{name}}} is none of {words}')


def _check_once(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--param: {name} is given twice")


def _check_limit(limit: int | None) -> int | None:
    if limit is not None and not 1 <= limit <= MAX_TASKS:
        raise UsageError(f"--max-concurrent {limit}: allowed are 1 to {MAX_TASKS} tasks at a time")
    return limit
