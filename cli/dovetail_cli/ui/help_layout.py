"""How help lists arguments and options: without Python's types, and many in groups."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

# The groups of a command's options, by parameter. What is in none of them has the group of its declaration, or comes
# last, as Options.
GROUPS: Final[Mapping[str, Mapping[str, Sequence[str]]]] = {
    "gbatch": {
        "GPUs": (
            "gpus", "gpu_memory", "shared", "mode", "memory_strategy", "cpu_fallback", "cpu_fallback_after",
        ),
        "Other resources": ("cpus", "memory"),
        "The job": (
            "name", "project", "interactive", "wait", "dry_run", "wait_for_capacity", "output_file", "error_file",
        ),
        "When it starts, and how it ends": (
            "priority", "begin", "limit", "max_retries", "depends_on", "depends_on_all", "depends_on_any",
            "no_auto_cancel", "group", "max_concurrent",
        ),
        "Many of it": (
            "array", "param", "param_file", "name_template", "workers", "min_workers", "topology",
        ),
        "What it runs in": (
            "image", "profile", "conda_env", "config", "workdir", "upload", "env", "volume", "export",
        ),
        "Where it runs": ("node_selector",),
        "Messages": ("notify_email", "notify_on"),
    },
}  # fmt: skip
_WHOLE: Final = 10_000
_PYTHON_TYPE: Final = re.compile(r" <[^<>]*>$")


def arrange(command: Any, *, name: str) -> None:
    """Let typer's command of that name, and its subcommands, list their options so."""
    groups = GROUPS.get(name, {})
    command.format_options = lambda context, formatter: _list(
        command, context=context, formatter=formatter, groups=groups
    )
    for word, each in getattr(command, "commands", {}).items():
        arrange(each, name=f"{name} {word}")


def _list(command: Any, *, context: Any, formatter: Any, groups: Mapping[str, Sequence[str]]) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{title: [] for title in groups}, "Options": []}
    title_of = {parameter: title for title, parameters in groups.items() for parameter in parameters}
    for parameter in command.get_params(context):
        if (record := parameter.get_help_record(context)) is None:
            continue
        is_argument = parameter.param_type_name == "argument"
        word, text = record
        # An option without a word of its own for its value has that of its name.
        plain = _PYTHON_TYPE.sub("" if is_argument else f" {parameter.name.upper()}", word)
        # An option that is declared with its group names it as typer's panel.
        own = getattr(parameter, "rich_help_panel", None) or "Options"
        title = "Arguments" if is_argument else title_of.get(parameter.name, own)
        sections[title].append((plain, text))
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)
    if hasattr(command, "list_commands"):
        _list_commands(command, context=context, formatter=formatter)


def _list_commands(command: Any, *, context: Any, formatter: Any) -> None:
    """The subcommands with their whole first sentence, which typer would cut."""
    below = [(word, command.get_command(context, word)) for word in command.list_commands(context)]
    with formatter.section("Commands"):
        formatter.write_dl([(word, each.get_short_help_str(limit=_WHOLE)) for word, each in below if not each.hidden])
