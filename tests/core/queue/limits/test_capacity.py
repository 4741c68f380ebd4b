"""How many GPUs of each model a cluster has for what its quotas guarantee."""

from dataclasses import replace

import pytest

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.quota_tree.resources import GPUS, MEMORY
from tests.core.engine.builders import add_node, make_device
from tests.core.queue.quota_tree.builders import make_quota


@pytest.fixture
def ledger() -> Ledger:
    found = Ledger()
    add_node(found, "v", gpus=4)
    add_node(found, "a", gpus=2, model="A100")
    return found


def test_a_cluster_counts_the_models_that_quotas_name(ledger: Ledger) -> None:
    quotas = Quotas(half_life_seconds=1)
    assert quotas.capacity(ledger).known == {GPUS: 6000}
    quotas.update(make_quota("vision", models={"A100": 2, "H100": 1}))
    assert quotas.capacity(ledger).known == {GPUS: 6000, "A100": 2000, "H100": 0}


def test_a_guarantee_of_a_model_holds_as_far_as_the_cluster_has_it(ledger: Ledger) -> None:
    quotas = Quotas(half_life_seconds=1)
    quotas.update(make_quota("vision", models={"A100": 2}))
    tree = quotas.tree(capacity=quotas.capacity(ledger))
    assert (tree.nodes[0].guaranteed, tree.findings) == ((2000, 2000), ())
    quotas.update(make_quota("vision", models={"A100": 3}))
    tree = quotas.tree(capacity=quotas.capacity(ledger))
    assert tree.nodes[0].guaranteed == (3000, 2000)
    assert [finding.reason for finding in tree.findings] == ["GuaranteesAboveCluster"]


def test_a_node_that_is_gone_gives_nothing(ledger: Ledger) -> None:
    quotas = Quotas(half_life_seconds=1)
    quotas.update(make_quota("vision", models={"A100": 2}))
    ledger.drop_node("a")
    assert quotas.capacity(ledger).usable == {GPUS: 4000, "A100": 0}


@pytest.mark.parametrize("field", ["guaranteed", "limit"])
def test_a_model_that_is_called_as_a_resource_takes_no_guarantee_away(ledger: Ledger, field: str) -> None:
    quotas = Quotas(half_life_seconds=1)
    quotas.update(make_quota("vision", guaranteed=3, memory="64Gi"))
    named = {"models": {"GPUs": 1, "memory": 1, "memory:": 1}}
    quotas.update(make_quota("typo", **{field: named} if field == "limit" else named))
    capacity = quotas.capacity(ledger)
    assert capacity.known[GPUS] == 6000
    assert {capacity.known[each] for each in capacity.known.keys() - {GPUS, MEMORY}} == {0}
    vision = next(node for node in quotas.tree(capacity=capacity).nodes if node.name == "vision")
    assert vision.guaranteed[:2] == (3000, 64 * 1024)


def test_mig_instances_count_by_their_slices(ledger: Ledger) -> None:
    instances = [
        replace(make_device("m", index, model="A100", healthy=index > 0), uuid=f"MIG-{index}", mig="3g.40gb")
        for index in range(2)
    ]
    add_node(ledger, "m", gpus=0)
    ledger.set_devices("m", devices=instances)
    capacity = Quotas(half_life_seconds=1).capacity(ledger)
    assert (capacity.known, capacity.usable) == ({GPUS: 6000 + 857}, {GPUS: 6000 + 428})


def test_mig_instances_count_for_their_model(ledger: Ledger) -> None:
    """A request for `3g.40gb(A100)` counts for A100 too."""
    add_node(ledger, "m", gpus=0)
    ledger.set_devices(
        "m",
        devices=[
            replace(make_device("m", index, model=model, memory_mib=40 << 10), uuid=f"MIG-{index}", mig="3g.40gb")
            for index, model in enumerate(["A100", "A100", "H100"])
        ],
    )
    quotas = Quotas(half_life_seconds=1)
    quotas.update(make_quota("vision", models={"A100": 2, "H100": 1, "V100": 1}))
    assert quotas.capacity(ledger).known == {GPUS: 6000 + 1285, "A100": 2000 + 857, "H100": 428, "V100": 4000}
