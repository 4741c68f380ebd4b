"""Command lines of commands that show things: declared and usually read without typer.

Importing typer, with pydantic behind it, takes longer than all that a listing does with the cluster's answer. A command
that shows things declares its options with `option` and `argument`, and `read` turns a plain command line into the
arguments of its function. Help, mistakes and everything that is not plain go to typer, which gets the same declarations
from `for_typer`. tests/cli/ui/test_command_line.py holds both readings together.
"""

import getopt
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_origin, get_type_hints

from dovetail_cli.ui.completers import Completer

if TYPE_CHECKING:
    import typer

_NUMBER: Final = re.compile(r"-?\d{1,15}(\.\d{1,15})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """An option by its names or, without names, a positional argument."""

    names: tuple[str, ...] = ()
    metavar: str | None = None
    help: str
    complete: Completer | None = None

    def for_typer(self) -> Any:
        """The same as typer declares it."""
        import typer

        if self.names:
            return typer.Option(*self.names, metavar=self.metavar, help=self.help, autocompletion=self.complete)
        return typer.Argument(metavar=self.metavar, help=self.help, autocompletion=self.complete)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A command of several: `explain pod …`, `explain job …`.

    Any other first word is meant for the `default` one.
    """

    help: str
    commands: Mapping[str, Callable[..., None]]
    default: str

    def chosen(self, words: Sequence[str]) -> tuple[Callable[..., None], Sequence[str]] | None:
        """The command that words name, and its own words; None if typer must read them."""
        if not words or words[0].startswith("-"):
            return None
        return (self.commands[words[0]], words[1:]) if words[0] in self.commands else (self._default, words)

    @property
    def _default(self) -> Callable[..., None]:
        return self.commands[self.default]

    def for_typer(self) -> "typer.Typer":
        """The same as typer declares it."""
        import typer
        from typer.core import TyperGroup

        default = self.default

        class ByDefault(TyperGroup):
            def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
                if args and not args[0].startswith("-") and args[0] not in self.commands:
                    args = [default, *args]
                return super().parse_args(ctx, args)

        app = typer.Typer(
            cls=ByDefault,
            help=self.help,
            no_args_is_help=True,
            add_completion=False,
            rich_markup_mode=None,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        for name, function in self.commands.items():
            app.command(name)(for_typer(function))
        return app


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Where a value goes: the parameter, and the type of one value (`bool` is a flag)."""

    parameter: str
    type: Any
    many: bool


def option(
    *names: str,
    metavar: str | None = None,
    help: str,  # noqa: A002 - typer's own word
    complete: Completer | None = None,
) -> Declared:
    """An option of the command line, for `Annotated`."""
    return Declared(names=names, metavar=metavar, help=help, complete=complete)


def argument(
    *,
    metavar: str,
    help: str,  # noqa: A002 - typer's own word
    complete: Completer | None = None,
) -> Declared:
    """The positional arguments of the command line, for `Annotated`."""
    return Declared(metavar=metavar, help=help, complete=complete)


def is_declared_here(function: Callable[..., None]) -> bool:
    """Whether `option` and `argument` declare the function's parameters, and not typer."""
    extras = [get_args(each.annotation)[1:] for each in signature(function).parameters.values()]
    return any(isinstance(extra, Declared) for each in extras for extra in each)


def for_typer(function: Callable[..., None]) -> Callable[..., None]:
    """The same function with its parameters declared as typer reads them."""
    hints = {name: Annotated[kind, declared.for_typer()] for name, (kind, declared) in _declarations(function).items()}
    parameters = signature(function).parameters.items()

    @wraps(function)
    def command(**arguments: Any) -> None:
        function(**arguments)

    command.__annotations__ = hints
    command.__signature__ = signature(function).replace(  # type: ignore[attr-defined]  # inspect looks at it
        parameters=[each.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY) for name, each in parameters]
    )
    return command


def read(function: Callable[..., None], *, words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of `function` from a plain command line; None if typer must read it."""
    options, positional = _targets(function)
    # Words that are not ASCII may hold what is no Unicode, of which typer makes an error.
    if not all(word.isascii() for word in words) or not _spelled_out(words, options=options):
        return None
    try:
        pairs, rest = getopt.gnu_getopt(list(words), *_getopt_forms(options))
        values = [(options[name], text) for name, text in pairs]
        found = _collected([*values, *_positional_values(rest, target=positional)])
        return found if _is_complete(found, function=function) else None
    except (getopt.GetoptError, ValueError):
        return None


def _is_complete(found: Mapping[str, Any], *, function: Callable[..., None]) -> bool:
    parameters = signature(function).parameters.values()
    return all(each.name in found for each in parameters if each.default is Parameter.empty)


def _spelled_out(words: Sequence[str], *, options: Mapping[str, _Target]) -> bool:
    """Whether each long option is written in full.

    getopt also accepts the beginning of a name; typer does not.
    """
    return all(word.partition("=")[0] in options for word in words if word.startswith("--"))


def _getopt_forms(options: Mapping[str, _Target]) -> tuple[str, list[str]]:
    """The options as getopt takes them: `aj:` and `["all", "jobs="]`."""
    short = [f"{name[1:]}{'' if to.type is bool else ':'}" for name, to in options.items() if not name.startswith("--")]
    long = [f"{name[2:]}{'' if to.type is bool else '='}" for name, to in options.items() if name.startswith("--")]
    return "".join(short), long


def _positional_values(words: Sequence[str], *, target: _Target | None) -> list[tuple[_Target, str]]:
    """Raises ValueError for words that the command takes none of."""
    if words and (target is None or not (target.many or len(words) == 1)):
        raise ValueError(words)
    return [(target, word) for word in words if target]


def _collected(values: Sequence[tuple[_Target, str]]) -> dict[str, Any]:
    """The function's arguments.

    Of an option that is given twice the last value counts, or all if it takes many.
    """
    found: dict[str, Any] = {}
    for target, text in values:
        value = _value(text, as_type=target.type)
        if target.many:
            found.setdefault(target.parameter, []).append(value)
        else:
            found[target.parameter] = value
    return found


def _value(text: str, *, as_type: Any) -> Any:
    """Raises ValueError for a text that typer may read otherwise."""
    if as_type is bool:
        return True
    if as_type is str:
        return text
    if as_type is float and _NUMBER.fullmatch(text):
        return float(text)
    raise ValueError(text)


def _targets(function: Callable[..., None]) -> tuple[dict[str, _Target], _Target | None]:
    """The options by name, and where positional arguments go."""
    options: dict[str, _Target] = {}
    positional = None
    for name, (kind, declared) in _declarations(function).items():
        target = _target(name, kind=kind)
        options |= dict.fromkeys(declared.names, target)
        positional = positional if declared.names else target
    return options, positional


def _target(parameter: str, *, kind: Any) -> _Target:
    """The target of a parameter: `X | None` is optional, `list[X]` takes many values."""
    (given,) = [part for part in get_args(kind) if part is not NoneType] if NoneType in get_args(kind) else [kind]
    many = get_origin(given) is list
    return _Target(parameter=parameter, type=get_args(given)[0] if many else given, many=many)


def _declarations(function: Callable[..., None]) -> dict[str, tuple[Any, Declared]]:
    """Each parameter's type and declaration."""
    hints = get_type_hints(function, include_extras=True)
    return {name: get_args(hint) for name, hint in hints.items() if name != "return"}
