"""What holds for each field of a GPUJob's spec beyond its type, bounds and description. Data only.

The declaration is at the field itself, in `GPUJobSpec`. The schema, the webhook, the pods of a job and the tasks of
an array read it from here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

_KEY: Final = "spec field"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecField:
    """A field of the spec.

    stays         it keeps the value with which the job was created: the schema refuses a change
    tasks_follow  a change in an array reaches its unfinished tasks
    annotation    the annotation that carries it to the job's pods, in which a plain pod has it too; empty for none
    attribute     its name in Python, empty in a declaration
    """

    stays: bool = False
    tasks_follow: bool = False
    annotation: str = ""
    attribute: str = ""


def spec_field(*, stays: bool = False, tasks_follow: bool = False, annotation: str = "") -> dict[str, Any]:
    """The `extra` of a field's `Meta`."""
    return {_KEY: SpecField(stays=stays, tasks_follow=tasks_follow, annotation=annotation)}


def fields_of(spec: type[msgspec.Struct]) -> Mapping[str, SpecField]:
    """All fields of a struct by their names in JSON, in their order."""
    return {each.encode_name: _declared(each) for each in msgspec.structs.fields(spec)}


def _declared(found: msgspec.structs.FieldInfo) -> SpecField:
    for each in getattr(found.type, "__metadata__", ()):
        if isinstance(each, msgspec.Meta) and each.extra and _KEY in each.extra:
            said: SpecField = each.extra[_KEY]
            return replace(said, attribute=found.name)
    return SpecField(attribute=found.name)
