"""At which level a gang would start now, where the level that it requires has no room."""

from dovetail.answers.explain.question import Question
from dovetail.answers.explain.relaxations import wider_topology
from dovetail.cluster.view import ClusterView
from tests.core.builders import make_node
from tests.core.engine.builders import hold_devices
from tests.core.engine.gang.topologies import gang, make_racks


def told(*, zones: int, required: str = "rack", workers: int = 2) -> list[str]:
    ledger = make_racks(2, 2, zones=zones)
    for zone in range(zones):
        for rack in range(2):
            name = f"z{zone}-r{rack}-n0" if zones > 1 else f"r{rack}-n0"
            hold_devices(ledger, name, *range(8))
    view = ClusterView(ledger=ledger)
    view.nodes = {name: make_node(name) for name in ledger.nodes()}
    found = wider_topology(Question(view=view, ask=gang("8", required=required), workers=workers))
    return [change.text for change in found]


def test_the_narrowest_level_with_room_is_named() -> None:
    assert told(zones=1) == ["require zone instead of rack: starts now on r0-n1,r1-n1"]


def test_without_such_a_level_the_required_one_could_be_preferred() -> None:
    found = told(zones=2, workers=4)
    assert found == ["prefer rack instead of requiring it: starts now on z0-r0-n1,z0-r1-n1,z1-r0-n1,z1-r1-n1"]


def test_nothing_is_said_where_the_cluster_is_too_full() -> None:
    assert told(zones=1, workers=3) == []


def test_a_gang_without_a_required_level_has_no_wider_one() -> None:
    assert told(zones=1, required="") == []
