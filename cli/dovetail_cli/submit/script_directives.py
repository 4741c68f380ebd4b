"""Options in a script: `# GFLOW` lines with gbatch's options, `#SBATCH` lines with Slurm's.

The command line overrides them. As in Slurm, only lines before the script's first command count.
"""

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from typer.core import TyperCommand
from typer.exceptions import TyperException

from dovetail_cli.submit import sbatch as slurm
from dovetail_cli.submit.scripts import Script
from dovetail_cli.ui.errors import UsageError

# Where the script is kept that the command's words name: standard input can be read but once.
SCRIPT: Final = "dovetail.script"
_LINE: Final = re.compile(r"#SBATCH\s+(?P<slurm>.*)|# ?GFLOW\s+(?P<own>.*)")
# Options that stand for each other: who gives one of them on the command line means none of the others.
_TOGETHER: Final = (
    frozenset({"depends_on", "depends_on_all", "depends_on_any"}),
    frozenset({"array", "param", "param_file"}),
    frozenset({"mode", "shared"}),
)


class Words(NamedTuple):
    """What the lines of a script say, each kind in its own words, and how many stand too late."""

    slurm: list[str]
    own: list[str]
    late: int


class WithScriptLines(TyperCommand):
    """gbatch's command class, which merges the options in its script with the command line."""

    def invoke(self, ctx: Any) -> Any:
        """Read the script, and go on with what both say."""
        from dovetail_cli.submit import submit

        script = submit.script_of(ctx.params["words"]) if ctx.params["words"] else None
        if script is not None:
            ctx.meta[SCRIPT] = script
            ctx.params.update(_heeded(self, ctx=ctx, script=script))
        return super().invoke(ctx)


def words_of(script: Script) -> Words:
    """The options of the script's lines.

    Raises `UsageError` for a line that cannot be split into words.
    """
    found, late = Words([], [], 0), 0
    at_work = False
    for number, line in enumerate(script.text.splitlines(), start=1):
        said = _LINE.fullmatch(line.rstrip())
        at_work = at_work or not (line.startswith("#") or not line.strip())
        if said is None:
            continue
        if at_work:
            late += 1
            continue
        kind = found.own if said["slurm"] is None else found.slurm
        try:
            kind += shlex.split(said[said.lastgroup or "own"], comments=True)
        except ValueError as error:
            raise UsageError(f"{script.name}, line {number}: {line.strip()}: {error}") from error
    return found._replace(late=late)


def _heeded(command: TyperCommand, *, ctx: Any, script: Script) -> Mapping[str, Any]:
    """The values of the script's options that the command line does not give."""
    said = words_of(script)
    try:
        of_slurm = slurm.read(said.slurm)
        inner = command.make_context(ctx.info_name, [*of_slurm.words, *said.own, "--", script.name])
    except (UsageError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        raise UsageError(f"{script.name}: {message.rstrip('.')}") from error
    if list(inner.params["words"]) != [script.name]:
        raise UsageError(f'{script.name}: "{inner.params["words"][0]}" in a # GFLOW line is no option')
    for warning in _warnings(of_slurm, late=said.late):
        print(f"dovetail: {script.name}: {warning}", file=sys.stderr)
    given = set(_given(ctx))
    for together in _TOGETHER:
        given |= together if given & together else set()
    values = {name: inner.params[name] for name in _given(inner) if name not in given}
    own = [f"{name}={value}" for name, value in of_slurm.variables.items()] if said.slurm else []
    # Of one variable, the last value counts: that of the command line.
    return values | {"env": [*own, *(inner.params["env"] or ()), *(ctx.params["env"] or ())]}


def _given(ctx: Any) -> Iterator[str]:
    for name in ctx.params:
        source = ctx.get_parameter_source(name)
        if name != "words" and source is not None and source.name == "COMMANDLINE":
            yield name


def _warnings(of_slurm: slurm.Read, *, late: int) -> Iterator[str]:
    yield from slurm.ignored(without=of_slurm.without, of_no_gpus=of_slurm.of_no_gpus, source="#SBATCH ")
    if late:
        yield f"{late} #SBATCH or # GFLOW lines behind the first command are not read"
