"""The SDK's values are those of the gateway's document, field for field."""

import json
from pathlib import Path

import msgspec

from dovetail.sdk import types

SCHEMAS = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())["components"]["schemas"]
# Where the document has another name, or one for each version.
OTHER_NAMES = {
    "GPU": "dovetail_gateway.v2.types.DeviceRow",
    "NodeRow": "dovetail_gateway.v1.types.NodeRow",
    "DryRun": "DryRunAnswer",
    "Effects": "EffectsAnswer",
    "Explanation": "ExplanationAnswer",
}
ROWS = [
    value
    for value in vars(types).values()
    if isinstance(value, type) and issubclass(value, types.Row) and value not in {types.Row, types.CamelRow}
]


def unknown_fields(row: type[msgspec.Struct]) -> set[str]:
    """Those that the document does not have."""
    fields = {field.encode_name for field in msgspec.structs.fields(row)}
    return fields - set(SCHEMAS[OTHER_NAMES.get(row.__name__, row.__name__)]["properties"])


def test_each_field_is_one_of_the_document() -> None:
    assert {row.__name__: found for row in ROWS if (found := unknown_fields(row))} == {}
