"""v3: who used how much GPU time."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from dovetail.answers.owners import project_of, user_of
from dovetail.answers.use.usage import Usage, UsageGroup, UsageRow
from dovetail.api.gpujob import GPUJob
from dovetail.api.reasons import problems as says
from dovetail.formats.timestamps import moment
from dovetail.gpu.models import normalise
from dovetail.jobs.runs import end_of_run
from dovetail.query.right_sizes import MeasuredJob
from dovetail_gateway.access.visibility import Visibility
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.cluster.measured_jobs import MeasuredJobs
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.samples.readings import Holding, Place
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.usage import Account, Used, counted_as, spent
from dovetail_gateway.v3.times import check_time
from dovetail_gateway.v3.types.series import UsageQuery

_DAYS: Final = timedelta(days=30)
_HOUR: Final = 3600.0


class GPUTime:
    """The handler of `/api/v3/usage`."""

    def __init__(
        self, cache: ClusterCache, *, measured: MeasuredJobs, sampler: Sampler, now: Callable[[], datetime]
    ) -> None:
        self._cache = cache
        self._measured = measured
        self._sampler = sampler
        self._now = now

    async def get_usage(self, call: Call[Nothing, UsageQuery, Any]) -> Answer:
        """GPU time of the namespaces that the caller may list, by group, the most first."""
        wanted, settings, ledger = call.query, self._cache.settings, self._sampler.ledger
        since, until = self._days(wanted)
        jobs = await self._measured.all(now=self._now())
        question = _Question(
            wanted=wanted,
            since=since,
            until=until,
            now=self._now(),
            first_day=ledger.first_day,
            sees=call.sees,
            prices={normalise(model).family: price for model, price in settings.gpu_hour_prices.items()},
            currency=settings.currency,
            places=dict(self._sampler.places),
        )
        # In a thread: months of thousands of jobs take a while.
        return Answer(
            value=await asyncio.to_thread(_usage_of, ledger.between(since, until=until), jobs=jobs, asked=question)
        )

    def _days(self, wanted: UsageQuery) -> tuple[date, date]:
        """The first day, and the day before which it ends. Raises `RequestFailedError`."""
        check_time("since", text=wanted.since)
        check_time("until", text=wanted.until)
        tomorrow = (self._now() + timedelta(days=1)).astimezone(UTC).date()
        until = tomorrow if wanted.until is None else moment(wanted.until).astimezone(UTC).date()
        since = until - _DAYS if wanted.since is None else moment(wanted.since).astimezone(UTC).date()
        if since >= until:
            sentence = says.NOT_A_DAY_BEFORE(since=str(wanted.since), until=str(until))
            raise RequestFailedError(422, reason="Invalid", sentence=sentence)
        return since, until


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What is asked, by whom, and what is known at this moment; `places` are those of devices, by UUID."""

    wanted: UsageQuery
    since: date
    until: date
    now: datetime
    first_day: date | None
    sees: Visibility
    prices: Mapping[str, float]
    currency: str
    places: Mapping[str, Place]

    def shows(self, namespace: str) -> bool:
        """Whether the answer has what was used in the namespace."""
        return self.sees.sees(namespace) and self.wanted.namespace in {None, namespace}


def _usage_of(counted: Mapping[Account, Used], *, jobs: Iterable[MeasuredJob], asked: _Question) -> Usage:
    used = {account: each for account, each in counted.items() if asked.shows(account.namespace)}
    savings = _savings_of(
        (each for each in jobs if asked.shows(each.job.metadata.namespace)), accounts=used, asked=asked
    )
    groups: dict[str, list[Account]] = defaultdict(list)
    for account in used:
        groups[_group(account, by=asked.wanted.by)].append(account)
    prices = asked.prices
    rows = [_row(group, of=of, used=used, savings=savings, prices=prices) for group, of in groups.items()]
    order = (lambda row: (row.group,)) if asked.wanted.by == "Day" else (lambda row: (-row.gpu_hours, row.group))
    return Usage(
        since=asked.since.isoformat(),
        until=asked.until.isoformat(),
        kept_since=None if asked.first_day is None else asked.first_day.isoformat(),
        currency=asked.currency,
        items=sorted(rows, key=order),
        total=_row("", of=list(used), used=used, savings=savings, prices=prices),
    )


