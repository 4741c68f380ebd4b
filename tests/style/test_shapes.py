"""Docstrings of functions with arrays state the shapes."""

from pathlib import Path

import pytest

from tests.style.shapes import ROOT, functions, in_source


def test_every_public_function_with_arrays_states_their_shapes() -> None:
    missing = [f"{each.path.relative_to(ROOT)}:{each.line}: {each.name}" for each in functions() if not each.has_shape]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("docstring", "has_shape"),
    [
        ("The free memory of each node in MiB, [n].", True),
        ("The share of each device, [nodes, devices].", True),
        ("By milli, [1001, ...].", True),
        ("The free memory in MiB.", False),
        ("A Sequence[str] of names.", False),
    ],
)
def test_a_shape_is_in_brackets_and_no_parameter_of_a_type(docstring: str, *, has_shape: bool) -> None:
    source = f'def free(rows: Ints) -> Floats:\n    """{docstring}"""\n'
    assert [each.has_shape for each in in_source(source, path=Path("a.py"))] == [has_shape]


def test_private_functions_and_those_without_arrays_do_not_count() -> None:
    private = "def _free(rows: Ints) -> Floats: ...\nclass _A:\n    def b(self) -> Ints: ...\n"
    source = f"{private}def free(rows: int) -> float: ...\n"
    assert list(in_source(source, path=Path("a.py"))) == []


def test_the_docstring_of_a_class_counts_for_its_constructor() -> None:
    source = 'class A:\n    """From sums [n]."""\n    def __init__(self, sums: Floats) -> None: ...\n'
    assert [(each.name, each.has_shape) for each in in_source(source, path=Path("a.py"))] == [("A.__init__", True)]
