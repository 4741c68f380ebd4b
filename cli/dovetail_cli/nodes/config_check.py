"""Checks a configuration file as the programs do at their start."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from dovetail import names
from dovetail.config.errors import ConfigError
from dovetail.config.loading import document, problems_in
from dovetail.config.reference import keys, values_of
from dovetail.config.settings import Settings
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import UsageError
from dovetail_cli.ui.files import read_text

COLUMNS: Final = ("KEY", "VALUE", "DEFAULT", "EFFECT")


def check(file: str, *, form: str) -> str:
    """The text to print. Raises `UsageError` for a file that no program would start with."""
    called, text = ("standard input", sys.stdin.read()) if file == "-" else (file, read_text(Path(file)))
    try:
        values = _configuration(document(text, origin=called), called=called)
    except ConfigError as error:
        raise UsageError(str(error)) from error
    if problems := problems_in(values):
        *others, last = [f"{called}: {problem}" for problem in problems]
        for other in others:
            print(f"dovetail: {other}", file=sys.stderr)
        raise UsageError(last)
    rows = list(_changed(Settings(**values)))
    if form in {"json", "yaml"}:
        rows = [{name.lower(): value for name, value in row.items()} for row in rows]
        return output.render(rows, columns=(), form=form)
    table = output.render(rows, columns=COLUMNS, form=form)
    if form == "csv":
        return table
    number = "no key differs from its" if not rows else f"{len(rows)} differ from their"
    summary = f"{called} is in order: {number} default."
    return f"{table}\n{summary}" if rows else summary


def _configuration(found: dict[str, Any], *, called: str) -> dict[str, Any]:
    """The values; of a ConfigMap those in it, and of the chart's values those of `config`."""
    if found.get("kind") == "ConfigMap":
        text = (found.get("data") or {}).get(names.CONFIG_FILE)
        if not isinstance(text, str):
            raise UsageError(f"{called}: this ConfigMap has no text {names.CONFIG_FILE}")
        return document(text, origin=called)
    inner = found.get("config")
    return inner if isinstance(inner, dict) else found


def _changed(settings: Settings) -> Iterator[dict[str, Any]]:
    values = values_of(settings)
    for key in keys():
        effect = "at once" if key.live else "after a restart"
        for name, value, default in _differences(key.name, value=values[key.name], default=key.default):
            yield {"KEY": name, "VALUE": value, "DEFAULT": default, "EFFECT": effect}


def _differences(name: str, *, value: Any, default: Any) -> Iterator[tuple[str, Any, Any]]:
    """What differs, entry by entry in a map: files add to the known models and vendors."""
    if isinstance(value, dict):
        for entry in value:
            if value[entry] != default.get(entry):
                yield f"{name}.{entry}", value[entry], default.get(entry)
    elif value != default:
        yield name, value, default
