"""Levels of quotas and the turns of their jobs, computed again from the quotas' names, one job after the other."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.queue.limits.guarantees import loans_of, quota_of, recent_shares
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.turns import in_turn
from tests.core.engine.builders import make_ask
from tests.core.queue.quota_tree.builders import make_quota, make_tree
from tests.seeds import seeds

GPUS: Final = 13
HALF_LIFE_SECONDS: Final = 86_400.0
# By name: the quota above it. Jobs count for the lowest ones, and one team has no quota.
PARENTS: Final = {
    "physics": "", "biology": "", "optics": "physics", "quanta": "physics", "genes": "biology", "cells": "biology",
    "lasers": "optics",
}  # fmt: skip
TEAMS: Final = ("quanta", "genes", "cells", "lasers", "guest")
BEYOND: Final = 1 << 10


@dataclass
class Departments:
    """A tree of quotas, running and waiting jobs by team, and recent use."""

    random: Random
    guaranteed: dict[str, int] = field(default_factory=dict)
    shares: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    recent: dict[str, float] = field(default_factory=dict)
    waiting: list[Candidate] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = self.random
        self.guaranteed = {name: random.choice([0, 0, 1, 2]) for name in PARENTS}
        # A quota guarantees at least what is guaranteed below it.
        for name in ("optics", "physics", "biology"):
            below = sum(self.guaranteed[each] for each, parent in PARENTS.items() if parent == name)
            self.guaranteed[name] = below + random.choice([0, 0, 1])
        self.shares = {name: random.choice([1, 1, 2, 3]) for name in PARENTS}
        self.used = {team: random.choice([0, 0, 500, 1000, 2000]) for team in TEAMS}
        # A quota between two others may have had jobs of its own.
        self.recent = {name: random.choice([0.0, 3600.0, 400_000.0, 3_000_000.0]) for name in PARENTS}
        self.waiting = [self._job(number) for number in range(random.randint(2, 9))]

    def _job(self, number: int) -> Candidate:
        team = self.random.choice(TEAMS)
        return Candidate(
            key=f"uid-{number}", ask=make_ask(self.random.choice(["0.5", "1", "2"])), workers=1,
            created=f"{self.random.randint(0, 3):03d}", number=number, name=f"{team}/{number}",
            share=self.random.choice([0.0, 1.0]),
        )  # fmt: skip

    def quotas(self) -> list[GPUQuota]:
        return [
            make_quota(
                name, guaranteed=self.guaranteed[name], parent=PARENTS[name] or None, shares=self.shares[name],
                parents_only=name not in TEAMS,
            )
            for name in PARENTS
        ]  # fmt: skip

    def loans(self) -> Loans:
        quotas = self.quotas()
        tree = make_tree(*quotas, gpus=GPUS)
        counted = [
            *(Counted(uid=team, subject=_of(team), milli=milli, queued=False) for team, milli in self.used.items()),
            *(
                Counted(uid=job.key, subject=_of(_team(job)), milli=round(job.gpus * 1000), queued=True)
                for job in self.waiting
            ),
        ]
        accounts = {(name, ""): gpu_seconds for name, gpu_seconds in self.recent.items()}
        recent = recent_shares(accounts, tree=tree, half_life_seconds=HALF_LIFE_SECONDS)
        return loans_of(
            tree, counted=counted, pods=(), quota_of=lambda subject: quota_of(quotas, subject=subject), recent=recent
        )

    # --- computed again ------------------------------------------------------------------------------------------

    def used_below(self, name: str, *, more: dict[str, int]) -> int:
        """What the quota and all below it use, with the jobs that had `more` turns."""
        own = self.used.get(name, 0) + more.get(name, 0)
        return own + sum(self.used_below(each, more=more) for each, parent in PARENTS.items() if parent == name)

    def recent_below(self, name: str) -> float:
        return self.recent[name] + sum(self.recent_below(each) for each, parent in PARENTS.items() if parent == name)

    def level(self, name: str, *, more: dict[str, int]) -> float:
        """The part of the cluster beyond the guarantee, and what a use for ever at the recent rate would be."""
        beyond = max(0, self.used_below(name, more=more) - 1000 * self.guaranteed[name]) / (1000 * GPUS)
        recent = self.recent_below(name) / (GPUS * HALF_LIFE_SECONDS / math.log(2))
        return (beyond + recent) / self.shares[name]

    def turns(self) -> Iterator[str]:
        """The keys of the waiting jobs in their turns."""
        lines: dict[str, list[Candidate]] = {team: [] for team in TEAMS}
        owners: dict[str, list[Candidate]] = {team: [] for team in TEAMS}
        left = {team: 1000 * self.guaranteed.get(team, 0) - self.used_below(team, more={}) for team in TEAMS}
        for job in self.waiting:
            milli, team = round(job.gpus * 1000), _team(job)
            within = team != "guest" and milli <= left[team]
            (owners if within else lines)[team].append(job)
            left[team] -= milli if within else 0
        places = [(job.created, job.number, job.name, team) for team, jobs in owners.items() for job in jobs]
        for *_, team in sorted(places):
            yield owners[team].pop(0).key
        more: dict[str, int] = {}
        while heads := [jobs[0] for jobs in lines.values() if jobs]:
            first = min(heads, key=lambda job: self._turn(job, more=more))
            team = _team(first)
            lines[team].pop(0)
            more[team] = more.get(team, 0) + round(first.gpus * 1000)
            yield first.key

    def _turn(self, job: Candidate, *, more: dict[str, int]) -> tuple[object, ...]:
        age, path = (job.share, job.created, job.number), list(_path(_team(job)))
        if not path:
            used = self.used["guest"] + more.get("guest", 0)
            return (BEYOND, (_stepped(used / (1000 * GPUS)),), *age)
        milli = round(job.gpus * 1000)
        covering = (
            depth
            for depth, name in enumerate(path)
            if self.used_below(name, more=more) + milli <= 1000 * self.guaranteed[name]
        )
        levels = tuple(_stepped(self.level(name, more=more)) for name in reversed(path))
        return (next(covering, BEYOND), levels, *age)


def _of(team: str) -> Subject:
    return Subject(namespace=team, user="ada")


def _team(job: Candidate) -> str:
    return job.name.partition("/")[0]


def _path(name: str) -> Iterator[str]:
    while PARENTS.get(name) is not None:
        yield name
        name = PARENTS[name]


def _stepped(level: float) -> int:
    return int(level / 0.005)


@seeds(150)
def test_levels_and_turns_are_those_of_the_quotas_and_all_below_them(seed: int) -> None:
    scene = Departments(Random(seed))
    loans = scene.loans()
    for at, node in enumerate(loans.tree.nodes):
        assert loans.used(at)[0] == scene.used_below(node.name, more={}), node.name
        assert loans.level(at) == pytest.approx(scene.level(node.name, more={})), node.name
    assert [job.key for job in in_turn(scene.waiting, loans=loans)] == list(scene.turns())