def _group(account: Account, *, by: UsageGroup) -> str:
    return {
        "Namespace": account.namespace,
        "Project": account.project,
        "User": account.user,
        "Model": account.model,
        "Day": account.day.isoformat(),
    }[by]


def _row(
    group: str,
    *,
    of: Iterable[Account],
    used: Mapping[Account, Used],
    savings: Mapping[Account, "_Saved"],
    prices: Mapping[str, float],
) -> UsageRow:
    hours: dict[str, float] = defaultdict(float)
    at_work = savable = saved = 0.0
    for account in of:
        hours[account.model] += used[account].gpu_seconds / _HOUR
        at_work += used[account].used_seconds / _HOUR
        of_it = savings.get(account, _Saved())
        savable += of_it.savable_seconds / _HOUR
        saved += of_it.saved_seconds / _HOUR
    priced = {model: value for model, value in hours.items() if model in prices}
    return UsageRow(
        group=group,
        gpu_hours=round(sum(hours.values()), 4),
        used_hours=round(at_work, 4),
        cost=round(sum(value * prices[model] for model, value in priced.items()), 2) if priced else None,
        unpriced_hours=round(sum(hours.values()) - sum(priced.values()), 4),
        savable_hours=round(savable, 4),
        saved_hours=round(saved, 4),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """GPU seconds that right sizes would save, and that accepted ones have saved."""

    savable_seconds: float = 0.0
    saved_seconds: float = 0.0


def _savings_of(
    jobs: Iterable[MeasuredJob], *, accounts: Collection[Account], asked: _Question
) -> dict[Account, _Saved]:
    """What these jobs could save and have saved on these accounts, since the first moment of them."""
    if not accounts:
        return {}
    first = datetime.combine(min(account.day for account in accounts), datetime.min.time(), UTC)
    savable, saved = list[Holding](), list[Holding]()
    for each in jobs:
        if _has_run_since(each.job, first=first):
            savable_gpus = 0.0 if each.size is None else each.size.saved_gpus
            savable += _on_devices(each.job, gpus=savable_gpus, places=asked.places)
            saved += _on_devices(each.job, gpus=each.saved_gpus, places=asked.places)
    could = _of_accounts(spent(savable, since=first, until=asked.now), accounts=accounts)
    have = _of_accounts(spent(saved, since=first, until=asked.now), accounts=accounts)
    return {
        account: _Saved(savable_seconds=could[account], saved_seconds=have[account])
        for account in accounts
        if account in could or account in have
    }


def _of_accounts(found: Mapping[Account, Used], *, accounts: Collection[Account]) -> dict[Account, float]:
    seconds: dict[Account, float] = defaultdict(float)
    for account, used in found.items():
        seconds[counted_as(account, among=accounts)] += used.gpu_seconds
    return seconds


def _has_run_since(job: GPUJob, *, first: datetime) -> bool:
    end = end_of_run(job.status)
    return job.status.start_time is not None and (end is None or moment(end) > first)


def _on_devices(job: GPUJob, *, gpus: float, places: Mapping[str, Place]) -> Iterator[Holding]:
    """Those GPUs over the job's latest run, evenly over its devices."""
    devices, end, start = job.status.devices, end_of_run(job.status), job.status.start_time
    if not gpus or start is None:
        return
    for device in devices:
        place = places.get(device.uuid)
        yield Holding(
            namespace=job.metadata.namespace,
            pod="",
            job=job.metadata.uid,
            project=project_of(job),
            user=user_of(job) or "",
            model="" if place is None else place.model,
            promised=gpus / len(devices),
            utilization=None,
            memory_used_mib=None,
            memory_promised_mib=0.0,
            power_watts=None,
            temperature=None,
            since=moment(start),
            until=None if end is None else moment(end),
        )
