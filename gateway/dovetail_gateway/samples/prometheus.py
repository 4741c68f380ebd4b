"""A Prometheus that scrapes the agents, as the source of the curves of devices. The only place that asks it."""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
import numpy as np

from dovetail.answers.use.series import SeriesRow
from dovetail.api.reasons import problems as says
from dovetail.decoding import UnreadableError, decode
from dovetail.gpu.models import normalise
from dovetail_gateway.access.shared_calls import SharedCalls
from dovetail_gateway.outgoing import OutgoingClient
from dovetail_gateway.samples.columns import Floats
from dovetail_gateway.samples.rings import Grid
from dovetail_gateway.samples.series import DeviceSums, of_sums
from dovetail_gateway.samples.sources import MOST_KEPT, Group, NoSamplesError, SourceError

_SECONDS: Final = 10.0
_MOST_BYTES: Final = 32 << 20
# After a failure it is not asked again for a while: a page asks for several curves, each of them in 8 queries.
_REST_SECONDS: Final = 15.0
# A shorter window has no sample of a target that is scraped every minute.
_LEAST_WINDOW_SECONDS: Final = 120
_GROUPS: Final[Mapping[Group, tuple[str, ...]]] = {
    "Cluster": (),
    "Model": ("model",),
    "Node": ("node",),
    "Device": ("index",),
}
# By sum: the aggregation over devices, the function over a step, and the metric.
_SUMS: Final = {
    "gpus": ("count", "avg_over_time", "dovetail_device_promised_share_ratio"),
    "promised": ("sum", "avg_over_time", "dovetail_device_promised_share_ratio"),
    "measured": ("count", "avg_over_time", "dovetail_device_utilization_ratio"),
    "used": ("sum", "avg_over_time", "dovetail_device_utilization_ratio"),
    "memory_used": ("sum", "avg_over_time", "dovetail_device_memory_used_bytes"),
    "memory": ("sum", "avg_over_time", "dovetail_device_memory_total_bytes"),
    "power": ("sum", "avg_over_time", "dovetail_device_power_watts"),
    "temperature": ("max", "max_over_time", "dovetail_device_temperature_celsius"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions:
    """Which Prometheus, and how it is asked.

    - `url`: its address, without a slash at the end and without `/api/v1`
    - `labels`: what its series must have, where it has those of several clusters
    - `ca_file`: certificates that its certificate is signed with; None for those of the system
    - `token_file`: the bearer token, which is read at each request, since others renew it; None for none
    """

    url: str
    labels: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    token_file: Path | None = None


class _Curve(msgspec.Struct, frozen=True, kw_only=True):
    metric: dict[str, str]
    # A number as text: it may be NaN or infinite, for which JSON has no numbers.
    values: list[tuple[float, str]]


class _Data(msgspec.Struct, frozen=True, kw_only=True):
    result: list[_Curve] = []


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    error: str = ""
    data: _Data = _Data()


class Prometheus(OutgoingClient):
    """The curves from one Prometheus. Use it in `async with`."""

    def __init__(self, options: PrometheusOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(ca_file=options.ca_file, seconds=_SECONDS)
        self._options = options
        self._clock = clock
        self._kept: OrderedDict[tuple[Group, str | None, Grid], list[SeriesRow]] = OrderedDict()
        self._calls: SharedCalls[tuple[Group, str | None, Grid], list[SeriesRow]] = SharedCalls()
        self._problem, self._rests_until = "", -inf

    async def rows(self, of: Group, *, name: str | None, times: Grid) -> list[SeriesRow]:
        """The curves of the subject. Raises `NoSamplesError` and `SourceError`."""
        key = (of, name, times)
        if (kept := self._kept.get(key)) is not None:
            return kept
        if self._clock() < self._rests_until:
            raise SourceError(self._problem)
        try:
            found = await self._calls.result(key, of=lambda: self._read(of, name=name, times=times))
        except SourceError as error:
            self._problem, self._rests_until = str(error), self._clock() + _REST_SECONDS
            raise
        self._kept[key] = found
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    async def _read(self, of: Group, *, name: str | None, times: Grid) -> list[SeriesRow]:
        asked = queries(of, name=name, step=times.step, labels=self._options.labels)
        answers = await asyncio.gather(*(self._ask(query, times=times) for query in asked.values()))
        try:
            found = sums(dict(zip(asked, answers, strict=True)), of=of, times=times)
        except (ValueError, OverflowError) as error:
            raise self._wrong(f"answers with a sample that is no number: {error}") from error
        if of == "Model" and name is not None:
            found = {each: its for each, its in found.items() if each == name}
        if not found and name is not None:
            raise NoSamplesError(says.PROMETHEUS_HAS_NO_SAMPLES(name=name))
        order = sorted(found, key=lambda each: (int(each) if each.isdecimal() else 0, each))
        return [of_sums(each, sums=found[each]) for each in order]

    async def _ask(self, query: str, *, times: Grid) -> Sequence[_Curve]:
        """The curves of one query. A step has what is known at its end."""
        first = times.start + times.step
        form = {
            "query": query,
            "start": str(first),
            "end": str(first + (times.count - 1) * times.step),
            "step": str(times.step),
            "timeout": f"{_SECONDS:g}s",
        }
        status, text = await self._post(form)
        try:
            answer = decode(text, as_type=_Answer)
        except UnreadableError as error:
            raise self._wrong(f"answers with status {status}, and not as a Prometheus does: compare the URL") from error
        if answer.status != "success":
            raise self._wrong(f"refuses the query: {answer.error}")
        return answer.data.result

    async def _post(self, form: Mapping[str, str]) -> tuple[int, bytes]:
        assert self._http is not None, "use it in `async with`"
        try:
            async with self._http.post(
                f"{self._options.url}/api/v1/query_range", data=form, headers=self._headers(), allow_redirects=False
            ) as response:
                text = bytearray()
                async for part in response.content.iter_any():
                    text += part
                    if len(text) > _MOST_BYTES:
                        raise self._wrong(f"answers with more than {_MOST_BYTES >> 20} MiB")
        except (aiohttp.ClientError, OSError) as error:
            why = str(error) or f"no answer within {_SECONDS:g} s"
            raise self._wrong(f"does not answer: {why}") from error
        if response.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            token = "the token" if self._options.token_file else "a request without a token"
            raise self._wrong(f"does not accept {token} (status {response.status})")
        return response.status, bytes(text)

    def _headers(self) -> dict[str, str]:
        file = self._options.token_file
        if file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {file.read_text(encoding='utf-8').strip()}"}
        except (OSError, ValueError) as error:
            raise self._wrong(f"cannot be asked: its token cannot be read: {error}") from error

    def _wrong(self, what: str) -> SourceError:
        return SourceError(f"Prometheus at {self._options.url} {what}")


def queries(of: Group, *, name: str | None, step: int, labels: Mapping[str, str]) -> dict[str, str]:
    """The query of each sum over the devices of a subject."""
    wanted = dict(labels)
    if of in {"Node", "Device"} and name is not None:
        wanted["node"] = name
    # A quoted string of JSON is one of PromQL.
    where = ", ".join(f"{label}={json.dumps(value)}" for label, value in wanted.items())
    by = ", ".join(_GROUPS[of])
    window = max(step, _LEAST_WINDOW_SECONDS)
    return {
        each: f"{over_devices} by ({by}) ({over_time}({metric}{{{where}}}[{window}s]))"
        for each, (over_devices, over_time, metric) in _SUMS.items()
    }


def sums(answers: Mapping[str, Sequence[_Curve]], *, of: Group, times: Grid) -> dict[str, DeviceSums]:
    """The sums by the subject's name. Models that count as one are added up."""
    found: dict[str, dict[str, Floats]] = {}
    for each, curves in answers.items():
        for curve in curves:
            group = "".join(curve.metric.get(label, "") for label in _GROUPS[of])
            name = normalise(group).family if of == "Model" else group
            own = found.setdefault(name, {})
            values = _values(curve, times=times)
            known = own.get(each)
            own[each] = values if known is None else _together(known, other=values, largest=each == "temperature")
    nothing = np.full(times.count, np.nan, np.float32)
    names = [each.name for each in fields(DeviceSums)]
    return {name: DeviceSums(**{each: own.get(each, nothing) for each in names}) for name, own in found.items()}


def _values(curve: _Curve, *, times: Grid) -> Floats:
    found = np.full(times.count, np.nan, np.float32)
    for at, text in curve.values:
        index = round((at - times.start) / times.step) - 1
        if 0 <= index < times.count:
            found[index] = float(text)
    return found


def _together(values: Floats, *, other: Floats, largest: bool) -> Floats:
    both = np.fmax(values, other) if largest else values + other
    return np.where(np.isnan(values), other, np.where(np.isnan(other), values, both)).astype(np.float32)
