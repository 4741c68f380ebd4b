"""Which idle GPUs are to be partitioned again after a scheduling cycle, for requests that have waited long enough.

`requests` carries the decisions out.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from datetime import datetime
from typing import Final

from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.model.candidates import Candidate, claim_on_the_way, order
from dovetail.queue.reshaping.cards import Card
from dovetail.queue.reshaping.decision import HELPS_AGAINST, Change, changes_for, idle_cards, may_change
from dovetail.queue.verdicts import Admitted, Waits
from dovetail_operator.queue.cycle import Cycle
from dovetail_operator.queue.wake_up import WakeUp
from dovetail_operator.state.state import State

# Timestamps have whole seconds, so a time that is due may be less than one second away.
_TIMER_SECONDS: Final = 1.0
# How many waiting jobs one cycle tries to help: the first of the queue, and others in turn. A decision costs placements
# on copies of the ledger.
_FIRST_JOBS: Final = 4
_JOBS_IN_TURN: Final = 4
# When the next cycle tries further jobs, if nothing else causes one.
_TURN_SECONDS: Final = 5.0
# How many instances of other waiting requests a decision considers: a GPU has seven at most.
_MOST_WANTED: Final = 64


class Reshaping:
    """Keeps the decisions' changes of GPUs current. Since when a GPU is idle is known from this process's start on."""

    def __init__(self, state: State, *, wake_up: WakeUp, now: Callable[[], datetime]) -> None:
        self._state = state
        self._wake_up = wake_up
        self._now = now
        self._idle_since: dict[str, datetime] = {}
        self._short_since: dict[str, datetime] = {}
        # The jobs that have had their turn since all of them last had it.
        self._had_turn: set[str] = set()

    def update(self, cycle: Cycle) -> None:
        """Decide on changes for the jobs that the cycle leaves without instances."""
        state, now = self._state, self._now()
        cards = [card for each in state.store.cards.values() for card in each] if state.reshape.enabled else []
        idle = idle_cards(cards, ledger=state.store.view.ledger)
        self._idle_since = {card.uuid: self._idle_since.get(card.uuid, now) for card in idle}
        short = self._short(cycle) if cards else []
        self._short_since = {job.key: self._short_since.get(job.key, now) for job in short}
        state.decisions.set_reshapes(self._changes(cycle, cards=cards, idle=idle, short=short, now=now))
        if short and idle:
            self._wake_when_due(idle, now=now)

    def _short(self, cycle: Cycle) -> list[Candidate]:
        """The waiting jobs, in queue order, that other instances may help."""
        verdicts = self._state.decisions.verdicts
        return [
            job
            for job in order(job for job in cycle.waiting if job.ask.profile)
            if isinstance(verdict := verdicts.get(job.key), Waits) and verdict.reason in HELPS_AGAINST
        ]

    def _changes(
        self, cycle: Cycle, *, cards: Sequence[Card], idle: Sequence[Card], short: Sequence[Candidate], now: datetime
    ) -> tuple[Change, ...]:
        """The changes for the first job that they help. One job at a time: each changes what the next one finds."""
        rules, view = self._state.reshape, self._state.store.view
        open_cards = [
            card
            for card in idle
            if may_change(card, rules=rules, ledger=view.ledger, idle_since=self._idle_since[card.uuid], now=now)
        ]
        helped = {card.request.job for card in cards if card.request is not None}
        due = [job for job in short if self._waited(job, now=now) >= rules.after_seconds and job.key not in helped]
        if not open_cards or not due:
            return ()
        kept = self._kept()
        tried = self._in_turn(_distinct(due, open_cards=open_cards, apart=kept))
        if not tried:
            return ()
        ledger = self._planned(cycle)
        for job in tried:
            of_others = {node for key, nodes in kept.items() if key != job.key for node in nodes}
            free = [card for card in idle_cards(open_cards, ledger=ledger) if card.node not in of_others]
            found = changes_for(
                job, cards=free, wanted=_wanted(each for each in short if each is not job), ledger=ledger,
                sites=cycle.sites,
            )  # fmt: skip
            if found:
                return found
        return ()

    def _in_turn(self, jobs: Sequence[Candidate]) -> list[Candidate]:
        """The jobs that this cycle tries, so that each gets its turn however many before it cannot be helped."""
        first, others = jobs[:_FIRST_JOBS], jobs[_FIRST_JOBS:]
        left = [job for job in others if job.key not in self._had_turn]
        turn = left[:_JOBS_IN_TURN]
        if len(turn) < len(left):
            self._had_turn = {job.key for job in others} - {job.key for job in left[_JOBS_IN_TURN:]}
            self._wake_up.within(seconds=_TURN_SECONDS)
        else:
            self._had_turn = set()
        return [*first, *turn]

    def _planned(self, cycle: Cycle) -> Ledger:
        """A copy of the ledger with the room of admitted jobs."""
        ledger = self._state.store.view.ledger.copy()
        claim_on_the_way(
            [*cycle.on_the_way, *cycle.moving.values()], ledger=ledger, sites=cycle.sites, going=cycle.going
        )
        for verdict in self._state.decisions.verdicts.values():
            if isinstance(verdict, Admitted):
                ledger.commit_all(verdict.claims)
        return ledger

    def _kept(self) -> dict[str, set[str]]:
        """By key of a waiting job, the nodes on which capacity is kept for it."""
        return {
            key: {kept.name for kept in verdict.queue.reserved.kept}
            for key, verdict in self._state.decisions.verdicts.items()
            if isinstance(verdict, Waits) and verdict.queue is not None and verdict.queue.reserved is not None
        }

    def _waited(self, job: Candidate, *, now: datetime) -> float:
        return (now - self._short_since[job.key]).total_seconds()

    def _wake_when_due(self, idle: Iterable[Card], *, now: datetime) -> None:
        """Run a cycle when time alone allows the next change."""
        rules = self._state.reshape
        left = [rules.after_seconds - (now - since).total_seconds() for since in self._short_since.values()]
        for card in idle:
            left.append(rules.idle_seconds - (now - self._idle_since[card.uuid]).total_seconds())
            if card.finished is not None:
                left.append(rules.cooldown_seconds - (now - card.finished).total_seconds())
        if due := [seconds for seconds in left if seconds > 0]:
            self._wake_up.within(seconds=max(_TIMER_SECONDS, min(due)))


def _wanted(others: Iterable[Candidate]) -> list[str]:
    """The profiles of the instances that these jobs wait for, in queue order."""
    wanted: list[str] = []
    for job in others:
        count = 0 if job.ask.gpu is None else job.workers * job.ask.gpu.count
        wanted += [job.ask.profile] * min(count, _MOST_WANTED - len(wanted))
    return wanted


def _distinct(due: Iterable[Candidate], *, open_cards: Iterable[Card], apart: Container[str]) -> list[Candidate]:
    """The jobs whose profile some card can have, and of equal requests the first: the cards help all of them or none.

    Jobs `apart` are always among them: capacity is kept for them, so that they may use other nodes.
    """
    possible = {slot.profile for card in open_cards for slot in card.slots}
    first: dict[object, Candidate] = {}
    for job in due:
        if job.ask.profile in possible:
            first.setdefault(job.key if job.key in apart else job.shape, job)
    return list(first.values())
