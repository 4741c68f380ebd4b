"""Runs the Python of a guide in one namespace, block after block: python -m tests.guides.notebook < blocks.json.

A block is its text, the names that it takes for granted, and the expressions to look at afterwards. For each block,
prints what it printed, its error, and each expression's value and type, as JSON.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import json
import sys
import traceback
from typing import Any

from tests.guides import given


def main() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    print(json.dumps([_run(block, namespace=namespace) for block in json.load(sys.stdin)]))


def _run(block: dict[str, Any], *, namespace: dict[str, Any]) -> dict[str, Any]:
    printed = io.StringIO()
    error = ""
    looked: dict[str, Any] = {}
    try:
        for name in block["given"]:
            namespace |= getattr(given, name)()
        with contextlib.redirect_stdout(printed):
            code = compile(block["text"], block["name"], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            made = eval(code, namespace)
            if inspect.iscoroutine(made):
                asyncio.run(made)
        looked = {text: _shown(eval(text, namespace)) for text in block["looks"]}
    except Exception:  # noqa: BLE001 - whatever a block raises is its outcome
        error = traceback.format_exc()
    return {"printed": printed.getvalue().splitlines(), "error": error, "looked": looked}


def _shown(value: Any) -> dict[str, Any]:
    kind = type(value).__name__
    if isinstance(value, list):
        kind = f"list[{'|'.join(sorted({type(each).__name__ for each in value}))}]"
    try:
        json.dumps(value)
    except TypeError:
        return {"type": kind, "value": repr(value)}
    return {"type": kind, "value": value}


if __name__ == "__main__":
    main()
