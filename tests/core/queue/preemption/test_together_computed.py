"""Who may end together, computed one after the other, and what a search that failed is remembered by.

A search that is known to have failed is not made again. So two states of the quotas that look alike to it have to allow
the same ends.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

import pytest

from dovetail.queue.limits.guarantees import loans_of, quota_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.preemption.together import guarantees_of, without
from dovetail.queue.preemption.victims import Running
from dovetail.queue.quota_tree.loans import Loans
from tests.core.queue.quota_tree.builders import make_quota, make_tree

# The parent of each quota; jobs of "guest" are in none.
PARENTS: Final = {"a": "top", "b": "top", "c": ""}
PLACES: Final = (*PARENTS, "guest")
BOSS: Final = "boss"

# What a job has: its namespace, its GPUs, and whether it may be ended.
Job = tuple[str, int, bool]


def state(guaranteed: Mapping[str, int], *, running: Mapping[str, Job], boss: Job) -> Loans:
    quotas = (
        make_quota("top", guaranteed=guaranteed["top"], parents_only=True),
        *(make_quota(name, guaranteed=guaranteed[name], parent=above) for name, above in PARENTS.items()),
    )
    jobs = [(uid, job, False) for uid, job in running.items()] + [(BOSS, boss, True)]
    return loans_of(
        make_tree(*quotas, gpus=24),
        counted=[
            Counted(
                uid=uid, subject=Subject(namespace=namespace, user="ada"), milli=1000 * gpus, queued=queued,
                preemptible=may_end,
            )
            for uid, (namespace, gpus, may_end), queued in jobs
        ],
        pods=(), recent={}, quota_of=lambda subject: quota_of(quotas, subject=subject),
    )  # fmt: skip


def may_end_one_by_one(
    victims: list[str], *, guaranteed: Mapping[str, int], running: Mapping[str, Job], boss: Job, owner: str
) -> list[str]:
    """Those that leave each of their quotas its guarantee, from the sums of who is left; `owner` covers the boss."""
    left, found = dict(running), list[str]()
    above = path(boss[0])
    within = above[: above.index(owner) + 1]
    for uid in victims:
        namespace, gpus, may_end = running[uid]
        common = next((name for name in path(namespace) if name in above), None)
        losing = path(namespace) if common is None else path(namespace)[: path(namespace).index(common)]
        used = {name: sum(job[1] for job in left.values() if name in path(job[0])) for name in losing}
        if may_end and common not in within and all(used[name] - gpus >= guaranteed[name] for name in losing):
            found.append(uid)
            del left[uid]
    return found


def path(namespace: str) -> list[str]:
    """The quotas of a namespace, from its own one up."""
    return [name for name in (namespace, PARENTS.get(namespace, "")) if name and name != "guest"]


@pytest.mark.parametrize("seed", range(6))
def test_states_of_quotas_that_look_alike_to_a_search_allow_the_same_ends(seed: int) -> None:
    random = Random(seed)
    for _ in range(25):
        walk(random)


def walk(random: Random) -> None:
    """The same victims and the same boss, while other jobs come and go and guarantees change."""
    guaranteed = {name: random.randint(0, 4) for name in PARENTS}
    guaranteed["top"] = guaranteed["a"] + guaranteed["b"] + random.randint(0, 2)
    running = {f"job-{at}": (random.choice(PLACES), random.randint(1, 3), random.random() < 0.9) for at in range(6)}
    victims, boss = sorted(running)[:4], (random.choice("abc"), random.randint(1, 3), True)
    owner = random.choice(path(boss[0]))
    seen: dict[object, list[str]] = {}
    for step in range(6):
        loans = state(guaranteed, running=running, boss=boss)
        at = loans.tree.by_name[owner]
        before = [list(loans.used(each)) for each in range(len(loans.tree.nodes))]
        runs = [Running(key=uid, priority=0, run_seconds=600.0, claims=(uid,)) for uid in victims]
        key = guarantees_of(runs, loans=loans, job=BOSS)
        with without(
            runs, loans=loans, may_end=lambda each, loans=loans, at=at: loans.gives_back(each.key, to=BOSS, owner=at)
        ) as ended:
            found = [each.key for each in ended]
        assert found == may_end_one_by_one(victims, guaranteed=guaranteed, running=running, boss=boss, owner=owner)
        assert [list(loans.used(each)) for each in range(len(loans.tree.nodes))] == before
        assert seen.setdefault(key, found) == found
        change(random, guaranteed=guaranteed, running=running, kept=victims, step=step)


def change(random: Random, *, guaranteed: dict[str, int], running: dict[str, Job], kept: list[str], step: int) -> None:
    others = sorted(running.keys() - set(kept))
    what = random.choice(["come", "go", "guarantee", "size"])
    if what == "come":
        running[f"more-{step}"] = (random.choice(PLACES), random.randint(1, 3), True)
    elif what == "go" and others:
        del running[random.choice(others)]
    elif what == "guarantee":
        name = random.choice(sorted(PARENTS))
        guaranteed[name] = random.randint(0, 4)
        guaranteed["top"] = guaranteed["a"] + guaranteed["b"] + random.randint(0, 2)
    elif what == "size":
        uid = random.choice(kept)
        namespace, _, may_end = running[uid]
        running[uid] = (namespace, random.randint(1, 3), may_end)
