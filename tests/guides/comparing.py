"""Compares what was answered and printed with what is expected. Pure; each function returns what differs."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tests.guides.blocks import Step, shape, table

# The forms of a line's end.
_FORMS: Final = {
    "any": r".*",
    "str": r"\S.*",
    "int": r"\D*\d+(?: GPUs)?",
    "float": r".*\d+\.\d+",
    "percent": r".*\d+\.\d\d%",
    "seconds": r".*\d+\.\d\d\D+",
    "gigabytes": r".*\d+\.\d+GB",
    "devices": r"(?:CUDA_VISIBLE_DEVICES|Allocated GPUs): \S+(?:,\S+)*",
    "world": r"world: \d+ 0",
    "user": r"user:.*",
}
_NUMBER: Final = re.compile(r"\d+")


def answers(printed: str) -> list[Any]:
    """The JSON objects and lists that follow each other in a text, without the lines before them."""
    found, decoder = list[Any](), json.JSONDecoder()
    lines = printed.strip().splitlines()
    rest = "\n".join(lines[next((at for at, line in enumerate(lines) if line.startswith(("[", "{"))), len(lines)) :])
    while rest:
        value, end = decoder.raw_decode(rest)
        found.append(value)
        rest = rest[end:].strip()
    return found


def fields(answer: Any, *, expected: Mapping[str, str], absent: Iterable[str] = ()) -> list[str]:
    """The fields that are missing or of another type; those in `absent` are there and null."""
    found = shape(answer)
    wanted = {**expected, **dict.fromkeys(absent, "null")}
    return [f"{name}: {kind} expected, {_kind(name, found)} answered" for name, kind in wanted.items()
            if kind != _kind(name, found)]  # fmt: skip


def values(answer: Any, *, expected: Mapping[str, Any]) -> list[str]:
    """The fields with another value; a list's objects all have to have it."""
    return [
        f"{path}: {wanted!r} expected, {found!r} answered"
        for path, wanted in expected.items()
        for found in _at(answer, path.split("."))
        if (found, type(found)) != (wanted, type(wanted))
    ]


def lines(printed: Sequence[str], *, expected: Sequence[str]) -> list[str]:
    """Lines that no printed line has the form of, in their order."""
    rest = iter(printed)
    return [form for form in expected if not any(re.fullmatch(_FORMS[form], line.strip()) for line in rest)]


def keys(printed: Iterable[str], *, expected: Sequence[str]) -> list[str]:
    """Keys of `key: value` lines that are missing; numbers in keys count as `#`."""
    found = {_NUMBER.sub("#", key.strip()) for key, _, value in (line.partition(": ") for line in printed) if value}
    return [key for key in expected if key not in found]


def columns(printed: Sequence[str], *, expected: Sequence[str]) -> list[str]:
    """Columns that the last table with a number or state does not have."""
    heads = [line.split() for line in printed if re.match(r"JOBID|NODES", line)]
    return [name for name in expected if not heads or name not in heads[-1]]


def step(step: Step, *, printed: Sequence[str]) -> list[str]:
    """Compare what a command printed with its sample: the same words with other numbers, or the same rows."""
    if not step.printed[0].startswith("JOBID"):
        pattern = _NUMBER.sub(r"\\d+", re.escape("\n".join(step.printed)))
        return [] if re.fullmatch(pattern, "\n".join(printed)) else [f"{step.printed} expected, {printed} printed"]
    expected, found = table(list(step.printed)), table(list(printed))
    if len(expected) != len(found):
        return [f"{len(expected)} jobs expected, {len(found)} printed: {printed}"]
    return [
        f"{name}: {value} expected, {shown.get(name)} printed"
        for wanted, shown in zip(expected, found, strict=True)
        for name, value in wanted.items()
        if not _like(name, shown.get(name), wanted=value)
    ]


def _like(name: str, found: str | None, *, wanted: str) -> bool:
    """Whether a cell says what the sample's says, for another job."""
    if found is None:
        return False
    match name:
        case "JOBID":
            return found.isdigit()
        case "NAME":
            return bool(found)
        case "NODELIST(REASON)" if wanted.startswith("("):
            return found.startswith(wanted.removesuffix(")"))
        case "NODELIST(REASON)":
            return re.fullmatch(r"\d+(,\d+)*", found) is not None and found.count(",") == wanted.count(",")
    return found == wanted


def _kind(name: str, found: Mapping[str, str]) -> str:
    """The type of a field, also if an object or a list is within it."""
    if name in found:
        return found[name]
    if any(each.startswith(f"{name}[]") for each in found):
        return "list"
    return "object" if any(each.startswith(f"{name}.") for each in found) else "nothing"


def _at(value: Any, path: Sequence[str]) -> Iterable[Any]:
    if not path:
        yield value
        return
    name, *rest = path
    inner = value
    if name.removesuffix("[]"):
        inner = inner.get(name.removesuffix("[]"), "nothing") if isinstance(inner, Mapping) else "nothing"
    for each in inner if name.endswith("[]") else [inner]:
        yield from _at(each, rest)
