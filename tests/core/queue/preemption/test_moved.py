"""Jobs that restart elsewhere for a waiting one, within a cycle: proven each time, and given up otherwise."""

from dataclasses import replace

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Claim
from dovetail.queue.cycle import admit
from dovetail.queue.model.candidates import Candidate, claim_on_the_way
from dovetail.queue.preemption.policy import Evictor, Rules
from dovetail.queue.preemption.victims import Running
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from tests.core.engine.builders import add_node, make_ledger
from tests.core.queue.backfill.test_backfill import make_job
from tests.core.queue.preemption.test_policy import start

BIG = make_job("big", "4")
X = make_job("x", "1")


def scattered(*, held: bool = True) -> tuple[Ledger, Running]:
    """Job x on one of the four GPUs of node a, and room on node b, held for it or taken by another job."""
    ledger = make_ledger()
    add_node(ledger, "a", gpus=4)
    mover = start(ledger, X, moves=True, yields_to=BIG.key)
    add_node(ledger, "b", gpus=1)
    key = f"{X.key}/move" if held else "uid-other"
    claim_on_the_way([replace(X, key=key, nodes=("b",))], ledger=ledger, sites={})
    return ledger, mover


def decide(
    ledger: Ledger, *running: Running, waiting: tuple[Candidate, ...] = (BIG,), rules: Rules | None = None
) -> tuple[dict[str, Verdict], Evictor]:
    evictor = Evictor(running=running, rules=rules or Rules())
    verdicts = {each.key: each for each in admit(waiting, ledger=ledger, sites={}, evictor=evictor)}
    return verdicts, evictor


def test_a_job_moves_without_any_rule_of_preemption_and_the_room_is_kept() -> None:
    ledger, mover = scattered()
    verdicts, evictor = decide(ledger, mover)
    verdict = verdicts[BIG.key]
    assert isinstance(verdict, Waits)
    assert verdict.kept is not None
    assert [claim.node for claim in verdict.kept.claims] == ["a"]
    (order,) = evictor.orders.values()
    assert (order.victim, order.by.key, order.moves) == (X.key, BIG.key, True)
    assert evictor.preemption_clause(BIG.key).message == "; 1 job restarts on other nodes for it"


def test_a_move_that_no_longer_starts_the_job_is_given_up() -> None:
    ledger, mover = scattered()
    ledger.commit(Claim(key="guest", node="a", devices=(), cpu_milli=10_000_000))
    _, evictor = decide(ledger, mover)
    assert evictor.orders == {}


def test_the_room_that_is_held_elsewhere_is_no_room_for_the_waiting_job() -> None:
    ledger, mover = scattered()
    verdicts, evictor = decide(ledger, mover, waiting=(replace(BIG, ask=X.ask, key=BIG.key),))
    assert isinstance(verdicts[BIG.key], Admitted)
    assert evictor.orders == {}


def test_once_it_has_left_the_job_starts_before_all_others() -> None:
    ledger, mover = scattered()
    other = make_job("other", "3", priority=90)
    verdicts, _ = decide(ledger, replace(mover, left=True), waiting=(other, BIG))
    assert isinstance(verdicts[BIG.key], Admitted)
    assert isinstance(verdicts[other.key], Waits)


def test_a_job_that_is_not_needed_stays() -> None:
    ledger, mover = scattered()
    add_node(ledger, "c", gpus=1)
    needless = start(ledger, make_job("needless", "1"), moves=True, yields_to=BIG.key)
    _, evictor = decide(ledger, mover, needless)
    assert set(evictor.orders) == {X.key}


def test_no_job_of_lower_priority_ends_in_its_place() -> None:
    ledger, mover = scattered()
    add_node(ledger, "c", gpus=4)
    low = start(ledger, make_job("low", "4", priority=0))
    _, evictor = decide(ledger, mover, low, rules=Rules(gap=5))
    assert {each.victim: each.moves for each in evictor.orders.values()} == {X.key: True}
