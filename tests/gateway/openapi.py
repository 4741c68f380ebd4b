"""docs/openapi.json, the document that the gateway serves: `python -m tests.gateway.openapi` writes it."""

import json
from pathlib import Path
from typing import Any, Final

from dovetail_gateway.app import Options, openapi, routes
from dovetail_gateway.routing.table import Route

PAGE: Final = Path(__file__).parents[2] / "docs" / "openapi.json"


def table() -> list[Route]:
    """The route table, whose handlers cannot run: it needs no cluster."""
    nothing: Any = None
    return routes(
        nothing,
        clients=nothing,
        reviews=nothing,
        feed=nothing,
        answers=nothing,
        sampler=nothing,
        prometheus=None,
        streams=nothing,
        options=Options(),
        now=nothing,
    )


def document() -> dict[str, Any]:
    """The document of the route table."""
    return openapi(table())


def text() -> str:
    """The document as the file has it."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
