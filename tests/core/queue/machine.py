"""What the state machines over the queue share: jobs that wait, and who of those that run holds what since when."""

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dovetail.engine.model.claims import Claim
from dovetail.engine.score.live_fragmentation import price_by
from dovetail.queue.cycle import SchedulingCycle
from dovetail.queue.model.candidates import Candidate, Leaving, order
from dovetail.queue.preemption.policy import Running
from dovetail.queue.verdicts import Admitted, Waits
from tests.core.engine.builders import make_ledger
from tests.core.engine.score.test_live_fragmentation import fragments_on

HOUR = 3600.0
# What a job without a time limit is taken to run.
GUESS = 6 * HOUR
NODES = {"a": 4, "b": 2}
# The mix by which plans are priced.
MIX = ("0.5", "0.5", "1", "1", "2", "4")


@dataclass(frozen=True, kw_only=True)
class Run:
    """A job that runs, since then, on what it was given."""

    job: Candidate
    since: float
    claims: tuple[Claim, ...]

    @property
    def end(self) -> float:
        """When it ends by its limit, or is guessed to."""
        return self.since + self.job.run_seconds

    @property
    def milli(self) -> int:
        """Thousandths of GPUs that it holds."""
        return sum(device.share_milli for claim in self.claims for device in claim.devices)


class QueueMachine(RuleBasedStateMachine):
    """Every admitted job runs at once where the queue found room for it. `look` is one look at the queue."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = make_ledger(**NODES)
        price_by(fragments_on(self.ledger, *MIX), ledger=self.ledger)
        self.now = 0.0
        self.submitted = 0
        self.waiting: dict[str, Candidate] = {}
        self.running: dict[str, Run] = {}
        # By the key of each job that is to end for another one: the key of that one.
        self.told: dict[str, str] = {}

    def look(self) -> None:
        """Each machine says what else goes into it."""
        raise NotImplementedError

    @rule(data=st.data())
    def end_early(self, data: st.DataObject) -> None:
        if self.running:
            self.end(data.draw(st.sampled_from(sorted(self.running))))
            self.look()

    def judge(self, look: SchedulingCycle) -> None:
        """Start those that are admitted; the others have their reason."""
        for job in order(self.waiting.values()):
            verdict = look.at(job)
            if isinstance(verdict, Admitted):
                self.start(job, verdict)
            else:
                assert isinstance(verdict, Waits)
                assert verdict.message

    def leaving(self) -> list[Leaving]:
        """When what runs is taken to end."""
        return [
            Leaving(
                key=claim.key,
                job=run.job.key,
                at_seconds=max(run.end - self.now, 60.0),
                assumed=not run.job.limited,
            )
            for run in self.running.values()
            for claim in run.claims
        ]

    def evictable(self, left: dict[str, str]) -> list[Running]:
        """What runs, and what has `left` already: by its key, that of the job for which it did."""
        gone = (
            Running(key=key, priority=0, run_seconds=0.0, claims=(), yields_to=by, left=True)
            for key, by in left.items()
        )
        return [*map(self.as_running, self.running.values()), *gone]

    def as_running(self, run: Run) -> Running:
        """A run as a possible victim."""
        return Running(
            key=run.job.key,
            priority=run.job.priority,
            run_seconds=self.now - run.since,
            claims=tuple(claim.key for claim in run.claims),
            yields_to=self.told.get(run.job.key, ""),
        )

    def start(self, job: Candidate, verdict: Admitted) -> None:
        """The job runs from now on."""
        del self.waiting[job.key]
        self.running[job.key] = Run(job=job, since=self.now, claims=verdict.claims)
        for claim in verdict.claims:
            self.ledger.commit(claim)

    def end(self, key: str) -> None:
        """What the job held is free."""
        for claim in self.running.pop(key).claims:
            self.ledger.release(claim.key)

    @invariant()
    def no_device_is_promised_beyond_itself(self) -> None:
        promised: dict[str, int] = {}
        for run in self.running.values():
            for claim in run.claims:
                for device in claim.devices:
                    promised[device.uuid] = promised.get(device.uuid, 0) + device.share_milli
        assert all(milli <= 1000 for milli in promised.values())
