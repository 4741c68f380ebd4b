"""A pod that waits is not refused for a departure that kube-scheduler knows of and we are about to hear of."""

import asyncio

from dovetail.engine.refusals import Refusal
from dovetail_extender.decisions import Filtered
from dovetail_extender.patience import PAUSE_SECONDS, Patience
from tests.core.engine.builders import hold_devices, make_ledger
from tests.extender.harness import Clock

BUSY = Filtered(refusals={"a": Refusal(kind="DevicesBusy", message="busy", text="busy")})
NEVER = Filtered(refusals={"a": Refusal(kind="NoGPU", message="none", text="none")})
FITS = Filtered(nodes=["a"])


class Scene:
    """A ledger whose last claim goes a moment after the pod was asked about, and a decision that follows it."""

    def __init__(self, refusal: Filtered = BUSY) -> None:
        self.ledger = make_ledger(a=1)
        self.clock = Clock()
        self.patience = Patience(ledger=self.ledger, clock=self.clock)
        self.refusal = refusal
        self.occupy()

    def occupy(self) -> None:
        hold_devices(self.ledger, "a", 0, key="other")

    def decide(self) -> Filtered:
        return self.refusal if self.ledger.claim("other") else FITS

    async def ask(self) -> Filtered:
        return await self.patience.filter(self.decide, uid="pod")

    async def ask_while_the_other_leaves(self) -> Filtered:
        asyncio.get_running_loop().call_later(0.01, self.ledger.release, "other")
        found = await self.ask()
        await asyncio.sleep(0.02)
        return found


async def test_the_first_refusal_is_given_at_once() -> None:
    assert await Scene().ask_while_the_other_leaves() == BUSY


async def test_a_pod_that_was_refused_before_meets_a_departure_that_comes_a_moment_late() -> None:
    scene = Scene()
    await scene.ask()
    assert await scene.ask_while_the_other_leaves() == FITS


async def test_without_a_departure_it_is_refused_again() -> None:
    scene = Scene()
    await scene.ask()
    assert await scene.ask() == BUSY


async def test_waits_are_rare() -> None:
    scene = Scene()
    for _ in range(2):
        await scene.ask()
    assert await scene.ask_while_the_other_leaves() == BUSY
    scene.occupy()
    scene.clock.now += PAUSE_SECONDS
    assert await scene.ask_while_the_other_leaves() == FITS


async def test_nobody_waits_for_what_no_departure_mends() -> None:
    scene = Scene(NEVER)
    await scene.ask()
    assert await scene.ask_while_the_other_leaves() == NEVER
