"""The domains of nodes over many changes of their labels, beside the same from a plain table; copies keep their own."""

from random import Random

import pytest

from dovetail.engine.ledger.node_labels import NO_DOMAIN, NodeLabels
from dovetail.engine.model.topology import HOSTNAME

Table = dict[int, tuple[str, dict[str, str]]]
PATHS = (("zone",), ("zone", "rack"), ("rack",), ("zone", HOSTNAME), (HOSTNAME,))


def value(table: Table, row: int, *, label: str) -> str:
    name, labels = table.get(row, ("", {}))
    return labels.get(label, name if label == HOSTNAME else "")


def check(found: NodeLabels, *, table: Table) -> None:
    rows = range(max(table, default=-1) + 1)
    for path in PATHS:
        domains = found.domains(path)
        for row in rows:
            at, last = domains.of[row], value(table, row, label=path[-1])
            assert (at == NO_DOMAIN) == (last == "")
            wider = tuple(table.get(row, ("", {}))[1].get(label, "") for label in path[:-1])
            assert at == NO_DOMAIN or domains.names[at] == (*wider, last)
            assert found.values(row, labels=path) == tuple(value(table, row, label=label) for label in path)
        assert len(set(domains.names)) == len(domains.names)
        assert set(domains.of.tolist()) - {NO_DOMAIN} == set(range(len(domains.names)))
    assert found.values(len(rows) + 5, labels=("zone", "rack")) == ("", "")


@pytest.mark.parametrize("seed", range(12))
def test_nodes_with_equal_labels_are_one_domain_whatever_changes(seed: int) -> None:
    random = Random(seed)
    labels, table = NodeLabels(), dict[int, tuple[str, dict[str, str]]]()
    copies: list[tuple[NodeLabels, Table]] = []
    for _ in range(40):
        row, name = random.randrange(5), random.choice(["n1", "n2", "n3", "n1"])
        said = {label: random.choice(["a", "b"]) for label in ("zone", "rack") if random.random() < 0.7}
        if random.random() < 0.5 and row in table:
            # Another node comes into the row with the labels of the one before, or the same node again.
            said = table[row][1]
        before, version = table.get(row), labels.version
        labels.set(row, name=name, labels=said)
        table[row] = name, said
        assert (labels.version == version) == (before == (name, said))
        check(labels, table=table)
        if random.random() < 0.2:
            copies.append((labels.copy(), dict(table)))
    for copied, known in copies:
        check(copied, table=known)
