"""The application: a table of commands, each imported on use, and the entry points.

This module imports nothing that takes time, so that `dovetail --help` and the list commands start at once. Every error
becomes one sentence on standard error and an exit code (see `ui.errors`); DOVETAIL_DEBUG=1 also shows the traceback.
"""

import gc
import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from dovetail_cli.ui import error_format
from dovetail_cli.ui.errors import CommandError, UsageError

if TYPE_CHECKING:
    import typer


class Entry(NamedTuple):
    """A command's location and its one-line help; the target is a function or a `typer.Typer`.

    `extra` has the packages that it needs and an installation of the commands alone lacks; empty for none.
    """

    target: str
    help: str
    extra: str = ""


COMMANDS: Final[dict[str, Entry]] = {
    "demo": Entry(
        "dovetail_cli.demo.command:demo", "A control plane with simulated GPUs, and a mix of jobs on it", "sandbox"
    ),
    "gbatch": Entry("dovetail_cli.commands.gbatch:app", "Submit a job"),
    "gqueue": Entry("dovetail_cli.commands.gqueue:gqueue", "List the jobs"),
    "ginfo": Entry("dovetail_cli.commands.ginfo:ginfo", "Show the nodes and their devices"),
    "gcancel": Entry("dovetail_cli.commands.gcancel:gcancel", "Cancel jobs"),
    "gjob": Entry(
        "dovetail_cli.commands.gjob:app", "Show one job, read its log, hold, release, change, renew or repeat it"
    ),
    "gstats": Entry("dovetail_cli.commands.gstats:gstats", "Sum up the jobs that have ended"),
    "top": Entry("dovetail_cli.commands.top:top", "Show what the devices do and who holds them, as it changes"),
    "quota": Entry(
        "dovetail_cli.commands.quota:quota", "Show the limits of namespaces and users, and what is used of them"
    ),
    "quota plan": Entry("dovetail_cli.commands.quota:plan", "Show what GPUQuotas in a file would do"),
    "quota set": Entry("dovetail_cli.commands.limit_changes:set_quota", "Create or change a GPUQuota"),
    "quota delete": Entry("dovetail_cli.commands.limit_changes:delete_quotas", "Delete GPUQuotas"),
    "limits": Entry(
        "dovetail_cli.commands.limits:limits", "Show the policy and the limits that count without a restart"
    ),
    "limits set": Entry("dovetail_cli.commands.limit_changes:set_limits", "Change some of them, at once"),
    "limits unset": Entry(
        "dovetail_cli.commands.limit_changes:unset_limits", "Put some of them back to their defaults"
    ),
    "explain": Entry("dovetail_cli.explain.command:app", "Why a pod, a job or a request waits, and what would help"),
    "observe": Entry(
        "dovetail_cli.observe.command:observe",
        "Why GPU pods of any scheduler wait, and who holds what; installs nothing",
    ),
    "observe report": Entry(
        "dovetail_cli.observe.command:report", "Which pods would have started sooner under Dovetail, by a replay"
    ),
    "adopt": Entry(
        "dovetail_cli.observe.adopt:adopt", "What changes, step by step, when a node moves to Dovetail; changes nothing"
    ),
    "move": Entry("dovetail_cli.explain.move:app", "Which running jobs to restart elsewhere so that a job starts"),
    "console": Entry("dovetail_cli.commands.console:console", "The queue, each job and why it waits, in a browser"),
    "cordon": Entry("dovetail_cli.commands.cordon:cordon", "Take single GPUs out of use, such as node-1:2"),
    "uncordon": Entry("dovetail_cli.commands.cordon:uncordon", "Bring cordoned GPUs back into use"),
    "doctor": Entry("dovetail_cli.doctor.command:doctor", "What is wrong with the installation, and how to fix it"),
    "audit": Entry("dovetail_cli.commands.audit:audit", "Prove that no device is promised beyond what it has"),
    "snapshot": Entry("dovetail_cli.commands.snapshot:snapshot", "Write the cluster into a file that can be simulated"),
    "simulate": Entry("dovetail_cli.commands.simulate:simulate", "Run a trace or a snapshot under several policies"),
    "replay": Entry("dovetail_cli.replay.command:replay", "Submit the jobs of a recorded workload", "sandbox"),
    "whoami": Entry("dovetail_cli.commands.setup:whoami", "Which cluster commands and Python use, and as whom"),
    "mcp": Entry(
        "dovetail_cli.agents.command:mcp", "Tools for agents: the queue, its reasons, and previews of changes", "mcp"
    ),
    "config": Entry("dovetail_cli.commands.config:app", "Profiles: gbatch's defaults for jobs on a cluster"),
    "migrate": Entry("dovetail_cli.commands.migrate:app", "Values of the chart for scripts of another system"),
    "completion": Entry("dovetail_cli.commands.setup:completion", "Let the shell complete jobs, nodes and options"),
    "uninstall": Entry(
        "dovetail_cli.commands.setup:uninstall", "Remove what Dovetail has left on this machine", "sandbox"
    ),
    "gflowd": Entry(
        "dovetail_cli.commands.gflowd:app",
        "Start, show and stop the local sandbox, for scripts that begin so",
        "sandbox",
    ),
    "sandbox": Entry("dovetail_sandbox.cli:app", "Start, stop and look into local clusters", "sandbox"),
}
# The commands in the order and under the titles of `dovetail --help`.
_GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "Jobs": ("gbatch", "gqueue", "gjob", "gcancel", "gstats", "explain", "move", "console", "replay"),
    "Nodes": ("ginfo", "top", "cordon", "uncordon"),
    "Limits": ("quota", "quota plan", "quota set", "quota delete", "limits", "limits set", "limits unset"),
    "The installation": ("observe", "observe report", "adopt", "doctor", "audit", "snapshot", "simulate", "migrate"),
    "This machine": ("demo", "gflowd", "sandbox", "config", "whoami", "mcp", "completion", "uninstall"),
}
# The commands that are programs of their own.
PROGRAMS: Final = ("gbatch", "gqueue", "ginfo", "gcancel", "gjob", "gstats", "gflowd")
# A shell sets it to ask what a command line could go on with.
COMPLETE_VARIABLE: Final = "_DOVETAIL_COMPLETE"
# Further names of the program `dovetail`, which `dovetail config slurm-names` installs.
SLURM_NAMES: Final = ("sbatch", "squeue", "scancel", "sinfo")
_SLURM: Final = "dovetail_cli.slurm.programs"
_COMPLETION: Final = "dovetail_cli.completion.programs"
_HELP_OPTIONS: Final = ("-h", "--help")
# Longer than the path of any file that a person would name.
_LONG_WORD: Final = re.compile(r"\S{500,}")
_HELP_WORD: Final = "help"
_VERSION_WORDS: Final = ("--version", "version")
# A command makes some 150,000 objects while it imports and reads, and nearly all live until its end. With Python's own
# 700 (2,000 from 3.13 on), looking for garbage among them takes a tenth of its time.
_OBJECTS_UNTIL_COLLECTION: Final = 500_000
# As shells tell what Ctrl-C has ended: 128 and the number of the signal.
_INTERRUPTED: Final = 130


