"""The API server's own OpenAPI as JSON schemas that kubeconform reads: one file per kind, closed. Pure."""

from collections.abc import Iterator
from typing import Any, Final

Schema = dict[str, Any]

_KINDS: Final = "x-kubernetes-group-version-kind"
# These are written in more ways than their declared type says.
_LOOSE: Final[dict[str, Schema]] = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["string", "integer"]},
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": ["string", "number"]},
}
# Where kubeconform finds them, as its option --schema-location wants it.
FILE_TEMPLATE: Final = "{{ .ResourceKind }}{{ .KindSuffix }}.json"


def schemas(openapi: Schema) -> Iterator[tuple[str, Schema]]:
    """File name and schema of every kind in `/openapi/v2`. A field that a type does not have is an error."""
    definitions = {name: _LOOSE.get(name, _closed(schema)) for name, schema in openapi["definitions"].items()}
    for name, schema in openapi["definitions"].items():
        for kind in schema.get(_KINDS, []):
            needed = _needed(name, definitions=definitions)
            yield _file_of(**kind), {"$ref": f"#/definitions/{name}", "definitions": needed}


def _file_of(*, group: str, version: str, kind: str) -> str:
    parts = [kind.lower(), group.split(".", maxsplit=1)[0], version]
    return "-".join(part for part in parts if part) + ".json"


def _closed(schema: Schema) -> Schema:
    if "properties" not in schema or schema.get("x-kubernetes-preserve-unknown-fields"):
        return schema
    properties = {name: _closed(value) for name, value in schema["properties"].items()}
    return {"additionalProperties": False, **schema, "properties": properties}


def _needed(name: str, *, definitions: dict[str, Schema]) -> dict[str, Schema]:
    """A definition and all that it refers to."""
    found: dict[str, Schema] = {}
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found[each] = definitions[each]
            waiting += [reference.removeprefix("#/definitions/") for reference in _references(definitions[each])]
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
