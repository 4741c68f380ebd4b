"""After each input of a search for victims has changed, a search that failed before is made again."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest

from dovetail.queue.limits.guarantees import loans_of, quota_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.quota_tree.loans import Loans
from tests.core.engine.builders import hold_devices, make_ask, make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.preemption.test_policy import BOSS, start
from tests.core.queue.quota_tree.builders import make_quota, make_tree


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The boss starts if two jobs of two GPUs each end, on nodes of four GPUs. Each field says what it takes.

    gpus: by node.
    taken: devices of the node m that a pod has which stays.
    jobs: facts of both jobs.
    guaranteed: GPUs of the quota of both jobs, that of the boss has four; None without quotas.
    more: GPUs of another job of their quota, which is on no node.
    """

    gpus: Mapping[str, int] = field(default_factory=lambda: {"m": 4})
    taken: int = 0
    jobs: Mapping[str, Any] = field(default_factory=dict)
    boss: Mapping[str, Any] = field(default_factory=dict)
    rules: Mapping[str, Any] = field(default_factory=dict)
    allowed: int = 2
    nodes: tuple[str, ...] = ("m",)
    guaranteed: int | None = None
    more: int = 0

    def orders(self, negative_cache: NegativeCache) -> set[str]:
        ledger = make_ledger(**self.gpus)
        running = [start(ledger, make_job(name, "2"), **self.jobs) for name in "ab"]
        if self.taken:
            hold_devices(ledger, "m", *range(4, 4 + self.taken), key="stays")
        rules = Rules(gap=10, left=2, between_quotas=self.guaranteed is not None)
        evictor = Evictor(
            running=running, rules=replace(rules, **self.rules), negative_cache=negative_cache,
            allowed={"team/web": self.allowed}, loans=self._loans(running),
        )  # fmt: skip
        boss = replace(BOSS, **self.boss)
        evictor.preempt(boss, ledger=ledger, sites={"some": self.nodes}, otherwise=None)
        return set(evictor.orders)

    def _loans(self, running: list[Running]) -> Loans | None:
        if self.guaranteed is None:
            return None
        quotas = [make_quota("a", guaranteed=4), make_quota("b", guaranteed=self.guaranteed)]
        jobs = [(each.key, "b", 2, False) for each in running]
        jobs += [("more", "b", self.more, False), (BOSS.key, "a", 4, True)]
        counted = [
            Counted(
                uid=uid, subject=Subject(namespace=of, user="ada"), milli=1000 * gpus, queued=queued, preemptible=True
            )
            for uid, of, gpus, queued in jobs
        ]
        tree = make_tree(*quotas, gpus=16)
        return loans_of(
            tree, counted=counted, pods=(), recent={}, quota_of=lambda subject: quota_of(quotas, subject=subject)
        )


COVERED: Final = {"covered_pods": {"team/web": 1}}
# Before the change, which keeps the boss waiting, and after it.
CASES: Final = {
    "a budget has room for two": (Inputs(jobs=COVERED, allowed=1), Inputs(jobs=COVERED)),
    "less of each job is covered": (Inputs(jobs={"covered_pods": {"team/web": 2}}), Inputs(jobs=COVERED)),
    "both are covered no more": (Inputs(jobs=COVERED, allowed=1), Inputs(allowed=1)),
    "the guarantee falls": (Inputs(guaranteed=1), Inputs(guaranteed=0)),
    "their quota uses more": (Inputs(guaranteed=4, more=2), Inputs(guaranteed=4, more=4)),
    "priority counts between quotas": (
        Inputs(guaranteed=0, rules={"between_quotas": False, "left": 1}), Inputs(guaranteed=0),
    ),
    "an hour is over": (Inputs(rules={"left": 1}), Inputs()),
    "the gap falls": (Inputs(rules={"gap": 45}), Inputs()),
    "both have run long enough": (Inputs(jobs={"run_seconds": 299.0}), Inputs(jobs={"run_seconds": 300.0})),
    "more preemptions of a job count": (
        Inputs(jobs={"preempted": 3}), Inputs(jobs={"preempted": 3}, rules={"per_job": 4}),
    ),
    "both may be ended": (Inputs(jobs={"preemptible": False}), Inputs()),
    "the boss may go to their node": (
        Inputs(gpus={"m": 4, "o": 1}, boss={"site": "some"}, nodes=("o",)),
        Inputs(gpus={"m": 4, "o": 1}, boss={"site": "some"}),
    ),
    "the boss may go anywhere": (
        Inputs(gpus={"m": 4, "o": 1}, boss={"site": "some"}, nodes=("o",)), Inputs(gpus={"m": 4, "o": 1}),
    ),
    "it asks for less": (Inputs(boss={"ask": make_ask("6")}), Inputs()),
    "it has fewer workers": (Inputs(boss={"workers": 2}), Inputs()),
    "its priority rises": (Inputs(boss={"priority": 15}), Inputs()),
    "it may preempt": (Inputs(boss={"may_preempt": False}), Inputs()),
    "a pod ends": (
        Inputs(gpus={"m": 6}, taken=2, boss={"ask": make_ask("6")}), Inputs(gpus={"m": 6}, boss={"ask": make_ask("6")}),
    ),
    "their node grows": (Inputs(boss={"ask": make_ask("6")}), Inputs(gpus={"m": 6}, boss={"ask": make_ask("6")})),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_search_that_failed_is_made_again_once_it_may_succeed(case: str) -> None:
    before, after = CASES[case]
    negative_cache = NegativeCache()
    for _ in range(2):
        assert before.orders(negative_cache) == set()
    assert after.orders(negative_cache) == {"uid-a", "uid-b"}
    assert before.orders(negative_cache) == set()
