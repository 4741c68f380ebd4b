"""The audit of objects that were read, and its repetition."""

from dovetail.answers.questions import Audit, Finding, FindingKind
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings
from dovetail.query.audit import audit_of, confirmed, is_final, proven_by
from tests.cli.builders import make_gpunode, make_node, make_pod


def report(*kinds: FindingKind) -> Audit:
    items = [Finding(kind=kind, subject="a/0", message="") for kind in kinds]
    return Audit(pods=1, devices=1, findings=len(items), items=items, notes=[])


def shared(*shares_milli: int, settings: Settings) -> ClusterObjects:
    pods = [
        make_pod(f"p{share}", held=((0, share, 9000),), mode="Fractional", request=f"0.{share // 100}")
        for share in shares_milli
    ]
    return ClusterObjects(
        nodes=[make_node("a")], gpunodes=[make_gpunode("a", memory_mib=20000)], pods=pods, jobs=[], settings=settings
    )


def test_the_configuration_says_how_much_memory_may_be_promised() -> None:
    found = audit_of(shared(400, 500, settings=Settings(memory_guard="Conservative")))
    assert "MemoryOverpromised" in {finding.kind for finding in found.items}
    found = audit_of(shared(400, 500, settings=Settings(memory_guard="Aggressive")))
    assert "MemoryOverpromised" not in {finding.kind for finding in found.items}


def test_a_lagging_status_is_a_finding_only_if_it_lasts() -> None:
    first = report("AllocationWithoutPod", "NotSole")
    assert (is_final(first), is_final(report("NotSole"))) == (False, True)
    assert confirmed(first, again=report()) == report("NotSole")
    assert confirmed(first, again=first) == first
    assert confirmed(first, again=report("MemoryOverpromised")) == report("NotSole"), "something else is wrong by then"


def test_one_look_proves_what_no_delay_explains() -> None:
    assert proven_by(report("NotSole", "AllocationWithoutPod", "HoldsMoreThanAsked")) == report("NotSole")