def dovetail() -> None:
    """Entry point of `dovetail`, `kubectl dovetail`, and Slurm's names where they are installed."""
    name = sys.argv[0].rpartition(os.sep)[2]
    _exit(lambda: slurm(name, arguments=sys.argv[1:]) if name in SLURM_NAMES else main(sys.argv[1:]))


def gbatch() -> None:
    """Entry point of `gbatch`."""
    _exit(lambda: run("gbatch", arguments=sys.argv[1:], prog="gbatch"))


def gqueue() -> None:
    """Entry point of `gqueue`."""
    _exit(lambda: run("gqueue", arguments=sys.argv[1:], prog="gqueue"))


def ginfo() -> None:
    """Entry point of `ginfo`."""
    _exit(lambda: run("ginfo", arguments=sys.argv[1:], prog="ginfo"))


def gcancel() -> None:
    """Entry point of `gcancel`."""
    _exit(lambda: run("gcancel", arguments=sys.argv[1:], prog="gcancel"))


def gjob() -> None:
    """Entry point of `gjob`."""
    _exit(lambda: run("gjob", arguments=sys.argv[1:], prog="gjob"))


def gstats() -> None:
    """Entry point of `gstats`."""
    _exit(lambda: run("gstats", arguments=sys.argv[1:], prog="gstats"))


def gflowd() -> None:
    """Entry point of `gflowd`."""
    _exit(lambda: run("gflowd", arguments=sys.argv[1:], prog="gflowd"))


