"""The mix of what is submitted, jobs and other pods alike, which prices the queue's plans. No I/O.

A module of its own: it counts requests for the engine's prices, and knows nothing of the rest of the state.
"""

from dataclasses import replace

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.model.topology import HOSTNAME
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation, price_by


class JobMix:
    """Learns from submitted GPUJobs and from the pods of no GPUJob, which take the same nodes.

    Plans on `ledger` and its copies are judged by its `term`.
    """

    def __init__(self, ledger: Ledger, *, policy: FragmentationPolicy) -> None:
        self.term = LiveFragmentation(ledger, settings=FragmentationSettings(policy=policy))
        price_by(self.term, ledger=ledger)

    def submitted(self, ask: Ask | None, *, uid: str, workers: int) -> None:
        """Count a submitted job, once: a gang as many requests, because it needs a place for each at the same time.

        Workers with whole GPUs that must be on one host count as one request for all of them: they need one node with
        that many free GPUs. `ask` is None for a job whose request cannot be read.
        """
        if ask is None:
            return
        together = _on_one_host(ask, workers=workers)
        self.term.arrived(_joined(ask, workers=together), key=uid, count=workers // together)

    def created(self, ask: Ask | None, *, uid: str) -> None:
        """Count a pod of no GPUJob, once; None for one that requests nothing of ours.

        The extender counts the same pods. Where both count alike, a job is planned where its pod would go.
        """
        if ask is not None:
            self.term.arrived(ask, key=uid)


def _on_one_host(ask: Ask, *, workers: int) -> int:
    """How many workers need the same node; 1 for shares, which need no free GPU."""
    rules, gpu = ask.topology, ask.gpu
    if rules is None or gpu is None or not gpu.whole or ask.more:
        return 1
    labels = {level.name: level.label for level in rules.levels}
    if labels.get(rules.required) == HOSTNAME:
        return workers
    return rules.group_size if labels.get(rules.group_level) == HOSTNAME else 1


def _joined(ask: Ask, *, workers: int) -> Ask:
    """What so many workers together ask of one node."""
    if ask.gpu is None or workers == 1:
        return ask
    return replace(
        ask,
        gpu=replace(ask.gpu, count=ask.gpu.count * workers),
        cpu_milli=ask.cpu_milli * workers,
        memory_mib=ask.memory_mib * workers,
    )
