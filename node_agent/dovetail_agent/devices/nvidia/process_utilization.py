"""Reads from the driver's recent samples which processes of an NVIDIA device compute."""

from typing import Any, Final

import pynvml

from dovetail_agent.devices.library_calls import Caller
from dovetail_agent.devices.nvidia.inventory import Part

# A device without compute work has no samples: that is an answer, not an absence.
_NO_SAMPLES: Final = frozenset({pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND})


class Busyness:
    """Remembers which samples it has seen, by device."""

    def __init__(self, ask: Caller) -> None:
        self._ask = ask
        self._seen: dict[str, int] = {}

    def read(self, part: Part) -> dict[int, float] | None:
        """Return each computing process's highest utilization (0 to 1) since the last call, by PID.

        None if the driver does not report it. Raises `CardLost` and `LibraryGone`.
        """
        if part.info.mig_profile:
            return None
        since = self._seen.get(part.card_uuid, 0)
        samples = self._ask(process_samples, args=(part.card, since))
        if samples is None:
            return None
        self._seen[part.card_uuid] = max([since, *(sample.timeStamp for sample in samples)])
        busy: dict[int, float] = {}
        for sample in samples:
            busy[sample.pid] = max(busy.get(sample.pid, 0.0), min(1.0, sample.smUtil / 100))
        return busy


def process_samples(card: Any, since: int) -> list[Any]:
    """Call the binding, which raises an error where there is no sample."""
    try:
        samples: list[Any] = pynvml.nvmlDeviceGetProcessUtilization(card, since)
    except pynvml.NVMLError as error:
        if error.value in _NO_SAMPLES:
            return []
        raise
    return samples
