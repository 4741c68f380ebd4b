"""YAML text as plain values, with one error for all that a reader of YAML can raise. Pure.

YAMLTextError   the text is no YAML; says where, and what is wrong there
"""

from collections.abc import Iterator
from typing import Any, Final

import yaml

_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"
# What PyYAML raises for a scalar that is not of its tag, such as `!!int abc` or a number of 5,000 digits.
BAD_SCALAR: Final = (ValueError, LookupError, AttributeError, TypeError)
# libyaml's loader reads ten times faster; PyYAML may be built without it. For texts that programs write: its errors say
# less.
QUICK_LOADER: Final[type[Any]] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class YAMLTextError(ValueError):
    """The text is no YAML; the message is one line."""


class _Loader(yaml.SafeLoader):
    """Reads a time as its text, as kubectl does: 2026-02-01 in a file is not an object of the calendar."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def load_yaml(text: str) -> Any:
    """The value of the text's one document; None for an empty text. Raises `YAMLTextError`."""
    documents = load_all_yaml(text)
    if len(documents) > 1:
        raise YAMLTextError("expected one document, and there are several")
    return documents[0] if documents else None


def load_all_yaml(text: str) -> list[Any]:
    """The values of the text's documents. Raises `YAMLTextError`."""
    try:
        return list(_documents(text))
    except yaml.YAMLError as error:
        raise YAMLTextError(_sentence(error)) from error
    except RecursionError as error:
        raise YAMLTextError("it is nested too deeply") from error
    except BAD_SCALAR as error:
        # What ValueError says is for people, up to Python's advice.
        why = f": {str(error).partition(';')[0]}" if isinstance(error, ValueError) else ""
        raise YAMLTextError(f"a value does not suit its tag{why}") from error


def _documents(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            yield loader.construct_document(loader.get_node())
    finally:
        loader.dispose()


def _sentence(error: yaml.YAMLError) -> str:
    """The error in one line: `line 3, column 5: found unhashable key`."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    mark = error.problem_mark or error.context_mark
    place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    return place + " ".join(str(error.problem or error.context or "not YAML").split())
