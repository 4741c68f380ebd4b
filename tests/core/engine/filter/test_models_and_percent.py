"""Requests that exclude models, and requests for percent of a device's memory."""

import pytest

from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.filter.single_node import judge
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.refusals import Refusal
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device

CARDS = {"t4": ("T4", 15360), "v100": ("V100", 32768), "a100": ("A100", 81920)}


@pytest.fixture
def ledger() -> Ledger:
    """Nodes with two devices of one model each."""
    found = Ledger()
    for name, (model, mib) in CARDS.items():
        add_node(found, name, gpus=0)
        found.set_devices(name, devices=[make_device(name, at, model=model, memory_mib=mib) for at in range(2)])
    return found


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("1(!T4)", ["v100", "a100"]),
        ("1(!T4,!V100)", ["a100"]),
        ("1(!V100M16)", ["t4", "v100", "a100"]),
        ("1(!V100M32)", ["t4", "a100"]),
        ("1(T4|V100,!T4)", ["v100"]),
        ("1(nvidia,!T4,>=80G)", ["a100"]),
        ("1(!L4)", ["t4", "v100", "a100"]),
    ],
)
def test_an_excluded_model_is_never_taken(ledger: Ledger, text: str, nodes: list[str]) -> None:
    fits = [name for name in CARDS if isinstance(check(ledger, ask=make_ask(text), node=name, key="x"), Fit)]
    assert fits == nodes


def test_percent_of_memory_is_of_the_device_where_it_is_placed(ledger: Ledger) -> None:
    ask = make_ask("50%,0.25")
    for name, (_, mib) in CARDS.items():
        found = check(ledger, ask=ask, node=name, key="x")
        assert isinstance(found, Fit)
        (device,) = found.claim.devices
        assert device.memory_mib == mib // 2


def test_two_halves_of_the_memory_do_not_share_a_device_of_which_the_guard_keeps_a_part(ledger: Ledger) -> None:
    placed = place(ledger, ask=make_ask("50%,0.25(A100)"), workers=2, key="x")
    assert not isinstance(placed, Shortage)
    assert {device.uuid for claim in placed for device in claim.devices} == {"a100-0", "a100-1"}
    ledger.commit_all(placed)
    third = place(ledger, ask=make_ask("50%,0.25(A100)"), workers=1, key="y")
    assert isinstance(third, Shortage)
    assert third.message.endswith("need 40960 MiB of memory on a GPU, the most left on one is 24576 MiB")


@pytest.mark.parametrize(("promised_mib", "fits"), [(24_576, True), (24_577, False), (30_000, False)])
def test_one_node_alone_is_judged_by_all_the_memory_of_its_device(
    ledger: Ledger, promised_mib: int, fits: bool
) -> None:
    for index in range(2):
        key = f"t{index}"
        hold_devices(ledger, "a100", index, key=key, share_milli=100, memory_mib=promised_mib, mode="Fractional")
    # 0.8 of 81920 MiB may be promised, and half of all is 40960.
    assert judge(ledger, ask=make_ask("50%,0.25"), node="a100").fits is fits


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1(!T4,!V100,!A100)", "no node has a GPU but T4 and V100 and A100, there is A100, T4, V100"),
        ("90%,0.5", "need 90 % of its memory on a GPU, the largest that could ever be promised is 65536 MiB"),
    ],
)
def test_what_no_device_could_ever_be_is_said_in_the_request_s_words(ledger: Ledger, text: str, says: str) -> None:
    found = place(ledger, ask=make_ask(text), workers=1, key="x")
    assert isinstance(found, Shortage)
    assert found.reason == "ExceedsCapacity"
    assert says in found.message


def test_a_node_s_refusal_names_the_excluded_model(ledger: Ledger) -> None:
    found = check(ledger, ask=make_ask("1(!T4)"), node="t4", key="x")
    assert isinstance(found, Refusal)
    assert (found.kind, found.message) == ("WrongModel", "t4: no GPU but T4 (2 GPUs)")
