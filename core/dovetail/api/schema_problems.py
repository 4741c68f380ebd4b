"""What the API server would refuse of an object by its structural schema, in one sentence. Pure."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dovetail.api.text_formats import TIME, sentence_for
from dovetail.formats.suggestions import suggestion
from dovetail.formats.timestamps import moment

Schema = dict[str, Any]

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}
_ARTICLES: Final = {"object": "an object", "array": "a list", "string": "a text", "boolean": "true or false"}
_LONGEST_VALUE: Final = 100


def first_problem(value: Any, *, schema: Schema, path: str = "") -> str:
    """The first problem, with the field's path, its value and what is allowed; empty if there is none.

    `schema` is a structural schema whose texts still have their patterns. Rules between fields are not looked at.
    """
    return next(_problems(value, schema=schema, path=path), "")


def _problems(value: Any, *, schema: Schema, path: str) -> Iterator[str]:
    if value is None:
        # As in kubectl apply: an empty field counts as absent.
        return
    if expected := _rule_for(value, schema=schema):
        yield f"{path or 'the object'} {_shown(value)}: {expected}"
    elif isinstance(value, dict):
        yield from _of_fields(value, schema=schema, path=path)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _problems(each, schema=schema.get("items", {}), path=f"{path}[{index}]")
        yield from _twice(value, keys=schema.get("x-kubernetes-list-map-keys", ()), path=path)


def _twice(value: list[Any], *, keys: Sequence[str], path: str) -> Iterator[str]:
    """Entries of a list with the keys of an earlier one."""
    known = set[str]()
    for index, each in enumerate(value if keys else ()):
        if not isinstance(each, dict):
            continue
        said = ", ".join(f"{key} {_shown(each.get(key))}" for key in keys)
        if said in known:
            yield f"{path}[{index}]: {said} is in the list twice"
        known.add(said)


def _of_fields(value: dict[Any, Any], *, schema: Schema, path: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    names: Schema = schema.get("propertyNames", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path or 'the object'}: {name} is missing"
    for name, each in value.items():
        where = f"{path}.{name}" if path else str(name)
        if name in known:
            yield from _problems(each, schema=known[name], path=where)
        elif isinstance(others, dict):
            if problem := _rule_for_text(str(name), schema=names):
                yield f'{path or "the object"}: the name "{name}" {problem}'
            yield from _problems(each, schema=others, path=where)
        elif known:
            hint = suggestion(str(name), known=known) or f"; the fields are {', '.join(known)}"
            yield f'unknown field "{where}"{hint}'


def _rule_for(value: Any, *, schema: Schema) -> str:
    """What a wrong value must be; empty for one that is right in itself."""
    kind = schema.get("type", "")
    wanted = _TYPES.get(kind)
    is_other = wanted is not None and not isinstance(value, wanted)
    # True is an int for Python.
    if is_other or (isinstance(value, bool) and kind in {"integer", "number"}):
        return f"must be {_ARTICLES[kind]}" if kind in _ARTICLES else _bounds(schema, kind=kind)
    if "enum" in schema and value not in schema["enum"]:
        return f"must be one of {', '.join(map(str, schema['enum']))}"
    if isinstance(value, str):
        return _rule_for_text(value, schema=schema)
    if isinstance(value, int | float) and not isinstance(value, bool):
        low: float = schema.get("minimum", value)
        high: float = schema.get("maximum", value)
        return "" if low <= value <= high else _bounds(schema, kind=kind)
    if isinstance(value, list | dict):
        most: int = schema.get("maxItems" if isinstance(value, list) else "maxProperties", len(value))
        return "" if len(value) <= most else f"must have at most {most} entries"
    return ""


def _rule_for_text(value: str, *, schema: Schema) -> str:
    longest: int = schema.get("maxLength", len(value))
    pattern: str | None = schema.get("pattern")
    # For Python alone, "$" is also before a newline at the end.
    if pattern is not None and re.search(re.sub(r"\$$", r"\\Z", pattern), value) is None:
        return sentence_for(pattern)
    if pattern == TIME and not _exists(value):
        return "there is no such day or time"
    if not schema.get("minLength", 0) <= len(value) <= longest:
        return f"must have {schema.get('minLength', 0)} to {longest} characters"
    return ""


def _exists(time: str) -> bool:
    try:
        moment(time)
    except ValueError:
        return False
    return True


def _bounds(schema: Schema, *, kind: str) -> str:
    what = f"must be a {'whole ' * (kind == 'integer')}number"
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return what
    return f"{what} from {low} to {high}" if high is not None else f"{what} of at least {low}"


def _shown(value: Any) -> str:
    if isinstance(value, list | dict):
        return "(a list)" if isinstance(value, list) else "(an object)"
    text = f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
