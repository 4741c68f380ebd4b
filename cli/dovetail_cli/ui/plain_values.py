"""Values of options that typer needs no pydantic for: texts, lists, flags, whole numbers.

typer checks each value by a pydantic adapter. To import pydantic and to build the adapters takes a third of the CPU of
a submission. What is not plain, such as a text that is no number, goes to typer's own adapter, which has the error.
tests/cli/ui/test_plain_values.py holds both together.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_WHOLE: Final = re.compile(r"-?[1-9]\d{0,14}|0")


class _NotPlainError(Exception):
    """The value is for typer's adapter."""


@dataclass(frozen=True, slots=True)
class _Coercion:
    """What typer calls with each value of one parameter."""

    full: Callable[[], Any]
    kind: Any
    least: float | None
    most: float | None

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        try:
            plain = _plain(value, kind=self.kind, many=param.multiple or param.nargs == -1)
        except _NotPlainError:
            return self.full().coerce(value, param=param, ctx=ctx)
        if type(plain) is int and not self._is_within(plain):
            return self.full().coerce(value, param=param, ctx=ctx)
        return plain

    def _is_within(self, number: int) -> bool:
        return (self.least is None or number >= self.least) and (self.most is None or number <= self.most)


def prepare(command: Any) -> None:
    """Let typer's command, and its subcommands, read plain values without pydantic."""
    for param in command.params:
        _prepare(param)
    # typer makes the option --help for each command line.
    made = command.get_help_option

    def with_plain_value(context: Any) -> Any:
        option = made(context)
        if option is not None:
            _prepare(option)
        return option

    command.get_help_option = with_plain_value
    for below in getattr(command, "commands", {}).values():
        prepare(below)


def _prepare(param: Any) -> None:
    # Older versions of typer read values by click, which is as quick.
    if hasattr(param, "get_runtime_param") and "get_runtime_param" not in vars(param):
        kind, info = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        coercion = _Coercion(param.get_runtime_param, kind, info.min, info.max)
        param.get_runtime_param = lambda: coercion


def _plain(value: Any, *, kind: Any, many: bool) -> Any:
    if value is None:
        return () if many else None
    if many:
        if kind == list[str] and isinstance(value, list | tuple):
            return [_one(each, kind=str) for each in value]
        raise _NotPlainError
    return _one(value, kind=kind)


def _one(value: Any, *, kind: Any) -> Any:
    # Words that are not ASCII may hold what is no Unicode, of which typer makes an error.
    if type(value) is kind and (kind in {bool, int} or (kind is str and value.isascii())):
        return value
    if kind is int and isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    raise _NotPlainError
