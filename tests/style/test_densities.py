"""What the code costs a reader stays within densities.toml, and the counts count what they say."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tools.measure import densities, journeys, modules

BUDGETS: Final[Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("densities.toml").read_text("utf-8"))

# What lists the modules behind a number.
LISTS: Final = {"homes_of_a_fact": "families", "types_of_an_answer": "families", "importers_of_one": "modules"}


def beyond(found: Mapping[str, int], *, budgets: Mapping[str, int]) -> dict[str, str]:
    """What exceeds its budget, or has none."""
    limits = {name: budgets.get(name, budgets.get("any")) for name in found}
    return {
        name: f"{count}, but {limits[name]} allowed"
        for name, count in found.items()
        if (limit := limits[name]) is None or count > limit
    }


@pytest.mark.parametrize("density", ["homes_of_a_fact", "types_of_an_answer", "importers_of_one"])
def test_a_number_stays_within_its_budget(density: str) -> None:
    found = {density: getattr(densities, density)()}
    assert beyond(found, budgets=BUDGETS) == {}, f"python -m tools.measure.{LISTS[density]} lists them"


@pytest.mark.parametrize("density", ["files_of_a_field", "modules_of_a_journey", "modules_of_a_start"])
def test_each_number_stays_within_its_budget(density: str) -> None:
    assert beyond(getattr(densities, density)(), budgets=BUDGETS[density]) == {}


def test_no_budget_is_for_what_is_gone() -> None:
    known = {"any", *densities.files_of_a_field(), *densities.PROGRAMS, *(each.name for each in journeys.JOURNEYS)}
    tables = [table for table in BUDGETS.values() if isinstance(table, dict)]
    assert [name for table in tables for name in table if name not in known] == []


def test_what_has_no_budget_is_beyond_it() -> None:
    assert beyond({"a": 1, "b": 2}, budgets={"a": 1}) == {"b": "2, but None allowed"}
    assert beyond({"a": 3, "b": 2}, budgets={"any": 2}) == {"a": "3, but 2 allowed"}


SOURCES: Final = {
    "part.a": "from part import b\nfrom part.c import name\nimport part.d\n",
    "part.b": '"""Short."""\n',
    "part.c": '"""Long."""\n' + "x = 1\n" * modules.LEAST_LINES,
    "part.d": '"""Short.\n\nA module of its own: others load it alone.\n"""\n',
    "other.e": "from part.a import name\n",
}


def test_a_module_is_thin_if_it_is_short_and_one_of_its_package_alone_imports_it() -> None:
    # `c` is long, `d` says why it is a module, and the user of `a` is of another package.
    assert modules.importers(SOURCES)["part.c"] == {"part.a"}
    assert modules.thin(SOURCES) == {"part.b": "part.a"}
    assert modules.thin(SOURCES | {"part.f": "import part.b\n"}) == {}
