"""Devices of pods for whom others leave or make way: they are chosen at the same prices as those of all others."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.engine.filter.fit import Fit, check
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.score.fit_cache import FitCache
from dovetail_extender.decide.preempt import Preempting
from dovetail_extender.holds.nominations import Nominations
from dovetail_extender.protocol import MetaPod, MetaVictims, PreemptArgs
from tests.core.engine.builders import make_ask
from tests.core.engine.score.test_live_fragmentation import fragments_on, residuals
from tests.extender.builders import make_share

ASK = make_ask("0.3", policy="Pack", cpu_milli=1000)
# Of the residuals 0.4, 0.7 and 1 the first is the tightest, and worth keeping where 0.6 and 0.4 come: the second it is.
PRICED = 1


class Scene:
    """A node whose CPU `crowd` has, so that `urgent` fits only without it."""

    def __init__(self) -> None:
        self.ledger = residuals(400, 700, 1000)
        self.ledger.commit(Claim(key="uid-crowd", node="a", cpu_milli=64000))
        fit_cache = FitCache(self.ledger, term=fragments_on(self.ledger, *["0.6", "0.4"] * 20))
        self.urgent, self.crowd = _pod("urgent", priority=100), _pod("crowd", nodeName="a")
        self.nominations = Nominations(ledger=self.ledger, fit_cache=fit_cache, ask=self.ask)

    def ask(self, pod: Pod) -> Ask | None:
        return ASK if pod.metadata.name == "urgent" else Ask(gpu=None, cpu_milli=64000)

    def when_they_leave(self) -> Claim | None:
        leaving = msgspec.structs.replace(self.crowd.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        self.nominations.pod_changed(msgspec.structs.replace(self.crowd, metadata=leaving))
        return self._of_nominated()

    def when_they_make_way(self) -> Claim | None:
        self.ledger.release("uid-crowd")
        self.nominations.pod_changed(_pod("crowd", status={"nominatedNodeName": "a"}))
        assert self.ledger.is_hold("uid-crowd")
        found = self.nominations.fit_by_release(ASK, node="a", pod=self.urgent)
        return None if found is None else found.claim

    def when_they_are_evicted(self) -> Claim | None:
        preempting = Preempting(
            ask=self.ask, nominations=self.nominations, pods=lambda: [self.crowd], budgets=list, clock=lambda: 0.0
        )
        victims = {"a": MetaVictims(pods=[MetaPod(uid="uid-crowd")])}
        assert list(preempting.preempt(PreemptArgs(pod=self.urgent, victims=victims))) == ["a"]
        assert self.ledger.claim("uid-crowd") is not None, "preempt evicts nobody itself"
        self.ledger.release("uid-crowd")
        return self._of_nominated()

    def _of_nominated(self) -> Claim | None:
        self.nominations.pod_changed(_pod("urgent", priority=100, status={"nominatedNodeName": "a"}))
        return self.ledger.claim("uid-urgent")


@pytest.mark.parametrize("how", [Scene.when_they_leave, Scene.when_they_make_way, Scene.when_they_are_evicted])
def test_a_share_for_which_others_go_gets_the_device_whose_rest_is_worth_the_least(
    how: Callable[[Scene], Claim | None],
) -> None:
    claim = how(Scene())
    assert claim is not None
    assert [device.index for device in claim.devices] == [PRICED]


def test_best_fit_would_have_chosen_another_device() -> None:
    found = check(residuals(400, 700, 1000), ask=ASK, node="a", key="urgent")
    assert isinstance(found, Fit)
    assert [device.index for device in found.claim.devices] != [PRICED]


def test_what_is_set_aside_stands_again_as_it_stood() -> None:
    ledger = Ledger()
    ledger.commit(Claim(key="firm", node="a", cpu_milli=1))
    ledger.commit(Claim(key="hold", node="a", cpu_milli=2), hold_until=7.0)
    before = ledger.claims()
    with ledger.without(["firm", "hold", "unknown"]):
        assert not ledger.claims()
    assert ledger.claims() == before
    assert (ledger.is_hold("firm"), ledger.is_hold("hold")) == (False, True)
    assert [claim.key for claim in ledger.expire_holds(7.0)] == ["hold"]


def _pod(name: str, *, status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    raw = make_share(name, 300, **spec)
    return msgspec.convert(raw | {"status": {"phase": "Pending"} | (status or {})}, Pod, strict=False)
