"""Errors of a pod's spec: the field, its value, and what is allowed. Pure."""

import re
from typing import Final

from dovetail.api.builtin import PodSpec
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import NOTHING, Sentence
from dovetail.decoding import UnreadableError
from dovetail.formats.quantities import Quantity
from dovetail.gpu.request import RequestError

_WHAT_AND_WHERE: Final = re.compile(r"(?s)(?P<what>.*?)(?: - at `\$(?P<where>.*)`)?")
_WRONG_KIND: Final = re.compile(r"Expected `(?P<wanted>\w+(?: \| \w+)*)`, got `(?P<found>\w+)`")
# msgspec's words for types, in our words and with their notation.
_KINDS: Final = {
    "str": ("a text", '"1" in quotes'),
    "int": ("a whole number", "1"),
    "float": ("a number", "1.5"),
    "bool": ("true or false", "true"),
    "array": ("a list", "[a, b]"),
    "object": ("an object", "{name: value}"),
    "null": ("nothing", "null"),
}
_OTHERWISE: Final = "containers: [{name: main, image: python}]"


def template_error(error: UnreadableError, *, job: str) -> RequestError:
    """The error of a job with an invalid template: the field, its content, what is allowed."""
    parts = _WHAT_AND_WHERE.fullmatch(str(error))
    assert parts is not None, "it takes every text"
    what, example = _in_words(parts["what"])
    where = f"spec.template.spec{parts['where'] or ''}"
    return RequestError(job, field="job", problem=f"{where} {what}", example=example)


def quantity_error(spec: PodSpec, *, text: Quantity) -> RequestError:
    """The error of a pod with an invalid or negative quantity: its container and resource."""
    problem = says.NOT_NEGATIVE() if str(text).startswith("-") else says.IS_NO_QUANTITY()
    return RequestError(str(text), field=_place_of(spec, text=text), problem=problem, example="500m or 1.5Gi")


def _in_words(what: str) -> tuple[str, str]:
    kinds = _WRONG_KIND.fullmatch(what)
    # A field that may be absent may also be null, which needs no mention; a field for any number accepts whole ones.
    wanted = [] if kinds is None else [each for each in kinds["wanted"].split(" | ") if each != "null"]
    wanted = [each for each in wanted if each != "int" or "float" not in wanted]
    if kinds is None or not {*wanted, kinds["found"]} <= _KINDS.keys():
        return f"is no pod: {what}", _OTHERWISE
    allowed = " or ".join(_KINDS[each][0] for each in wanted)
    return f"must be {allowed} and is {_KINDS[kinds['found']][0]}", _KINDS[wanted[0]][1]


def _place_of(spec: PodSpec, *, text: Quantity) -> str:
    for container in [*spec.init_containers, *spec.containers]:
        for kind, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits)):
            for resource, amount in amounts.items():
                if str(amount) == str(text):
                    return f"resources.{kind}.{resource} of container {container.name}"
    return "resources of a container"


def sentence_of(error: RequestError) -> Sentence:
    """The error as clauses of the table: the field and its value, the problem, and an example."""
    said = error.said
    # One that is too long to be shown whole is a text.
    if not isinstance(said, Sentence) or said.message != error.stated:
        said = says.REQUEST_PROBLEM(problem=error.stated)
    place = NOTHING if error.position is None else says.AT_CHARACTER(position=error.position + 1)
    field = says.REQUEST_FIELD(field=error.field, value=error.shown)
    return field + said + place + says.WRITE_FOR_EXAMPLE(example=error.example)
