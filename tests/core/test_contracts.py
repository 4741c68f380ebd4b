"""docs/contracts.md and the code say the same, where a test can tell."""

import re
from pathlib import Path
from typing import Any, get_args

from dovetail import names
from dovetail.api.devices import AllocatedDevice
from dovetail.api.gpujob import Phase, Reason
from dovetail.api.gpunode import Assignment, Device, Enforcement, GPUNodeStatus, Links, Stranger
from dovetail.api.reasons import capacity, nodes
from dovetail.api.reasons.catalog import clauses_of
from dovetail.engine.filter.messages import need
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.model.refusals import UNRESOLVABLE, RefusalKind
from dovetail.pods.allocation import Allocation

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
SHARED_NAMES = sorted(
    value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str) and "dovetail.dev/" in value
)


def sentence_with(start: str) -> str:
    found = re.search(rf"^{re.escape(start)}.*(?:\n(?!\*\*|\n|#).*)*", TEXT, flags=re.MULTILINE)
    assert found is not None, start
    return found[0]


def wire_names(kind: Any) -> list[str]:
    return list(kind.__struct_encode_fields__)


def test_every_shared_name_stands_in_the_contract() -> None:
    assert [name for name in SHARED_NAMES if name not in TEXT and name != names.API_VERSION] == []


def test_the_phases_are_those_of_the_contract() -> None:
    listed = re.search(r"\*\*Phases\*\* of a GPUJob: ([\w, ]+)\.", TEXT)
    assert listed is not None
    assert tuple(listed[1].split(", ")) == get_args(Phase)


def test_the_refusals_and_their_lists_are_those_of_the_contract() -> None:
    listed = re.search(
        r"\(closed\): ([\w, ]+) → FailedAndUnresolvableNodes; ([\w, ]+) → FailedNodes",
        sentence_with("**Node refusals**"),
    )
    assert listed is not None
    unresolvable, resolvable = (set(part.split(", ")) for part in listed.groups())
    assert unresolvable == UNRESOLVABLE
    assert resolvable == set(get_args(RefusalKind)) - UNRESOLVABLE


def test_every_reason_of_a_shortage_is_in_the_closed_set() -> None:
    told = {each.reason.code for each in (*clauses_of(capacity), *clauses_of(nodes)) if each.reason is not None}
    assert told == {"ExceedsCapacity", "Fragmentation", "MemoryGuard", "NodeUnhealthy", "Resources"}
    assert told <= set(get_args(Reason))
    assert Shortage.__annotations__["reason"] == Reason
    for reason in told:
        assert reason in sentence_with("**Node refusals**")


def test_the_fields_of_a_report_stand_in_the_contract() -> None:
    listed = sentence_with("**GPUNode.status**")
    for field in [
        *wire_names(GPUNodeStatus),
        *wire_names(Device),
        *wire_names(Enforcement),
        *wire_names(Links),
        *wire_names(Assignment),
        *wire_names(Stranger),
    ]:
        assert re.search(rf"\b{field}\b", listed), field


def test_the_fields_of_an_allocation_stand_in_the_contract() -> None:
    listed = next(line for line in TEXT.splitlines() if "dovetail.dev/allocation` (JSON" in line)
    for field in [*wire_names(AllocatedDevice), "version", "node", "mode", "guardFraction", "workload", "movable"]:
        assert re.search(rf"\b{field}\b", listed), field
    assert {"version", "node", "mode"} <= set(wire_names(Allocation))


def test_the_sentence_is_that_of_the_contract() -> None:
    assert f"`{need(4, available=1)}`" in sentence_with("**Sentence**")


def test_no_folder_named_operator_hides_the_standard_librarys() -> None:
    assert [path for path in ROOT.glob("**/operator/__init__.py") if ".venv" not in path.parts] == []


def test_every_folder_of_tests_is_a_package_and_tests_live_nowhere_else() -> None:
    for path in (ROOT / "tests").glob("**/test_*.py"):
        assert (path.parent / "__init__.py").exists(), path.parent
    strays = [
        path
        for path in ROOT.glob("*/**/test_*.py")
        # A module that scripts import is called like a test.
        if path.relative_to(ROOT).parts[0] not in {"tests", ".venv", "build"} and path.parent.name != "legacy"
    ]
    assert strays == []
