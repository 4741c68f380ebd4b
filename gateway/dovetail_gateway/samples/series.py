"""The curves of a subject, from what is kept. Pure."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import numpy as np

from dovetail.answers.use.series import SeriesRow, Values
from dovetail_gateway.samples.columns import Floats
from dovetail_gateway.samples.readings import Place
from dovetail_gateway.samples.rings import Samples


def of_devices(name: str, *, samples: Samples, places: Sequence[Place]) -> SeriesRow:
    """The curves of devices together; `places` are those of the subjects of the samples, in their order."""
    gpus = np.array([each.gpus for each in places], np.float32)
    memory = np.array([each.memory_mib for each in places], np.float32)
    promised, utilization = samples.values["promised"], samples.values["utilization"]
    return SeriesRow(
        namespace="",
        name=name,
        gpus=_values(_sum(np.where(np.isnan(promised), np.nan, gpus)), digits=3),
        promised=_values(_sum(promised), digits=3),
        used=_values(_sum(utilization * gpus), digits=3),
        utilization=_values(_mean(utilization, weights=gpus), digits=4),
        memory=_values(_mean(samples.values["memory"], weights=memory), digits=4),
        power_watts=_values(_sum(samples.values["power"]), digits=0),
        temperature_celsius=_values(_largest(samples.values["temperature"]), digits=0),
        waiting=None,
        running=None,
        starts=None,
        mean_wait_seconds=None,
    )


def of_holdings(name: str, *, samples: Samples, namespace: str = "") -> SeriesRow:
    """The curves of what the subjects of the samples hold together: a job, or namespaces with their jobs."""
    sums = {column: _sum(values) for column, values in samples.values.items()}
    return SeriesRow(
        namespace=namespace,
        name=name,
        gpus=None,
        promised=_values(sums["promised"], digits=3),
        used=_values(np.where(sums["measured"] > 0, sums["used"], np.nan), digits=3),
        utilization=_values(_ratio(sums["used"], to=sums["measured"]), digits=4),
        memory=_values(_ratio(sums["memory_used"], to=sums["memory_promised"]), digits=4),
        power_watts=_values(sums["power"], digits=0),
        temperature_celsius=_values(_largest(samples.values["temperature"]), digits=0),
        waiting=_values(sums["waiting"], digits=2) if "waiting" in sums else None,
        running=_values(sums["running"], digits=2) if "running" in sums else None,
        starts=_values(sums["starts"], digits=0) if "starts" in sums else None,
        mean_wait_seconds=_values(_ratio(sums["wait_seconds"], to=sums["starts"]), digits=0)
        if "starts" in sums
        else None,
    )


def by_place(
    places: Mapping[str, Place], *, subjects: Collection[str], key: Literal["node", "model"]
) -> dict[str, list[str]]:
    """The UUIDs of devices with samples, by this part of their place."""
    found: dict[str, list[str]] = {}
    for uuid in subjects:
        if (place := places.get(uuid)) is not None:
            found.setdefault(getattr(place, key), []).append(uuid)
    return found


def between(samples: Samples, *, since: int, until: int) -> Samples:
    """The part of the samples from `since`, before `until`."""
    first = max(0, (since - samples.start) // samples.step)
    end = max(first, min(len(samples), -(-(until - samples.start) // samples.step)))
    return Samples(
        start=samples.start + first * samples.step,
        step=samples.step,
        values={name: values[first:end] for name, values in samples.values.items()},
    )


def _sum(values: Floats) -> Floats:
    """Sums over the subjects, [times]; NaN where none is known."""
    known = ~np.isnan(values)
    return np.where(known.any(axis=1), np.where(known, values, 0).sum(axis=1), np.nan).astype(np.float32)


def _mean(values: Floats, *, weights: Floats) -> Floats:
    """Weighted means over the subjects, [times]; NaN where none is known."""
    known = ~np.isnan(values)
    total = np.where(known, weights, 0).sum(axis=1)
    return _ratio(np.where(known, values * weights, 0).sum(axis=1).astype(np.float32), to=total.astype(np.float32))


def _largest(values: Floats) -> Floats:
    if not values.shape[1]:
        return np.full(len(values), np.nan, np.float32)
    found = np.where(np.isnan(values), -np.inf, values).max(axis=1)
    return np.where(np.isfinite(found), found, np.nan).astype(np.float32)


def _ratio(values: Floats, *, to: Floats) -> Floats:
    """Quotients; NaN where the divisor is 0 or not known."""
    divisor = np.where(to > 0, to, np.nan)
    return (values / divisor).astype(np.float32)


def _values(values: Floats, *, digits: int) -> Values:
    rounded = np.round(values.astype(np.float64), digits).tolist()
    return [None if each != each else each for each in rounded]  # noqa: PLR0124 - NaN
