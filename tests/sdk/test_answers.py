"""The SDK reads each answer as the type that the gateway's route declares for it."""

import re
from inspect import isfunction, signature
from typing import Any

import pytest

from dovetail.sdk.calls import v1, v2, v3
from tests.gateway.openapi import table

CALLS = [
    function
    for module in (v1, v2, v3)
    for name, function in vars(module).items()
    if isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
]
# What is part of a path; everything else may be any text.
VALUES = {"framework": "pytorch", "kind": "training"}
# Answers that the SDK hands on as they are.
AS_THEY_ARE: tuple[Any, ...] = (dict[str, Any], str)


def types_of(method: str, *, path: str) -> list[Any]:
    """What the route of a request answers."""
    found = [
        route
        for route in table()
        if route.method == method and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", route.path), path)
    ]
    assert len(found) == 1, f"{method} {path} has {len(found)} routes"
    return list(found[0].answers.values())


@pytest.mark.parametrize("function", CALLS, ids=lambda each: f"{each.__module__.rpartition('.')[2]}.{each.__name__}")
def test_a_call_reads_what_its_route_answers(function: Any) -> None:
    call = function(**{name: VALUES.get(name, "x") for name in signature(function).parameters})
    assert call.as_type in (*types_of(call.method, path=call.path), *AS_THEY_ARE)
