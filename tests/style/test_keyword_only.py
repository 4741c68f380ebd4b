"""A function's parameters are keyword-only from the second one on, except where its caller has no names for them."""

import ast
from itertools import chain

import pytest

from tests.style.keyword_only import PARTS, POSITIONAL, ROOT, found, functions, takes_a_second_by_position

ALLOWED = set(chain.from_iterable(POSITIONAL.values()))


@pytest.mark.parametrize("part", PARTS)
def test_a_second_parameter_is_passed_by_name(part: str) -> None:
    others = {name: places for name, places in found(ROOT / part).items() if name not in ALLOWED}
    assert not others, "write `*, ` before the second parameter; CONTRIBUTING.md has the rule"


def test_each_exception_is_used() -> None:
    names = set(chain.from_iterable(found(ROOT / part) for part in PARTS))
    assert names >= ALLOWED, "an exception that no function needs is removed from POSITIONAL"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b): ...", True),
        ("def f(a, *, b): ...", False),
        ("def f(a, b, *rest): ...", False),
        ("class C:\n    def f(self, a): ...", False),
        ("class C:\n    def f(self, a, b): ...", True),
        ("class C:\n    @staticmethod\n    def f(a, b): ...", True),
        ("class C:\n    def __init__(self, a, b): ...", True),
        ("class C:\n    def __eq__(self, a, b): ...", False),
        ("@lru_cache(maxsize=1)\ndef f(a, b): ...", False),
    ],
)
def test_what_counts_as_a_second_parameter_by_position(source: str, *, expected: bool) -> None:
    [(function, method)] = functions(ast.parse(source))
    assert takes_a_second_by_position(function, method=method) is expected
