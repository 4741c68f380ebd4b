"""The pods of a trace as GPUJobs, planned by the queue's own code and placed by the extender's.

`find_room`, by which each scheduling cycle plans, chooses the node of each job when it arrives, and the extender's term
the devices there, each by the mix that it learns itself, as on a live cluster. A job that does not fit at its arrival
is passed over, as the experiment passes over pods: the first one that waits would reserve most of a full cluster. Pods
without GPUs are plain pods: the extender alone places them, and the queue learns of them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dovetail.api.devices import AllocatedDevice
from dovetail.engine.filter.fit import Fit
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.inventory import DeviceFacts, NodeFacts
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.fit_cache import FitCache
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation, price_by
from dovetail.fragmentation.pod_shapes import WHOLE_MILLI, Choice, Shape
from dovetail.gpu.models import memory_mib
from dovetail.gpu.request import GPURequest
from dovetail.queue.model.candidates import Candidate, Room, find_room
from dovetail.simulator.trace import Node

TERMS: Final[tuple[FragmentationPolicy, ...]] = ("ph", "fgd", "bestfit")
# The experiment's shares are shares of time and memory alike, so the size of a device of an unknown model decides
# nothing. One of a known model needs its own: a request for V100M32 takes no V100 with 16 GB.
_UNKNOWN_MIB: Final = 16_384


class PlannedJobs:
    """A policy of the experiment: `choose` submits a job, and `left` says that one has ended.

    `taken` is allocated at the start.
    """

    def __init__(self, nodes: Sequence[Node], *, term: FragmentationPolicy, taken: Sequence[Choice] = ()) -> None:
        # Rows may have one name: a cluster can be the same one several times.
        self._names = [f"node-{row}" for row in range(len(nodes))]
        self._rows = {name: row for row, name in enumerate(self._names)}
        self._ledger = _ledger_of(dict(zip(self._names, nodes, strict=True)))
        # Equal choices are interchangeable: either of their claims may be the one that ends.
        self._claims: dict[Choice, list[str]] = defaultdict(list)
        self._arrived = 0
        for choice in taken:
            self._ledger.commit(self._enter(choice, claim=self._claim_of(choice)))
        settings = FragmentationSettings(policy=term)
        self._queue, self._extender = (LiveFragmentation(self._ledger, settings=settings) for _ in range(2))
        price_by(self._queue, ledger=self._ledger)
        for each in (self._queue, self._extender):
            each.follow()
        self._plans = FitCache(self._ledger)
        self._fit_cache = FitCache(self._ledger, term=self._extender)

    def choose(self, shape: Shape) -> Choice | None:
        """The place of a job that is submitted now, or None when it does not fit."""
        self._arrived += 1
        key, ask = f"arrival-{self._arrived}", ask_of(shape)
        for term in (self._queue, self._extender):
            _learn(term, ask=ask, key=key)
        node = self._preferred(ask, key=key) if ask.gpu is None else self._planned(ask, key=key)
        if node is None:
            return None
        found = self._fit_cache.check(ask, node=node, key=key)
        assert isinstance(found, Fit), "the plan has checked it"
        devices = tuple(device.index for device in found.claim.devices)
        choice = Choice(shape=shape, node=self._rows[node], devices=devices)
        self._ledger.commit(self._enter(choice, claim=found.claim))
        return choice

    def left(self, choice: Choice) -> None:
        """A job with this choice has ended."""
        self._ledger.release(self._claims[choice].pop())

    def _planned(self, ask: Ask, *, key: str) -> str | None:
        """The node that the queue plans."""
        job = Candidate(key=key, ask=ask)
        found = find_room(job, ledger=self._ledger, fit_cache=self._plans, sites={})
        return found.claims[0].node if isinstance(found, Room) else None

    def _preferred(self, ask: Ask, *, key: str) -> str | None:
        """The node that the extender prefers."""
        return next(iter(self._fit_cache.best(ask, nodes=self._names, key=key, limit=1)), None)

    def _enter(self, choice: Choice, *, claim: Claim) -> Claim:
        self._claims[choice].append(claim.key)
        return claim

    def _claim_of(self, choice: Choice) -> Claim:
        """The claim of something that was there at the start."""
        node, shape, number = self._names[choice.node], choice.shape, len(self._ledger.claims())
        size_mib = next((device.memory_mib for device in self._ledger.everything(node)), 0)
        memory_mib = size_mib * shape.share_milli // WHOLE_MILLI
        return Claim(
            key=f"taken-{number}",
            node=node,
            mode="Fractional" if shape.is_share else "Exclusive",
            devices=tuple(
                AllocatedDevice(index=at, uuid=f"{node}-{at}", share_milli=shape.share_milli, memory_mib=memory_mib)
                for at in choice.devices
            ),
            cpu_milli=shape.cpu_milli,
            memory_mib=shape.memory_mib,
        )


def ask_of(shape: Shape) -> Ask:
    """What a job of this shape requests, with the policy PACK, which is the fragmentation term alone."""
    ask = Ask(gpu=None, policy="Pack", cpu_milli=shape.cpu_milli, memory_mib=shape.memory_mib)
    if not shape.gpus:
        return ask
    gpu = GPURequest(count=shape.gpus, share_milli=shape.share_milli, models=shape.models)
    return replace(ask, gpu=gpu, mode="Fractional" if shape.is_share else "Exclusive")


def device_mib(model: str) -> int:
    """The memory of a device of this model, in MiB, which a trace does not say."""
    return memory_mib(model) or _UNKNOWN_MIB


def _learn(term: LiveFragmentation, *, ask: Ask, key: str) -> None:
    """Count the arrival. What a live cluster calculates in the background is done at once, so that runs are equal."""
    term.arrived(ask, key=key)
    while term.work():
        pass
    term.follow()


def _ledger_of(nodes: Mapping[str, Node]) -> Ledger:
    ledger = Ledger()
    for name, node in nodes.items():
        ledger.set_node(NodeFacts(name=name, cpu_milli=node.cpu_milli, memory_mib=node.memory_mib))
        size_mib = device_mib(node.model)
        devices = [
            DeviceFacts(index=index, uuid=f"{name}-{index}", vendor="nvidia", model=node.model, memory_mib=size_mib)
            for index in range(node.gpus)
        ]
        ledger.set_devices(name, devices=devices)
    return ledger
