"""Which jobs a guarantee covers, and which it can spare."""

from dovetail.queue.quota_tree.resources import MEMORY
from tests.core.queue.quota_tree.builders import make_loans, make_quota


def test_a_job_that_ended_never_takes_it_back_where_nothing_is_guaranteed() -> None:
    """Departments whose only project guarantees no memory: neither covers a job, and neither is a false owner."""
    quotas = (
        make_quota("left", parents_only=True),
        make_quota("right", parents_only=True),
        make_quota("l", parent="left", memory="0"),
        make_quota("r", parent="right", memory="0"),
    )
    loans = make_loans(*quotas, gpus=8, running={"x": ("r", 8)}, waiting={"y": ("l", 8)})
    assert loans.tree.nodes[loans.tree.by_name["left"]].guaranteed == (None, 0)
    assert loans.tree.resources[1] == MEMORY
    assert loans.owner("y") is None


def test_memory_alone_does_not_cover_a_job_without_memory() -> None:
    loans = make_loans(
        make_quota("vision", memory="160Gi"), gpus=8, running={}, waiting={"x": ("vision", 1)}, gib={"x": 0}
    )
    assert loans.owner("x") is None
