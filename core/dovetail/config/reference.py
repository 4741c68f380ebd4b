"""All keys of the configuration as rows: default, what is allowed, meaning, when a change counts. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dovetail.config.groups import LIVE
from dovetail.config.settings import ENV_PREFIX, Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key; `preemption.grace` is `grace` below `preemption`.

    name         as in the file
    default      its value if the file has no such key
    allowed      the values that it takes
    description  what it means
    live         whether a change counts without a restart
    """

    name: str
    default: Any
    allowed: str
    description: str
    live: bool

    @property
    def variable(self) -> str:
        """The environment variable that takes precedence over the file."""
        return ENV_PREFIX + self.name.replace(".", "__").upper()


def keys() -> Iterator[Key]:
    """Every key, in the order of the settings; of a group of keys the group's are rows of their own."""
    yield from _keys_of(Settings(), prefix="", live=None)


def values_of(settings: Settings) -> dict[str, Any]:
    """The value of each key, by the names of `keys`."""
    return dict(_values_of(settings, prefix=""))


def as_written(value: Any) -> Any:
    """A value as a file has it: maps instead of models, without what has its default."""
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_defaults=True)
    if isinstance(value, dict):
        return {name: as_written(each) for name, each in value.items()}
    return [as_written(each) for each in value] if isinstance(value, list) else value


def _keys_of(model: BaseModel, *, prefix: str, live: bool | None) -> Iterator[Key]:
    for name, field in type(model).model_fields.items():
        value, extra = getattr(model, name), _extra(field)
        counts = bool(extra.get(LIVE)) if live is None else live
        if isinstance(value, BaseModel):
            yield from _keys_of(value, prefix=f"{prefix}{name}.", live=counts)
        else:
            allowed = f"{extra['allowed']}; each {extra['entry']}" if "entry" in extra else str(extra["allowed"])
            yield Key(
                name=f"{prefix}{name}",
                default=value,
                allowed=allowed,
                description=field.description or "",
                live=counts,
            )


def _values_of(model: BaseModel, *, prefix: str) -> Iterator[tuple[str, Any]]:
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _values_of(value, prefix=f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", as_written(value)


def _extra(field: FieldInfo) -> Mapping[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