def _exit(command: Callable[[], int]) -> NoReturn:
    """Run the command and end the process by its code.

    Python looks for garbage once more when it ends. None of it has to be found then: 0.03 s less.
    """
    # Python has None for a stream that the shell has closed (`>&-`).
    sys.stdout, sys.stderr = sys.stdout or io.StringIO(), sys.stderr or io.StringIO()
    try:
        code = command()
        gc.freeze()
        sys.stdout.flush()
    except OSError as error:
        # What is still in the buffer must not raise the same again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # A reader that has ended, such as `head`, needs no message.
        code = (
            1
            if isinstance(error, BrokenPipeError)
            else _print_error(CommandError(f"standard output: {error.strerror}"))
        )
    sys.exit(code)


def slurm(name: str, *, arguments: Sequence[str]) -> int:
    """Run `sbatch`, `squeue`, `scancel` or `sinfo` and return the exit code."""
    try:
        return int(import_module(_SLURM).run(name, arguments=arguments))
    except CommandError as error:
        return _print_error(error)


def main(arguments: Sequence[str]) -> int:
    """Run `dovetail COMMAND …` and return the exit code."""
    if COMPLETE_VARIABLE in os.environ:
        return _complete(None, prog="dovetail")
    if not arguments or arguments[0] in _HELP_OPTIONS:
        print(overview())
        return 0 if arguments else 2
    name, *rest = arguments
    if name == _HELP_WORD:
        return main([*rest, "--help"])
    if name in _VERSION_WORDS:
        return _print_version("dovetail")
    if name not in COMMANDS:
        return _print_error(UsageError(unknown(name)))
    return run(name, arguments=rest, prog=f"dovetail {name}")


def resolved(name: str, *, arguments: Sequence[str]) -> tuple[str, list[str]]:
    """The command and its arguments: `quota set …` is one; `gjob 7` and `gjob @` show a job."""
    if arguments and f"{name} {arguments[0]}" in COMMANDS:
        return f"{name} {arguments[0]}", list(arguments[1:])
    if name == "gjob" and arguments and (arguments[0].isdigit() or arguments[0].startswith("@")):
        return name, ["show", *arguments]
    return name, list(arguments)


def _print_version(name: str) -> int:
    from importlib.metadata import version

    print(f"{name} {version('dovetail-gpu')}")
    return 0


def overview() -> str:
    """The text of `dovetail --help`."""
    width = max(map(len, COMMANDS))
    lines = [
        line
        for title, names in _GROUPS.items()
        for line in (f"{title}:", *(f"  {name:<{width}}  {COMMANDS[name].help}" for name in names), "")
    ]
    return "\n".join(
        [
            "Usage: dovetail COMMAND [OPTIONS]",
            "",
            "GPU jobs that fit together on Kubernetes.",
            "",
            *lines,
            "`dovetail help COMMAND` tells more; `dovetail --version` prints the version.",
            f"{', '.join(PROGRAMS[:-1])} and {PROGRAMS[-1]} are also programs of their own.",
        ]
    )


def unknown(name: str) -> str:
    """What to say of a command that does not exist."""
    from difflib import get_close_matches

    near = get_close_matches(name, COMMANDS, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    return f'no command "{name}": {guess}allowed are {", ".join(COMMANDS)}'


def run(name: str, *, arguments: Sequence[str], prog: str) -> int:
    """Run one command of the table and return the exit code."""
    if COMPLETE_VARIABLE in os.environ:
        return _complete(name, prog=prog)
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION)
    _print_what_can_be()
    if list(arguments) == ["--version"]:
        return _print_version(name)
    found, arguments = resolved(name, arguments=arguments)
    prog += found.removeprefix(name)
    name = found
    try:
        _check_extra(name)
        target = _target(name)
        if (plain := _plain(target, arguments=arguments)) is not None:
            return _call(plain[0], arguments=plain[1])
        app = _typer_of(target, name=name)
        if _lacks_command(app, arguments=arguments):
            _invoke(app, name=name, arguments=[*arguments, "--help"], prog=prog)
            return UsageError.exit_code
        return _invoke(app, name=name, arguments=arguments, prog=prog)
    except KeyboardInterrupt:
        # Before the command itself had begun, which ends by the same code.
        return _INTERRUPTED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception as error:  # noqa: BLE001 - the outermost place: whatever it is becomes one sentence
        return _print_error(error, form=error_format.of(arguments, command=name))


def _lacks_command(app: "typer.Typer", *, arguments: Sequence[str]) -> bool:
    """Whether the words name a command of several commands, and none of these."""
    if arguments:
        return len(arguments) == 1 and arguments[0] in {group.name for group in app.registered_groups}
    return len(app.registered_commands) > 1


