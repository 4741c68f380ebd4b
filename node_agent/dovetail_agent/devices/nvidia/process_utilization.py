"""Which of an NVIDIA card's processes compute, by the samples that the driver keeps of the last seconds."""

from typing import Any, Final

import pynvml

from dovetail_agent.devices.library_calls import Caller
from dovetail_agent.devices.nvidia.inventory import Part

# A card on which nobody computed has no samples: that is an answer, not an absence.
_NO_SAMPLES: Final = frozenset({pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND})


class Busyness:
    """Remembers, by card, which samples it has seen."""

    def __init__(self, ask: Caller) -> None:
        self._ask = ask
        self._seen: dict[str, int] = {}

    def of(self, part: Part) -> dict[int, float] | None:
        """The highest ratio since the last look, by process, of those that computed; None where it is not told.

        Raises `CardLost` and `LibraryGone`.
        """
        if part.info.mig_profile:
            return None
        since = self._seen.get(part.card_uuid, 0)
        told = self._ask(process_samples, args=(part.card, since))
        if told is None:
            return None
        self._seen[part.card_uuid] = max([since, *(sample.timeStamp for sample in told)])
        busy: dict[int, float] = {}
        for sample in told:
            busy[sample.pid] = max(busy.get(sample.pid, 0.0), min(1.0, sample.smUtil / 100))
        return busy


def process_samples(card: Any, since: int) -> list[Any]:
    """The binding's call, which raises where there is no sample."""
    try:
        told: list[Any] = pynvml.nvmlDeviceGetProcessUtilization(card, since)
    except pynvml.NVMLError as error:
        if error.value in _NO_SAMPLES:
            return []
        raise
    return told
