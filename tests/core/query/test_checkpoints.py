"""Long computations of one user let those of others go first at their checkpoints, so no step of them is long."""

import sys
from collections import Counter
from random import Random

from dovetail.query.checkpoints import checking
from dovetail.query.dry_run import prepare
from tests.core.query.clusters import RandomCluster
from tests.operator_.builders import NOW

JOBS = 60


def test_each_pass_over_the_jobs_has_a_checkpoint_at_each_of_them() -> None:
    cluster, passes = RandomCluster(Random(1)), Counter[tuple[str, int]]()
    cluster.add_node("n")
    cluster.jobs += [cluster.new_job("asks", gpu="1", status={"phase": "Queued"}) for _ in range(JOBS)]

    def check() -> None:
        caller = sys._getframe(2)
        passes[caller.f_code.co_name, caller.f_lineno] += 1

    with checking(check):
        prepare(cluster.objects(), now=NOW)
    whole = Counter(name for (name, _), count in passes.items() if count >= JOBS)
    # What each requests; which are due, what counts, and what waits.
    assert (whole["_asks_of_jobs"], whole["run"]) == (1, 3)
