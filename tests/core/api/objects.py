"""Objects that a schema allows, as hypothesis draws them; and which of an object's fields a schema does not have."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dovetail.api.text_formats import TIME
from dovetail.formats.timestamps import timestamp

Schema = dict[str, Any]
FEW = 3
# The years 1000 to 2999, in seconds from 1970.
_TIMES = (-30_610_224_000, 32_503_679_999)


def objects(schema: Schema) -> SearchStrategy[Any]:
    """Values of a structural schema that still has its patterns and enums. Empty objects and lists occur."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema.get("type"):
        case "object" if "properties" in schema:
            fields = {name: objects(field) for name, field in schema["properties"].items()}
            required = {name: fields.pop(name) for name in schema.get("required", ()) if name in fields}
            return st.fixed_dictionaries(required, optional=fields)
        case "object":
            values = schema.get("additionalProperties")
            names = objects({"type": "string", "minLength": 1} | schema.get("propertyNames", {}))
            return st.dictionaries(names, objects(values) if values else st.integers(), max_size=FEW)
        case "array":
            if keys := schema.get("x-kubernetes-list-map-keys"):
                return st.lists(objects(schema["items"]), max_size=FEW, unique_by=lambda each: each.get(keys[0]))
            return st.lists(objects(schema["items"]), max_size=FEW)
        case "integer":
            return st.integers(schema.get("minimum", -(2**31)), schema.get("maximum", 2**31))
        case "number":
            return st.floats(schema.get("minimum", -1e6), schema.get("maximum", 1e6))
        case "boolean":
            return st.booleans()
        case _ if schema.get("pattern") == TIME:
            return st.integers(*_TIMES).map(lambda second: timestamp(datetime.fromtimestamp(second, UTC)))
        case _ if "pattern" in schema:
            longest = schema.get("maxLength", 100)
            return st.from_regex(schema["pattern"].replace("$", r"\Z")).filter(lambda text: len(text) <= longest)
        case _:
            return st.text(min_size=schema.get("minLength", 0), max_size=20)


def unknown(value: Any, *, schema: Schema, path: str = "") -> Iterator[str]:
    """The paths of fields that the API server would drop."""
    if isinstance(value, dict) and "properties" in schema:
        for name, field in value.items():
            if name in schema["properties"]:
                yield from unknown(field, schema=schema["properties"][name], path=f"{path}.{name}")
            else:
                yield f"{path}.{name}"
    for each in value if isinstance(value, list) else ():
        yield from unknown(each, schema=schema["items"], path=f"{path}[]")
