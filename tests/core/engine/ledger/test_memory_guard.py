"""The memory guard as scenarios: what stands on one 32 GiB card, who asks, and what it is promised.

Of 32,768 MiB a Conservative tenant lets 26,214 MiB be promised, an Aggressive one 31,129.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dovetail.api.gpujob import Mode
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.settings import Limits
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device


def card(*tenants: tuple[str | None, int, int], limits: Limits | None = None, **facts: object) -> Ledger:
    """A node with one card, and tenants on it: guard, share and memory of each."""
    ledger = Ledger(limits=limits)
    add_node(ledger, "a", gpus=1)
    ledger.set_devices("a", devices=[make_device("a", 0, **facts)])  # type: ignore[arg-type]
    for number, (guard, share_milli, memory_mib) in enumerate(tenants):
        hold_devices(
            ledger, "a", 0, key=str(number), guard=guard, share_milli=share_milli, memory_mib=memory_mib,
            mode="Fractional",
        )  # fmt: skip
    return ledger


@dataclass(frozen=True, kw_only=True)
class Guarded:
    name: str
    ledger: Callable[[], Ledger]
    ask: str
    guard: str | None = None
    mode: Mode | None = None
    promised: int | str


CASES = [
    Guarded(name="a share has its part of 0.8", ledger=card, ask="0.5", promised=13107),
    Guarded(name="a share with a fraction of its own", ledger=card, ask="0.5", guard="0.6", promised=9830),
    Guarded(name="a fraction of 1 leaves what the driver keeps", ledger=card, ask="0.5", guard="1", promised=16384),
    Guarded(name="a bold share has its part of 0.95", ledger=card, ask="0.5", guard="Aggressive", promised=15564),
    Guarded(
        name="the configured guard is for those that name none", ask="0.5", promised=15564,
        ledger=lambda: card(limits=Limits(guard_fraction=0.95)),
    ),
    Guarded(
        name="who names one is not touched by the configured one", ask="0.5", guard="Conservative", promised=13107,
        ledger=lambda: card(limits=Limits(guard_fraction=0.95)),
    ),
    Guarded(
        name="what the driver keeps is not promised", ask="0.5", promised=12800,
        ledger=lambda: card(reserved_mib=768),
    ),
    Guarded(
        name="between 0.8 and 0.95 only the bold fit", ask="28G,0.5", guard="Aggressive", ledger=card, promised=28672,
    ),
    Guarded(
        name="between 0.8 and 0.95 the careful do not", ask="28G,0.5", ledger=card,
        promised="a: Need 1 GPU, only 0 available: fewer than 1 GPU with 28672 MiB",
    ),
    Guarded(
        name="a careful tenant keeps a bold one off its margin", ask="14G,0.5", guard="Aggressive",
        ledger=lambda: card((None, 500, 13107)),
        promised="a: need 14336 MiB on a GPU, the most left on one is 13107 MiB",
    ),
    Guarded(
        name="beside another bold one the same fits", ask="14G,0.5", guard="Aggressive",
        ledger=lambda: card(("Aggressive", 500, 13107)), promised=14336,
    ),
    Guarded(
        name="a bold share beside a careful tenant has its part of what that one allows", ask="0.5",
        guard="Aggressive", ledger=lambda: card((None, 500, 13107)), promised=13107,
    ),
    Guarded(
        name="a careful ask is promised nothing beyond 0.8, whatever the bold hold", ask="12G,0.5",
        ledger=lambda: card(("Aggressive", 500, 15564)),
        promised="a: need 12288 MiB on a GPU, the most left on one is 10650 MiB",
    ),
    Guarded(
        name="strangers lower what is free", ask="8G,0.5", ledger=lambda: card(foreign_mib=20000),
        promised="a: need 8192 MiB on a GPU, the most left on one is 6214 MiB",
    ),
    Guarded(
        name="strangers and tenants together", ask="8G,0.25", ledger=lambda: card((None, 500, 13107), foreign_mib=5000),
        promised="a: need 8192 MiB on a GPU, the most left on one is 8107 MiB",
    ),
    Guarded(name="a whole device is exempt", ledger=card, ask="1", promised=32768),
    Guarded(name="a whole device without the driver's part", ledger=lambda: card(reserved_mib=768), ask="1",
            promised=32000),
    Guarded(
        name="a whole device on which a display keeps a little", ledger=lambda: card(foreign_mib=300), ask="1",
        promised=32468,
    ),
    Guarded(
        name="at most a twentieth of a whole device may be strange", ledger=lambda: card(foreign_mib=1639), ask="1",
        promised="a: need 32768 MiB on a GPU, the most left on one is 31129 MiB",
    ),
    Guarded(
        name="a whole device that says its memory needs it free", ledger=lambda: card(foreign_mib=1000), ask="32G,1",
        mode="Exclusive", promised="a: need 32768 MiB on a GPU, the most left on one is 31768 MiB",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_guard(case: Guarded) -> None:
    found = check(case.ledger(), ask=make_ask(case.ask, mode=case.mode, guard=case.guard), node="a", key="pod")
    assert case.promised == (found.claim.devices[0].memory_mib if isinstance(found, Fit) else found.message)


def test_without_measurements_promises_alone_count_and_the_answer_says_so() -> None:
    ledger = card((None, 500, 13107), foreign_mib=10000)
    assert not isinstance(check(ledger, ask=make_ask("8G,0.5"), node="a", key="pod"), Fit)
    ledger.distrust("a", note="old")
    fit = check(ledger, ask=make_ask("8G,0.5"), node="a", key="pod")
    assert isinstance(fit, Fit)
    assert fit.note == "old"
    refusal = check(ledger, ask=make_ask("14G,0.5"), node="a", key="pod")
    assert not isinstance(refusal, Fit)
    assert refusal.message == "a: need 14336 MiB on a GPU, the most left on one is 13107 MiB (old)"


def test_a_new_report_counts_again() -> None:
    ledger = card()
    ledger.distrust("a", note="old")
    ledger.set_devices("a", devices=[make_device("a", 0, foreign_mib=20000)])
    assert ledger.unmeasured_reason("a") == ""
    assert not isinstance(check(ledger, ask=make_ask("8G,0.5"), node="a", key="pod"), Fit)


def test_what_is_distrusted_is_judged_anew_by_those_who_keep_judgements() -> None:
    ledger = card(foreign_mib=10)
    position = ledger.changes
    ledger.distrust("a", note="old")
    assert ledger.touched_since(position) == {0}
    ledger.distrust("never seen", note="old")
    assert ledger.nodes() == ["a"]
