"""The SDK's values of v1 and v2 are those of the gateway's document, field for field; those of v3 are the gateway's."""

import json
from pathlib import Path

import msgspec

from dovetail.sdk import types

SCHEMAS = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())["components"]["schemas"]
# Where the document has another name, or one for each version.
OTHER_NAMES = {
    "GPU": "dovetail_gateway.v2.types.DeviceRow",
    "NodeRow": "dovetail_gateway.v1.types.NodeRow",
}
ROWS = [
    value
    for value in vars(types).values()
    if isinstance(value, type) and issubclass(value, types.Record) and value is not types.Record
]


def unknown_fields(row: type[msgspec.Struct]) -> set[str]:
    """Those that the document does not have."""
    fields = {field.encode_name for field in msgspec.structs.fields(row)}
    return fields - set(SCHEMAS[OTHER_NAMES.get(row.__name__, row.__name__)]["properties"])


def test_each_field_is_one_of_the_document() -> None:
    assert {row.__name__: found for row in ROWS if (found := unknown_fields(row))} == {}
