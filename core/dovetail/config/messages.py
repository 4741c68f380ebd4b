"""A validation error as one sentence: the key, its value, its source, what is allowed. Pure.

A module of its own: it reads pydantic's models and errors, where `loading` reads files and variables.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from dovetail.config.errors import ConfigError
from dovetail.formats.suggestions import suggestion

Location = Sequence[int | str]


@dataclass(frozen=True, slots=True)
class Source:
    """Values by key, and the name of the source in messages."""

    name: str
    values: Mapping[str, Any]
    env_prefix: str | None = None

    def origin(self, location: Location) -> str | None:
        """The name of the source of that key, or None when this source does not have it."""
        if not _has(self.values, location=location):
            return None
        return self.name if self.env_prefix is None else self.env_prefix + "__".join(map(str, location)).upper()


def explain(error: ValidationError, *, model: type[BaseModel], sources: Sequence[Source]) -> ConfigError:
    """The first error. `sources` are ordered by precedence; the last one is the file."""
    first = error.errors()[0]
    location = first["loc"]
    found = (source.origin(location) for source in sources)
    origin = next((name for name in found if name is not None), sources[-1].name)
    return ConfigError(origin, problem=_problem(first, location=location, model=model))


def problems(error: ValidationError, *, model: type[BaseModel]) -> list[str]:
    """A sentence for each error, in the order of the keys."""
    return [_problem(details, location=details["loc"], model=model) for details in error.errors()]


def _problem(details: ErrorDetails, *, location: Location, model: type[BaseModel]) -> str:
    key = ".".join(map(str, location))
    if details["type"] == "extra_forbidden":
        known = _fields(model, location=location[:-1])
        hint = suggestion(str(location[-1]), known=known) or f"; the keys are {', '.join(known)}"
        return f'unknown key "{key}"{hint}'
    extra = _extra(model, location=location)
    said = details.get("ctx", {}).get("error")
    # A rule between two keys has its own sentence; every other error shows the key's range.
    allowed = str(said) if said is not None and "which is" in str(said) else extra.get("allowed", details["msg"])
    if details["type"] == "missing":
        return f"{key} is missing; it must be {allowed}"
    value = details["input"]
    hint = suggestion(value, known=extra.get("choices", ())) if isinstance(value, str) else ""
    return f"{key} is {_show(value)}, but must be {allowed}{hint}"


def _show(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else "empty" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _has(values: Any, *, location: Location) -> bool:
    for part in location:
        if not isinstance(values, Mapping) or part not in values:
            return False
        values = values[part]
    return True


def _fields(model: type[BaseModel], *, location: Location) -> dict[str, FieldInfo]:
    """The fields of the model at `location`, which is the model itself or a nested one."""
    parts = iter(location)
    for part in parts:
        field = model.model_fields[str(part)]
        model = _nested(field) or model
        if _has_entries(field):
            # The entry's name or number is no field.
            next(parts, None)
    return model.model_fields


def _extra(model: type[BaseModel], *, location: Location) -> Mapping[str, Any]:
    """What the innermost known field at `location` declares in addition to its type."""
    extra: Mapping[str, Any] = {}
    rest = list(location)
    while rest and (field := model.model_fields.get(str(rest.pop(0)))) is not None:
        extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
        if rest and "entry" in extra:
            extra = {"allowed": extra["entry"]}
        if rest and _has_entries(field):
            rest.pop(0)
        model = _nested(field) or model
    return extra


def _nested(field: FieldInfo) -> type[BaseModel] | None:
    """The model of a field's value, or of the values of its map or list; None if it has none."""
    kinds = [field.annotation, *get_args(field.annotation)[-1:]]
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def _has_entries(field: FieldInfo) -> bool:
    return get_origin(field.annotation) in {dict, list}
