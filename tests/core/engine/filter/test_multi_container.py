"""Pods of which several containers ask: honest answers, and never a share twice."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.gpujob import Mode, Policy
from dovetail.engine.filter.fit import Fit, check, screen
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.refusals import Refusal
from dovetail.engine.score.fit_cache import FitCache
from dovetail.gpu.request import parse
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_ledger


def make_parts(*texts: str, mode: Mode | None = None, policy: Policy = "Balanced") -> Ask:
    """An ask of several containers, the first the largest."""
    first, *others = texts
    return replace(make_ask(first, mode=mode, policy=policy), more=tuple(map(parse, others)))


def fit(ledger: Ledger, ask: Ask, *, node: str = "a") -> Claim:
    found = check(ledger, ask=ask, node=node, key="p")
    assert isinstance(found, Fit), found
    return found.claim


def refusal(ledger: Ledger, ask: Ask, *, node: str = "a") -> Refusal:
    found = check(ledger, ask=ask, node=node, key="p")
    assert isinstance(found, Refusal), found
    return found


def shares(claim: Claim) -> list[int]:
    return [device.share_milli for device in claim.devices]


def test_each_part_gets_its_devices_in_the_order_asked() -> None:
    claim = fit(make_ledger(a=8), make_parts("0.75", "2x0.5", "0.25"))
    assert shares(claim) == [750, 500, 500, 250]


def test_whole_devices_of_two_containers_are_different_ones() -> None:
    claim = fit(make_ledger(a=4), make_parts("2", "1", "1"))
    assert sorted(device.index for device in claim.devices) == [0, 1, 2, 3]


def test_two_containers_may_share_a_device_but_promise_no_more_than_it_has() -> None:
    ledger = make_ledger(a=1)
    assert shares(fit(ledger, make_parts("0.6", "0.4"))) == [600, 400]
    found = refusal(ledger, make_parts("0.6", "0.5"))
    assert (found.kind, found.text) == (
        "TooFewDevices",
        "the GPUs of the pod's 2 containers do not fit together, ever",
    )


def test_what_others_promised_counts_for_all_parts_together() -> None:
    ledger = make_ledger(a=1)
    hold_devices(ledger, "a", 0, share_milli=300, mode="Fractional")
    found = refusal(ledger, make_parts("0.5", "0.4"))
    assert (found.kind, found.message) == (
        "ShareShort",
        "a: the GPUs of the pod's 2 containers do not fit together now",
    )
    assert not found.unresolvable


def test_memory_is_promised_to_each_part() -> None:
    """26,214 MiB of a V100 may be promised: 16 GiB and 8 GiB fit beside one another, twice 16 GiB need two cards."""
    assert fit(make_ledger(a=1), make_parts("16G,0.5", "8G,0.5")).devices[1].memory_mib == 8192
    refusal(make_ledger(a=1), make_parts("16G,0.5", "16G,0.5"))
    assert len({device.index for device in fit(make_ledger(a=2), make_parts("16G,0.5", "16G,0.5")).devices}) == 2


def test_a_strict_tenant_s_guard_binds_every_container_and_not_the_first_alone() -> None:
    """A Conservative tenant caps a V100's promises at 26,214 MiB: 4 GiB and 16 GiB leave no 8 GiB, as 95 % would."""
    ledger = make_ledger(a=1)
    hold_devices(
        ledger, "a", 0, key="strict", share_milli=100, memory_mib=4096, mode="Fractional", guard="Conservative"
    )
    loose = replace(make_parts("16G,0.5", "6G,0.4"), guard_fraction=0.95)
    refusal(ledger, loose)
    ledger.release("strict")
    hold_devices(ledger, "a", 0, key="loose", share_milli=100, memory_mib=4096, mode="Fractional", guard="Aggressive")
    assert shares(fit(ledger, loose)) == [500, 400]


def test_a_part_with_fewer_devices_to_choose_from_chooses_first() -> None:
    ledger = Ledger()
    add_node(ledger, "a", gpus=2)
    assert [device.index for device in fit(ledger, make_parts("1", "1@cuda:0")).devices] == [1, 0]


def test_the_policys_own_choice_gives_way_where_it_would_leave_a_part_without() -> None:
    """Spread would put a small one on the idle card, which the large one needs."""
    ledger = make_ledger(a=2)
    hold_devices(ledger, "a", 0, share_milli=600, mode="Fractional")
    claim = fit(ledger, make_parts("0.4", "0.4", "0.6", policy="Spread"))
    by_device: Counter[int] = Counter()
    for device in claim.devices:
        by_device[device.index] += device.share_milli
    assert by_device == {0: 400, 1: 1000}


