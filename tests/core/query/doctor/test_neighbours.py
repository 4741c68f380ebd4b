"""What the doctor says of other systems that place GPU work in the cluster."""

from typing import Any

import msgspec
import pytest

from dovetail.answers.doctor import CheckResult
from dovetail.query.doctor import diagnosis
from dovetail.query.doctor.neighbours import NEIGHBOURS
from tests.core.query.doctor.test_diagnosis import FORBIDDEN, node, picture


def found(*, only: str | None = None, **changes: Any) -> list[CheckResult]:
    return [each for each in diagnosis.judge(picture(**changes), node=only) if each.check == "neighbour"]


def hami(name: str, *, managed: bool, **capacity: str) -> Any:
    plain = node(name, managed=managed, **capacity)
    metadata = msgspec.structs.replace(plain.metadata, annotations={"hami.io/node-nvidia-register": "[]"})
    return msgspec.structs.replace(plain, metadata=metadata)


def test_a_cluster_without_neighbours_has_no_note() -> None:
    assert found() == []


@pytest.mark.parametrize("neighbour", NEIGHBOURS, ids=lambda each: each.name)
def test_an_installed_neighbour_is_a_note_with_its_page(neighbour: Any) -> None:
    (note,) = found(neighbours=frozenset({neighbour.crd}))
    assert (note.level, note.subject) == ("ok", neighbour.name)
    assert note.message.endswith(f"({neighbour.page})")
    assert found(neighbours=frozenset({neighbour.crd}), only="a") == []


def test_neighbours_that_may_not_be_read_are_said_once() -> None:
    assert [each.level for each in found(neighbours=FORBIDDEN)] == ["unknown"]


def test_hami_on_a_managed_node_is_an_error_with_the_command() -> None:
    (error,) = found(nodes=[hami("h", managed=True), node("a")])
    assert error.level == "error"
    assert error.message == "it hands out the devices of h too: each may promise what the other has given"
    assert "kubectl label node h dovetail.dev/managed-" in error.fix


def test_hami_under_a_resource_that_dovetail_counts_is_a_warning() -> None:
    (warning,) = found(nodes=[hami("h", managed=False, nvidia_com__gpu="80")])
    assert warning.level == "warning"
    assert warning.message.startswith("on h it advertises nvidia.com/gpu several times for each device")


def test_hami_under_a_resource_of_its_own_is_a_note() -> None:
    (note,) = found(nodes=[hami("h", managed=False, hami_io__gpu="80"), node("a")])
    assert (note.level, note.message) == ("ok", "it hands out the devices of h, which Dovetail does not use")
