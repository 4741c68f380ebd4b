"""The curves of a subject, from what is kept. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dovetail.answers.use.series import NodeThen, SeriesRow
from dovetail_gateway.samples.columns import Floats
from dovetail_gateway.samples.readings import Place
from dovetail_gateway.samples.rings import Samples


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSums:
    """What devices are together at each time, [times]; NaN where it is not known.

    gpus         the GPUs that they count as
    promised     what of them pods hold, in GPUs
    measured     the GPUs whose utilization is known
    used         what of these is at work, in GPUs
    memory_used  their memory in use, in any unit
    memory       the memory of those whose use is known, in the same unit
    power        their power draw in watts
    temperature  that of the hottest one, in °C
    """

    gpus: Floats
    promised: Floats
    measured: Floats
    used: Floats
    memory_used: Floats
    memory: Floats
    power: Floats
    temperature: Floats


def of_devices(name: str, *, samples: Samples, places: Sequence[Place]) -> SeriesRow:
    """The curves of devices together; `places` are those of the subjects of the samples, in their order."""
    gpus = np.array([each.gpus for each in places], np.float32)
    mib = np.array([each.memory_mib for each in places], np.float32)
    promised, utilization = samples.values["promised"], samples.values["utilization"]
    memory = samples.values["memory"]
    sums = DeviceSums(
        gpus=_sum(np.where(np.isnan(promised), np.nan, gpus)),
        promised=_sum(promised),
        measured=_sum(np.where(np.isnan(utilization), np.nan, gpus)),
        used=_sum(utilization * gpus),
        memory_used=_sum(memory * mib),
        memory=_sum(np.where(np.isnan(memory), np.nan, mib)),
        power=_sum(samples.values["power"]),
        temperature=_largest(samples.values["temperature"]),
    )
    return of_sums(name, sums=sums)


def of_sums(name: str, *, sums: DeviceSums) -> SeriesRow:
    """The curves of devices, by their sums."""
    return SeriesRow(
        namespace="",
        name=name,
        gpus=_values(sums.gpus, digits=3),
        promised=_values(sums.promised, digits=3),
        used=_values(sums.used, digits=3),
        utilization=_values(_ratio(sums.used, to=sums.measured), digits=4),
        memory=_values(_ratio(sums.memory_used, to=sums.memory), digits=4),
        power_watts=_values(sums.power, digits=0),
        temperature_celsius=_values(sums.temperature, digits=0),
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


def of_nodes(samples: Samples, *, subjects: Sequence[str], places: Mapping[str, Place]) -> list[NodeThen]:
    """The devices at the only time of the samples, by node; nodes without any value are left out."""
    found = list[NodeThen]()
    row = {uuid: at for at, uuid in enumerate(subjects)}
    for name, uuids in sorted(by_place(places, subjects=subjects, key="node").items()):
        ordered = sorted(uuids, key=lambda uuid: places[uuid].index)
        columns = [row[uuid] for uuid in ordered]
        values = {column: kept[0, columns] for column, kept in samples.values.items()}
        if all(np.isnan(each).all() for each in values.values()):
            continue
        found.append(
            NodeThen(
                name=name,
                indexes=[places[uuid].index for uuid in ordered],
                promised=_values(values["promised"], digits=3),
                utilization=_values(values["utilization"], digits=3),
                memory=_values(values["memory"], digits=3),
                temperature_celsius=_values(values["temperature"], digits=0),
            )
        )
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


def _largest(values: Floats) -> Floats:
    if not values.shape[1]:
        return np.full(len(values), np.nan, np.float32)
    found = np.where(np.isnan(values), -np.inf, values).max(axis=1)
    return np.where(np.isfinite(found), found, np.nan).astype(np.float32)


def _ratio(values: Floats, *, to: Floats) -> Floats:
    """Quotients; NaN where the divisor is 0 or not known."""
    divisor = np.where(to > 0, to, np.nan)
    return (values / divisor).astype(np.float32)


def _values(values: Floats, *, digits: int) -> list[float | None]:
    rounded = np.round(values.astype(np.float64), digits).tolist()
    return [None if each != each else each for each in rounded]  # noqa: PLR0124 - NaN
