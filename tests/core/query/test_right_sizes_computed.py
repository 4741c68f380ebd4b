"""Right sizes, computed a second time in fractions, and what holds of every one of them."""

from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.api.gpujob import GPUJob
from dovetail.gpu.request import parse
from dovetail.query.right_sizes import measured_size

GIB = 1024
# The run of `job` began two hours before that and took one.
NOW = datetime(2026, 11, 3, 12, tzinfo=UTC)


def job(*, request: str, share: int, promised: int, peak: int, percent: int, workers: int = 1) -> GPUJob:
    device = {"worker": 0, "node": "a", "index": 0, "uuid": "a-0", "shareMilli": share, "memoryMiB": promised}
    found = {
        "metadata": {"name": "train", "namespace": "red"},
        "spec": {"gpu": request, "workers": workers},
        "status": {
            "phase": "Succeeded",
            "request": request,
            "devices": [device],
            "startTime": "2026-11-03T10:00:00Z",
            "completionTime": "2026-11-03T11:00:00Z",
            "memory": {"strategy": "Dynamic", "basis": "", "peakMiB": peak},
            "measured": {"meanUtilization": percent / 100, "deviceSeconds": 3600},
        },
    }
    return msgspec.convert(found, GPUJob)


def stepped(amount: Fraction, *, step: int) -> int:
    """The amount or the next higher multiple of the step."""
    return -int(-amount // step) * step


sizes: dict[str, Any] = {
    "tenths": st.integers(1, 10), "gib": st.integers(1, 80), "peak": st.integers(1, 80 * GIB),
    "percent": st.integers(0, 100), "workers": st.integers(1, 9), "count": st.integers(1, 4),
}  # fmt: skip


@given(**sizes)
def test_a_right_size_is_a_fifth_above_the_load_and_a_tenth_above_the_peak(
    tenths: int, gib: int, peak: int, percent: int, workers: int, count: int
) -> None:
    assume(peak <= gib * GIB)
    whole = tenths == 10
    asked = str(count) if whole else f"{count}x{gib}G,0.{tenths}"
    found = measured_size(
        job(request=asked, share=100 * tenths, promised=gib * GIB, peak=peak, percent=percent, workers=workers), now=NOW
    )
    assert found is not None
    share = min(100 * tenths, max(100, stepped(Fraction(percent * 12), step=100)))
    memory = min(gib * GIB, stepped(Fraction(peak * 110 // 100), step=GIB))
    is_less = share <= 100 * tenths - 100 or (not whole and memory <= (gib - 1) * GIB)
    if not is_less:
        assert (found.suggested, found.saved_gpus) == ("", 0.0)
        return
    suggested = parse(found.suggested)
    assert (suggested.count, suggested.share_milli, suggested.memory_mib) == (count, share, memory)
    assert suggested.memory_mib is not None
    assert suggested.memory_mib >= peak
    assert Fraction(found.saved_gpus).limit_denominator(1000) == Fraction(
        workers * count * (100 * tenths - share), 1000
    )
    assert found.savable_hours == found.saved_gpus


@given(**sizes)
def test_who_asks_for_a_right_size_has_one(
    tenths: int, gib: int, peak: int, percent: int, workers: int, count: int
) -> None:
    assume(peak <= gib * GIB)
    asked = str(count) if tenths == 10 else f"{count}x{gib}G,0.{tenths}"
    first = measured_size(
        job(request=asked, share=100 * tenths, promised=gib * GIB, peak=peak, percent=percent), now=NOW
    )
    assert first is not None
    assume(first.suggested)
    request = parse(first.suggested)
    again = measured_size(
        job(
            request=first.suggested, share=request.share_milli, promised=request.memory_mib or 0, peak=peak,
            percent=percent,
        ),
        now=NOW,
    )  # fmt: skip
    assert again is not None
    assert (again.suggested, again.saved_gpus) == ("", 0.0)