@pytest.mark.parametrize(
    ("ask", "kind", "text"),
    [
        (make_parts("1", "1(T4)"), "WrongModel", "no GPU of model T4"),
        (make_parts("0.5", "64G,0.1"), "TooFewDevices", "fewer than 1 GPU with 65536 MiB"),
        (make_parts("2", "3"), "TooFewDevices", "the GPUs of the pod's 2 containers do not fit together, ever"),
    ],
)
def test_a_part_that_can_never_be_met_is_told_in_its_own_words(ask: Ask, kind: str, text: str) -> None:
    found = refusal(make_ledger(a=4), ask)
    assert (found.kind, found.text) == (kind, text)
    assert found.unresolvable


def test_turns_count_every_container() -> None:
    ledger = make_ledger(a=1)
    four = make_parts("0.2", "0.2", "0.2", "0.2", mode="TimeShared")
    assert len(fit(ledger, four).devices) == 4
    assert refusal(ledger, replace(four, more=(*four.more, parse("0.2")))).kind == "TooFewDevices"


def test_what_is_kept_of_a_shape_says_the_same() -> None:
    ledger = make_ledger(a=4, b=1, c=8)
    hold_devices(ledger, "a", 0, 1, 2)
    ask = make_parts("1", "1")
    fit_cache, nodes = FitCache(ledger), ["a", "b", "c"]
    screened = screen(ledger, ask=ask, nodes=nodes, key="p")
    assert fit_cache.best(ask, nodes=nodes, key="p") == screened.fits == ["c"]
    kept = fit_cache.refusals(ask, nodes=nodes, key="p")
    assert {name: found.text for name, found in kept.items()} == {
        name: found.text for name, found in screened.refusals.items()
    }
    hold_devices(ledger, "c", *range(7))
    assert fit_cache.best(ask, nodes=nodes, key="p") == []


SHARES = st.sampled_from(["0.1", "0.25", "0.3", "0.5", "0.6", "2x0.5", "8G,0.25", "16G,0.5", "2x4G,0.1"])
WHOLES = st.sampled_from(["1", "2", "3", "1@cuda:1"])


@given(
    parts=st.one_of(st.lists(SHARES, min_size=2, max_size=4), st.lists(WHOLES, min_size=2, max_size=3)),
    taken=st.lists(st.sampled_from([100, 250, 500, 700]), max_size=4),
    policy=st.sampled_from(["Spread", "Pack", "Balanced"]),
)
def test_no_device_is_promised_beyond_what_it_has(parts: list[str], taken: list[int], policy: Policy) -> None:
    ledger = make_ledger(a=4)
    for index, share in enumerate(taken):
        hold_devices(ledger, "a", index, share_milli=share, memory_mib=20 * share, mode="Fractional")
    requests = sorted(map(parse, parts), key=lambda request: -request.total_milli)
    ask = replace(make_parts(*map(str, requests)), policy=policy)
    found = check(ledger, ask=ask, node="a", key="p")
    assert isinstance(found, Fit) == (screen(ledger, ask=ask, nodes=["a"], key="p").fits == ["a"])
    if isinstance(found, Refusal):
        return
    assert len(found.claim.devices) == sum(request.count for request in requests)
    ledger.commit(found.claim)
    columns = ledger.columns(["a"])
    assert columns.share_left.min() >= 0
    guarded = columns.total * (1.0 if ask.mode == "Exclusive" else 0.8)
    assert (columns.promised <= guarded).all()
    at = 0
    for request in requests:
        own = found.claim.devices[at : at + request.count]
        at += request.count
        # Devices of one part are different ones.
        assert len({device.index for device in own}) == request.count


def test_each_container_of_a_pod_is_a_tenant() -> None:
    ledger = make_ledger(a=1)
    ledger.set_tenant_limits(training_per_device=1, inference_per_device=1)
    for workload in ("Training", "Inference"):
        two = replace(make_parts("0.3", "0.3"), workload=workload)
        assert refusal(ledger, two).kind in {"TooFewDevices", "TenantLimit"}
        assert len({device.index for device in fit(make_limited(a=2), two).devices}) == 2


def make_limited(**nodes: int) -> Ledger:
    ledger = make_ledger(**nodes)
    ledger.set_tenant_limits(training_per_device=1, inference_per_device=1)
    return ledger