def _check_extra(name: str) -> None:
    """Raise `CommandError` for a command that needs packages which are not installed."""
    extra = COMMANDS[name].extra
    if not extra:
        return
    from dovetail.process import programs

    if said := programs.lacking(f"`{name}`", extra=extra):
        raise CommandError(said)


def _print_what_can_be() -> None:
    """Print question marks for characters that the output's encoding lacks, instead of failing."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _target(name: str) -> Any:
    """The command's function, or its own `typer.Typer`."""
    module_name, attribute = COMMANDS[name].target.split(":")
    return getattr(import_module(module_name), attribute)


def _plain(target: Any, *, arguments: Sequence[str]) -> tuple[Callable[..., None], dict[str, Any]] | None:
    """The function and its arguments where no typer is needed to read them, else None."""
    if "dovetail_cli.ui.command_line" not in sys.modules:
        # The command's module would have imported it to declare its options.
        return None
    from dovetail_cli.ui import command_line

    chosen = target.chosen(arguments) if isinstance(target, command_line.Group) else (target, arguments)
    if chosen is None or not isinstance(chosen[0], FunctionType) or not command_line.is_declared_here(chosen[0]):
        return None
    found = command_line.read(chosen[0], words=chosen[1])
    return None if found is None else (chosen[0], found)


def _call(function: Callable[..., None], *, arguments: Mapping[str, Any]) -> int:
    """Run the command; exit as typer does if the output's reader, such as `head`, has ended."""
    try:
        function(**arguments)
    except BrokenPipeError:
        return 1
    return 0


def typer_app(name: str) -> "typer.Typer":
    """The application of a command of the table."""
    return _typer_of(_target(name), name=name)


def _complete(name: str | None, *, prog: str) -> int:
    """Answer a shell, by the module that knows the commands' options and the cluster."""
    return int(import_module(_COMPLETION).complete(name, prog=prog))


def _typer_of(target: Any, *, name: str) -> "typer.Typer":
    """The command's own application, or one around its function."""
    import typer

    if isinstance(target, typer.Typer):
        return target
    from dovetail_cli.ui import command_line

    if isinstance(target, command_line.Group):
        return target.for_typer()
    function = command_line.for_typer(target) if command_line.is_declared_here(target) else target
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name=name, context_settings={"help_option_names": list(_HELP_OPTIONS)})(function)
    return app


def _invoke(app: "typer.Typer", *, name: str, arguments: Sequence[str], prog: str) -> int:
    from typer.exceptions import TyperException
    from typer.main import get_command

    from dovetail_cli.ui import examples, help_layout, plain_values

    command = get_command(app)
    plain_values.prepare(command)
    examples.add(command, name=name)
    help_layout.arrange(command, name=name)
    try:
        # Not standalone: usage errors are caught here and printed like all others, in one sentence.
        ended = command.main(args=list(arguments), prog_name=prog, standalone_mode=False)
    except TyperException as error:
        message = _wrong_value(error) or error.format_message().rstrip(".").replace("\n", " ").replace("\t", "")
        at = getattr(getattr(error, "ctx", None), "command_path", prog)
        raise UsageError(f"{message} (see `{at} --help`)") from error
    return ended if isinstance(ended, int) else 0


def _wrong_value(error: Exception) -> str:
    """The message for an option's value that is not allowed; empty for any other error.

    It names the option, the value, and what is allowed.
    """
    found, param = getattr(error.__cause__, "errors", None), getattr(error, "param", None)
    if not callable(found) or param is None:
        return ""
    (first, *_) = found()
    allowed = first["msg"].removeprefix("Input ").partition(",")[0]
    return f'{max(param.opts, key=len)} "{first["input"]}": {allowed}'


def _shortened(word: re.Match[str]) -> str:
    """Both ends of a word that would fill the terminal, such as a name of 10,000 characters."""
    return f"{word[0][:60]}…{word[0][-30:]}"


def _print_error(error: Exception, *, form: str = "") -> int:
    """One sentence on standard error; returns the exit code.

    A program that asked for JSON or YAML gets it on standard output: the sentence and the exit code.
    """
    if os.environ.get("DOVETAIL_DEBUG"):
        import traceback

        traceback.print_exception(error)
    from dovetail_cli.ui.error_messages import explain

    failure = explain(error)
    print(f"dovetail: {_LONG_WORD.sub(_shortened, str(failure))}", file=sys.stderr)
    if form:
        error_format.print_error(str(failure), exit_code=failure.exit_code, form=form)
    return failure.exit_code
