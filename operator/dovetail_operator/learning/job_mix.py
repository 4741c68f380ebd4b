"""The mix of what is submitted, which prices the queue's plans. No I/O."""

from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.settings import FragmentationPolicy
from dovetail.engine.score.ledger_prices import price_by
from dovetail.engine.score.live_fragmentation import FragmentationSettings, LiveFragmentation


class JobMix:
    """Learns from submitted GPUJobs. Plans on `ledger` and its copies are judged by its `term`."""

    def __init__(self, ledger: Ledger, *, policy: FragmentationPolicy) -> None:
        self.term = LiveFragmentation(ledger, settings=FragmentationSettings(policy=policy))
        price_by(self.term, ledger=ledger)

    def submitted(self, ask: Ask | None, *, uid: str, workers: int) -> None:
        """Count a submitted job, once: a gang as many requests, because it needs a place for each at the same time.

        A job without GPUs is not planned and does not count.
        """
        if ask is not None and ask.gpu is not None:
            self.term.arrived(ask, key=uid, count=workers)
