"""The default configuration as YAML with a comment for each key."""

import textwrap
from typing import Any, Final

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dovetail.config.settings import Settings

_HEAD: Final = "# Configuration of Dovetail: every key with its default."
_WIDTH: Final = 100


def default_yaml() -> str:
    """`gpu_config.yaml` with all defaults; to load it gives `Settings()`."""
    defaults = Settings()
    blocks = [_block(name, field=field, value=getattr(defaults, name)) for name, field in Settings.model_fields.items()]
    return "\n\n".join([_HEAD, *blocks]) + "\n"


def _block(name: str, *, field: FieldInfo, value: Any) -> str:
    if not isinstance(value, BaseModel):
        return "\n".join([*_comment(field), _dump({name: value})])
    lines = [*_comment(field), f"{name}:"]
    for inner, inner_field in type(value).model_fields.items():
        text = "\n".join([*_comment(inner_field), _dump({inner: getattr(value, inner)})])
        lines.append(textwrap.indent(text, "  "))
    return "\n".join(lines)


def _comment(field: FieldInfo) -> list[str]:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    sentence = f"{field.description} Allowed: {extra.get('entry', extra['allowed'])}."
    return textwrap.wrap(sentence, width=_WIDTH, initial_indent="# ", subsequent_indent="# ")


def _dump(value: dict[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False).rstrip("\n")
