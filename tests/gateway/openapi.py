"""docs/openapi.json, the document that the gateway serves: `python -m tests.gateway.openapi` writes it."""

import json
from pathlib import Path
from typing import Any, Final

from dovetail_gateway.app import Options, openapi, routes

PAGE: Final = Path(__file__).parents[2] / "docs" / "openapi.json"


def document() -> dict[str, Any]:
    """The document of the route table, which needs no cluster."""
    nothing: Any = None
    return openapi(routes(nothing, clients=nothing, reviews=nothing, feed=nothing, options=Options(), now=nothing))


def text() -> str:
    """The document as the file has it."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
