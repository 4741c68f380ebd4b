"""The reference of the custom resources, as Markdown, from the CRDs of the chart."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

_BOUNDS: Final = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "maxProperties": "at most {} entries",
    "pattern": "pattern `{}`",
}
# A sentence that a `messageExpression` chooses, in CEL.
_CHOSEN: Final = re.compile(r"[?] '((?:[^'\\]|\\.)*)'")


def reference(crd: Path) -> str:
    """One page for one CRD: what it is, a table of all fields, and the rules that the API server checks."""
    definition = yaml.safe_load(crd.read_text(encoding="utf-8"))["spec"]
    version = definition["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = definition["names"]
    kubectl = ", ".join(f"`{name}`" for name in [names["plural"], *names.get("shortNames", [])])
    lines = [
        f"# {names['kind']}",
        "",
        schema.get("description", ""),
        "",
        f"`apiVersion: {definition['group']}/{version['name']}`, scope {definition['scope']}. Also: {kubectl}.",
        "",
        "| field | type | meaning |",
        "|---|---|---|",
        *(_row(path, field=field, required=required) for path, field, required in _fields(schema)),
    ]
    rules = [sentence for rule in _rules(schema) for sentence in _sentences(rule)]
    if rules:
        lines += ["", "## Rules", "", "The API server refuses an object that breaks one of these:", ""]
        lines += [f"- {_escaped(message)}" for message in dict.fromkeys(rules)]
    return "\n".join(lines) + "\n"


def _fields(schema: dict[str, Any], *, path: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    for name, field in schema.get("properties", {}).items():
        if path or name in {"spec", "status"}:
            here = f"{path}.{name}" if path else name
            yield here, field, name in schema.get("required", [])
            yield from _fields(field, path=here)
            yield from _fields(field.get("items", {}), path=f"{here}[]")
            if isinstance(field.get("additionalProperties"), dict):
                yield from _fields(field["additionalProperties"], path=f"{here}.NAME")


def _row(path: str, *, field: dict[str, Any], required: bool) -> str:
    notes = ["required"] if required else []
    if "enum" in field:
        notes.append("one of " + ", ".join(f"`{value}`" for value in field["enum"]))
    notes += [text.format(_escaped(str(field[key]))) for key, text in _BOUNDS.items() if key in field]
    if "default" in field:
        notes.append(f"default `{field['default']}`")
    meaning = _escaped(" ".join(field.get("description", "").split()))
    return f"| `{path}` | {_type(field)} | {meaning}{' (' + '; '.join(notes) + ')' if notes else ''} |"


def _type(field: dict[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    if isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    return str(field.get("format") or field.get("type", "any"))


def _rules(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield from schema.get("x-kubernetes-validations", [])
        for value in schema.values():
            yield from _rules(value)


def _sentences(rule: dict[str, Any]) -> Iterator[str]:
    """What the API server may answer for it: its message, or each sentence that its expression chooses from."""
    chosen = _CHOSEN.findall(rule.get("messageExpression", ""))
    yield from (sentence.replace("\\'", "'") for sentence in chosen)
    if not chosen and "message" in rule:
        yield rule["message"]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("{", "&#123;")
