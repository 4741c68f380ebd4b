"""Whether a plan keeps the rules of its gang: a second, plain reading of them over the nodes' labels."""

from collections import Counter
from collections.abc import Sequence

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.topology import Topology


def assert_kept(claims: Sequence[Claim], *, topology: Topology, ledger: Ledger) -> None:
    """All workers in one domain of the required level, each group in one of its own, and spread as asked."""
    nodes = [claim.node for claim in claims]

    def domains(level: str, *, of: Sequence[str]) -> set[tuple[str, ...]]:
        found = {ledger.place_of(node, labels=topology.path(level)) for node in of}
        assert all(domain[-1] for domain in found), "a node without the label is in no domain"
        return found

    if topology.required:
        assert len(domains(topology.required, of=nodes)) == 1
    for first in range(0, len(nodes), topology.group_size or len(nodes) or 1):
        if topology.group_size:
            group = nodes[first : first + topology.group_size]
            assert len(group) == topology.group_size
            assert len(domains(topology.group_level, of=group)) == 1
    for spread in topology.spreads:
        counts = Counter(ledger.place_of(node, labels=[spread.label])[0] for node in nodes)
        if spread.max_skew:
            assert max(counts.values()) - min(counts.values()) <= spread.max_skew
        if spread.most:
            assert all(count <= spread.most for value, count in counts.items() if value)


def assert_not_beyond(claims: Sequence[Claim], *, ledger: Ledger) -> None:
    """The ledger has all that the plan promises: no device and no host is used beyond itself."""
    copy = ledger.copy()
    copy.commit_all(claims)
    columns = copy.columns(copy.nodes())
    before = ledger.columns(ledger.nodes())
    assert (columns.share_left >= 0)[columns.present].all()
    assert (columns.cpu_free >= before.cpu_free.clip(max=0)).all()
    assert (columns.pods_free >= before.pods_free.clip(max=0)).all()
    exclusive = [device.uuid for claim in claims if claim.mode == "Exclusive" for device in claim.devices]
    assert len(exclusive) == len(set(exclusive))
