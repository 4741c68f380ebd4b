"""What a job asks, with the memory that was estimated for it from earlier runs. Pure."""

from dataclasses import replace

from dovetail.api.gpujob import MemoryUse
from dovetail.engine.claims import Ask


def estimated(ask: Ask, *, use: MemoryUse | None) -> Ask:
    """The ask with the estimate as the memory that is promised: never more than was asked, where memory was."""
    if use is None or use.estimate_mib is None or ask.gpu is None or ask.mode == "Exclusive":
        return ask
    asked = ask.gpu.memory_mib
    memory_mib = use.estimate_mib if asked is None else min(asked, use.estimate_mib)
    return replace(ask, gpu=replace(ask.gpu, memory_mib=memory_mib), guard="Aggressive")
