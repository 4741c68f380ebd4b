"""The OpenAPI 3.1 document of a route table. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from inspect import cleandoc
from typing import Any, Final, get_args

import msgspec

from dovetail_gateway.routing.table import Route

_TEMPLATE: Final = "#/components/schemas/{name}"
# What every route may answer, besides what it declares.
_ALWAYS: Final = {
    400: "The request cannot be read.",
    408: "The body did not come in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The Host header does not name the gateway.",
    422: "A value is not allowed; the sentence names it.",
    429: "Too many requests; Retry-After says how long to wait.",
}
_WITH_TOKEN: Final = {401: "No token, or one that the API server does not know.", 403: "The right is missing."}
_FROM_CACHE: Final = {
    502: "The API server is away.",
    503: "The gateway has no synced view of the cluster yet.",
    504: "The answer took too long.",
}
_EVENTS: Final = "Events `delta` with this data, `resync` and `bye`."
_KNOWN: Final = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of the answer that the client has: the same content is a 304 without a body.",
    "schema": {"type": "string"},
}
_DESCRIPTIONS: Final = {
    200: "Done.",
    201: "Created.",
    404: "There is no such object.",
    409: "Refused: the reason says why.",
}


def document(routes: Sequence[Route], *, title: str, version: str, types: Sequence[type] = ()) -> dict[str, Any]:
    """The document; `types` are schemas that are only referred to."""
    wanted = list(dict.fromkeys([*_types(routes), *types]))
    schemas, components = msgspec.json.schema_components(wanted, ref_template=_TEMPLATE)
    by_type = dict(zip(map(_key, wanted), schemas, strict=True))
    for kind in _structs(_answered(routes)) - _structs(each.body_type for each in routes):
        if not kind.__struct_config__.omit_defaults:
            # Every field is there, also one that has a default for those who build the value.
            schema = components.get(kind.__name__) or components[f"{kind.__module__}.{kind.__qualname__}"]
            schema["required"] = list(schema["properties"])
    paths: dict[str, Any] = {}
    for each in routes:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, by_type=by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {name: _flush_left(schema) for name, schema in sorted(components.items())},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _flush_left(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema whose description has no indentation, which Markdown shows as code. Python removes it since 3.13."""
    return {**schema, "description": cleandoc(schema["description"])} if "description" in schema else dict(schema)


def _types(routes: Iterable[Route]) -> Iterable[Any]:
    for each in routes:
        yield each.errors.as_type
        if each.body_type is not None:
            yield each.body_type
        yield from _answered([each])


def _answered(routes: Iterable[Route]) -> Iterable[Any]:
    return (kind for each in routes for kind in each.answers.values() if kind is not None)


def _structs(kinds: Iterable[Any]) -> set[type[msgspec.Struct]]:
    """All structs that values of these types consist of."""
    found: set[type[msgspec.Struct]] = set()
    left = list(kinds)
    while left:
        kind = left.pop()
        left += get_args(kind)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind not in found:
            found.add(kind)
            left += [field.type for field in msgspec.structs.fields(kind)]
    return found


def _key(kind: Any) -> Any:
    return kind if isinstance(kind, type) else str(kind)


def _operation(each: Route, *, by_type: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": each.operation,
        "summary": each.summary,
        "tags": [each.tag],
        "x-required-right": str(each.right),
        "parameters": [
            *_parameters(each.path_type, place="path"),
            *_parameters(each.query_type, place="query"),
            *([_KNOWN] if each.tagged else ()),
            *(_header(header.name, description=header.description, pattern=header.pattern) for header in each.headers),
        ],
        "responses": _responses(each, by_type=by_type),
    }
    if each.right.by != "none":
        found["security"] = [{"token": []}]
    if each.body_type is not None:
        schema = by_type[_key(each.body_type)]
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return found


def _header(name: str, *, description: str, pattern: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", "pattern": pattern},
    }


def _parameters(kind: type[msgspec.Struct], *, place: str) -> Iterable[dict[str, Any]]:
    _, components = msgspec.json.schema_components([kind], ref_template=_TEMPLATE)
    properties = components.get(kind.__name__, {}).get("properties", {})
    for info in msgspec.structs.fields(kind):
        schema = _without_null(properties[info.encode_name])
        description = schema.pop("description", "")
        required = place == "path" or info.required
        yield {
            "name": info.encode_name,
            "in": place,
            "required": required,
            "schema": schema,
        } | ({"description": description} if description else {})


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a parameter, which is absent where a field would be null."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if len(kinds) != 1:
        return dict(schema)
    rest = {key: value for key, value in schema.items() if key not in {"anyOf", "default"}}
    return {**kinds[0], **rest}


def _responses(each: Route, *, by_type: dict[Any, Any]) -> dict[str, Any]:
    found = {
        str(status): _response(each, status=status, kind=kind, by_type=by_type) for status, kind in each.answers.items()
    }
    content = {each.errors.content_type: {"schema": by_type[_key(each.errors.as_type)]}}
    always = {**_ALWAYS, **({} if each.right.by == "none" else _WITH_TOKEN), **_FROM_CACHE}
    if each.tagged:
        found["200"]["headers"] = {"ETag": {"description": "Names this content.", "schema": {"type": "string"}}}
        found["304"] = {"description": "The content is the one that If-None-Match names."}
    for status, description in always.items():
        found.setdefault(str(status), {"description": description, "content": content})
    return dict(sorted(found.items()))


def _response(each: Route, *, status: int, kind: Any, by_type: dict[Any, Any]) -> dict[str, Any]:
    description = _DESCRIPTIONS.get(status) or _FROM_CACHE[status]
    if each.stream is not None and status == 200:
        schema = by_type[_key(kind)]
        if schema != {"type": "string"}:
            description, schema = _EVENTS, {"type": "string", "contentSchema": schema}
        return {"description": description, "content": {each.media_type: {"schema": schema}}}
    is_error = kind is each.errors.as_type
    content_type = each.errors.content_type if is_error else "application/json"
    return {"description": description, "content": {content_type: {"schema": by_type[_key(kind)]}}}
