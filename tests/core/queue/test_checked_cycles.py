"""Cycles in which all mechanisms meet: quotas, guarantees, loans, reservations, elastic jobs, priorities, the CPU.

Each seed is one full cluster. What its first cycle decides is carried out: jobs are told to end, and have left. Each of
the three cycles is compared with one without caches (`twin`), and what starts is counted against every limit.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import msgspec
import pytest

from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.score.fit_cache import FitCache
from dovetail.queue.backfill.advance_reservation import Window, Windows, placed
from dovetail.queue.limits.guarantees import capacity_of, loans_of, quota_of
from dovetail.queue.limits.limits import LimitGate, Takes, limits_of
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.candidates import Candidate, Leaving, Room, commit, find_room
from dovetail.queue.preemption.negative_cache import NegativeCache
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.quota_tree.tree_builder import tree_of
from dovetail.queue.verdicts import Admitted, Verdict
from tests.core.engine.builders import make_ledger
from tests.core.queue.backfill.test_backfill import HOUR, make_job
from tests.core.queue.quota_tree.builders import make_quota
from tests.core.queue.twin import CheckedCycle
from tests.seeds import seeds

TEAMS = ("vision", "speech", "search", "guest")
# The quotas that bind a job of each team, beside that of its user.
PATHS = {"vision": ("vision", "research"), "speech": ("speech", "research"), "search": ("search",), "guest": ()}
USERS = ("ada", "bob")
RULES = Rules(gap=10, min_run_seconds=0.0, per_job=1000, left=1000)


@dataclass(frozen=True, kw_only=True)
class Owned:
    """A job with who owns it."""

    job: Candidate
    team: str
    user: str
    preemptible: bool = True


@dataclass
class Scene:
    """A cluster with running and waiting jobs."""

    random: Random
    ledger: Ledger = field(default_factory=lambda: make_ledger(n=8, m=4))
    running: dict[str, Owned] = field(default_factory=dict)
    waiting: dict[str, Owned] = field(default_factory=dict)
    ends: list[Leaving] = field(default_factory=list)
    claims: dict[str, tuple[str, ...]] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()
    quotas: tuple[GPUQuota, ...] = ()
    rules: Rules = RULES
    # As in the operator, it outlives the cycles.
    negative_cache: NegativeCache = field(default_factory=NegativeCache)

    def __post_init__(self) -> None:
        random = self.random
        self.quotas = tuple(self._quotas())
        self.rules = replace(RULES, gap=random.choice([0, 10, 10]), between_quotas=random.random() < 0.5)
        while self._runs_one_more():
            pass
        for number in range(6):
            owned = self._owned(f"w{number}", at=number)
            self.waiting[owned.job.key] = owned
        self.windows = tuple(self._windows())

    def _quotas(self) -> Iterator[GPUQuota]:
        random = self.random
        some = {"limit": {"gpus": random.randint(4, 9)}} if random.random() < 0.6 else {}
        yield make_quota("research", guaranteed=random.choice([None, 4, 6, 8]), parents_only=True, **some)
        for name in ("vision", "speech"):
            own = {"limit": {"gpus": random.randint(3, 6)}} if random.random() < 0.3 else {}
            yield make_quota(name, parent="research", guaranteed=random.randint(0, 4), **own)
        yield make_quota("search", guaranteed=random.randint(0, 4))
        if random.random() < 0.6:
            most = random.choice([{"gpus": random.randint(4, 9)}, {"runningJobs": random.randint(3, 6)}])
            yield make_quota("each", per="User", users=[], limit=most)

    def _owned(self, name: str, *, at: int = 0) -> Owned:
        random, workers = self.random, self.random.choice([1, 1, 1, 2, 3])
        job = make_job(
            name,
            random.choice(["0.5", "1", "1", "2", "2", "4"]),
            hours=random.choice([None, None, 1.0, 6.0]),
            workers=workers,
            priority=random.choice([0, 10, 10, 30]),
            at=at,
        )
        job = replace(
            job,
            least=random.choice([None, None, None, 1]) if workers > 1 else None,
            cpu_in_seconds=random.choice([None] * 6 + [0.0, float("inf")]),
        )
        team = random.choice(TEAMS)
        return Owned(job=job, team=team, user=random.choice(USERS), preemptible=random.random() < 0.85)

    def _runs_one_more(self) -> bool:
        owned = self._owned(f"r{len(self.running)}")
        job = replace(owned.job, least=None, cpu_in_seconds=None, workers=1)
        found = find_room(job, ledger=self.ledger, fit_cache=FitCache(self.ledger), sites={})
        if isinstance(found, Room):
            self.ends += commit(found.claims, job=job, ledger=self.ledger)
            self.running[job.key] = replace(owned, job=job)
            self.claims[job.key] = tuple(claim.key for claim in found.claims)
        return isinstance(found, Room)

    def _windows(self) -> Iterator[Window]:
        for number in range(self.random.choice([0, 0, 1, 2])):
            start = self.random.choice([0.0, 0.5, 2.0]) * HOUR
            yield Window(
                name=f"w{number}", quota="search", at_seconds=start, until_seconds=start + HOUR, until="then",
                gpus=self.random.randint(1, 3), nodes=self.random.choice([None, ["m"]]),
            )  # fmt: skip

    # --- one cycle -----------------------------------------------------------------------------------------------

    def decide(self, told: Mapping[str, str], *, left: bool = False) -> tuple[dict[str, str], dict[str, Verdict]]:
        """One cycle: whose jobs end for whom, and the verdicts. The jobs `told` end by earlier decisions."""
        evictor = Evictor(
            running=self.as_running(told, left=left), rules=self.rules, negative_cache=self.negative_cache
        )
        look = CheckedCycle(
            self.ledger.copy(), sites={}, leaving=self.ends, gate=self.gate(gone=told if left else {}),
            evictor=evictor, windows=self.placed_windows(),
        )  # fmt: skip
        ordered = look.in_order([owned.job for owned in self.waiting.values()])
        verdicts = {job.key: look.at(job) for job in ordered}
        look.end()
        return {key: order.by.key for key, order in evictor.orders.items()}, verdicts

    def as_running(self, told: Mapping[str, str], *, left: bool) -> Sequence[Running]:
        return [
            Running(
                key=key, priority=owned.job.priority, run_seconds=100.0, claims=self.claims[key],
                preemptible=owned.preemptible, yields_to=told.get(key, ""), left=left and key in told,
            )
            for key, owned in self.running.items()
        ]  # fmt: skip

    def gate(self, *, gone: Mapping[str, str]) -> LimitGate:
        counted = [
            Counted(
                uid=owned.job.key, subject=Subject(namespace=owned.team, user=owned.user), queued=queued,
                milli=round(owned.job.gpus * 1000), preemptible=owned.preemptible, workers=owned.job.workers,
                least=owned.job.least,
            )
            for jobs, queued in ((self.running, False), (self.waiting, True))
            for owned in jobs.values()
        ]  # fmt: skip
        loans = loans_of(
            tree_of(self.quotas, capacity=capacity_of(self.ledger)), counted=counted, pods=(), recent={},
            quota_of=lambda subject: quota_of(self.quotas, subject=subject),
        )  # fmt: skip
        terms = {
            each.uid: limits_of(
                self.quotas, subject=each.subject, takes=Takes(milli=each.milli), workers=each.workers, least=each.least
            )
            for each in counted
        }
        return LimitGate(terms, running=[key for key in self.running if key not in gone], loans=loans)

    def placed_windows(self) -> Windows:
        own = {key: frozenset({"search"}) for key, owned in self.waiting.items() if owned.team == "search"}
        reservations = placed(self.windows, ledger=self.ledger, leaving=self.ends)
        return Windows(reservations=reservations, quotas_of=own, wanted=self.windows)

    # --- what is checked -----------------------------------------------------------------------------------------

    def check_limits(self, verdicts: Mapping[str, Verdict], *, gone: Mapping[str, str]) -> None:
        """What starts is within every limit."""
        before, after = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str]]()
        for key, owned in self.running.items():
            if key not in gone:
                before.update(takes(owned, milli=round(owned.job.gpus * 1000)))
        for key, verdict in verdicts.items():
            if isinstance(verdict, Admitted):
                held = sum(device.share_milli for claim in verdict.claims for device in claim.devices)
                after.update(takes(self.waiting[key], milli=held))
        for quota in self.quotas:
            limits = quota.spec.limits
            for unit, most in (("milli", limits.gpus and 1000 * limits.gpus), ("jobs", limits.running_jobs)):
                for counter, more in after.items():
                    if most is not None and counter[0] == quota.metadata.name and counter[2] == unit and more:
                        assert before[counter] + more <= most, f"{counter} has {before[counter]} and {more} of {most}"


def takes(owned: Owned, *, milli: int) -> dict[tuple[str, str, str], int]:
    """What a job takes of each quota."""
    subjects = [*((name, "") for name in PATHS[owned.team]), ("each", owned.user)]
    return {(*each, unit): amount for each in subjects for unit, amount in (("milli", milli), ("jobs", 1))}


@seeds(60)
def test_all_mechanisms_together_keep_the_limits_and_start_those_for_whom_others_end(seed: int) -> None:
    scene = Scene(random=Random(seed))
    ends, verdicts = scene.decide({})
    scene.check_limits(verdicts, gone={})
    told = dict(ends)
    ends, verdicts = scene.decide(told)
    scene.check_limits(verdicts, gone={})
    told = {key: by for key, by in ends.items() if told.get(key) == by}
    _, verdicts = scene.decide(told, left=True)
    scene.check_limits(verdicts, gone=told)
    for by in set(told.values()):
        assert isinstance(verdicts[by], Admitted), f"others have ended for {by}"


def windows_end(scene: Scene) -> None:
    scene.windows = ()


def windows_are_later(scene: Scene) -> None:
    scene.windows = tuple(replace(each, at_seconds=HOUR, until_seconds=3 * HOUR) for each in scene.windows)


def priorities_rise(scene: Scene) -> None:
    for key, owned in scene.waiting.items():
        scene.waiting[key] = replace(owned, job=replace(owned.job, priority=owned.job.priority + 30))


def limits_end(scene: Scene) -> None:
    scene.quotas = tuple(
        msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, limit=None)) for each in scene.quotas
    )


def guarantees_end(scene: Scene) -> None:
    scene.quotas = tuple(
        msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, guaranteed=None)) for each in scene.quotas
    )


def firm_jobs_may_end(scene: Scene) -> None:
    scene.running = {key: replace(owned, preemptible=True) for key, owned in scene.running.items()}


def budget_comes(scene: Scene) -> None:
    scene.rules = replace(scene.rules, left=1000)


def jobs_end(scene: Scene) -> None:
    """Every third running job ends."""
    for key in list(scene.running)[::3]:
        del scene.running[key]
        for claim in scene.claims.pop(key):
            scene.ledger.release(claim)
            scene.ends = [each for each in scene.ends if each.key != claim]


@pytest.mark.parametrize(
    "change",
    [
        windows_end, windows_are_later, priorities_rise, limits_end, guarantees_end, firm_jobs_may_end, budget_comes,
        jobs_end,
    ],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(100, 112))
def test_what_earlier_cycles_did_not_find_is_looked_for_once_it_may_be_there(
    seed: int, change: Callable[[Scene], None]
) -> None:
    scene = Scene(random=Random(seed))
    scene.rules = replace(scene.rules, gap=10, left=1 if change is budget_comes else 1000)
    scene.windows += tuple(
        Window(name=f"v-{node}", quota="search", at_seconds=0.0, until_seconds=HOUR, until="then", gpus=4, nodes=[node])
        for node in scene.random.choice(["", "m", "mn"])
    )
    scene.decide({})
    scene.decide({})
    change(scene)
    scene.decide({})
