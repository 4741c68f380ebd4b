"""A list of pods computes each node once, and leaves what its pods one by one leave."""

from typing import Any

from dovetail import names
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_bound, make_pod
from tests.extender.harness import watching

PODS = 6


def bound(name: str, *, node: str, at: int, **status: Any) -> dict[str, Any]:
    made = make_bound(make_pod(name), node=node, at=at)
    return made | {"status": made["status"] | status}


async def test_a_list_computes_each_node_once(api: ApiServer) -> None:
    async with watching(api) as before:
        await before.ready()
        alone = before.ledger.changes
    for at in range(PODS):
        api.put("pods", bound(f"p-{at}", node="ab"[at % 2], at=at))
    async with watching(api) as face:
        await face.ready()
        assert face.ledger.changes - alone == 2
        assert face.ledger.totals().promised_milli == 1000 * PODS


async def test_a_list_counts_who_is_bound_and_no_pod_that_cannot_be_read_hides_another(api: ApiServer) -> None:
    odd = bound("odd", node="a", at=1)
    odd["metadata"]["annotations"][names.ALLOCATION] = "{"
    for each in (
        bound("runs", node="a", at=0),
        bound("ended", node="a", at=2, phase="Succeeded"),
        odd,
        make_pod("waits"),
    ):
        api.put("pods", each)
    async with watching(api) as face:
        await face.ready()
        one_by_one = make_pod("later")
        api.put("pods", one_by_one)
        await face.sees("default/later")
        found = {claim.key: [device.index for device in claim.devices] for claim in face.ledger.claims()}
    assert found["uid-runs"] == [0]
    assert "uid-ended" not in found
    assert "uid-waits" not in found
