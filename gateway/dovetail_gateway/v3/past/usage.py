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
from dovetail.query.right_sizes import measured_size, saved_by_accepted
from dovetail_gateway.cluster.cache import ClusterCache
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.routing.table import Answer, Call, Nothing
from dovetail_gateway.samples.readings import Holding, Place
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.usage import Account, Used, spent
from dovetail_gateway.v3.times import check_time
from dovetail_gateway.v3.types.series import UsageQuery

_DAYS: Final = timedelta(days=30)
_HOUR: Final = 3600.0
_NOTHING: Final = Used()


class GPUTime:
    """The handler of `/api/v3/usage`."""

    def __init__(self, cache: ClusterCache, *, sampler: Sampler, now: Callable[[], datetime]) -> None:
        self._cache = cache
        self._sampler = sampler
        self._now = now

    async def get_usage(self, call: Call[Nothing, UsageQuery, Any]) -> Answer:
        """GPU time of the namespaces that the caller may list, by group, the most first."""
        wanted = call.query
        since, until = self._days(wanted)
        prices = {normalise(model).family: price for model, price in self._cache.settings.gpu_hour_prices.items()}
        used = {
            account: each
            for account, each in self._sampler.ledger.between(since, until=until).items()
            if call.sees.sees(account.namespace) and wanted.namespace in {None, account.namespace}
        }
        savings = await self._savings(used)
        groups: dict[str, list[Account]] = defaultdict(list)
        for account in used:
            groups[_group(account, by=wanted.by)].append(account)
        rows = [_row(group, of=of, used=used, savings=savings, prices=prices) for group, of in groups.items()]
        order = (lambda row: (row.group,)) if wanted.by == "Day" else (lambda row: (-row.gpu_hours, row.group))
        first = self._sampler.ledger.first_day
        found = Usage(
            since=since.isoformat(),
            until=until.isoformat(),
            kept_since=None if first is None else first.isoformat(),
            currency=self._cache.settings.currency,
            items=sorted(rows, key=order),
            total=_row("", of=list(used), used=used, savings=savings, prices=prices),
        )
        return Answer(value=found)

    async def _savings(self, accounts: Collection[Account]) -> Mapping[Account, "_Saved"]:
        """What right sizes save on these accounts."""
        if not accounts:
            return {}
        now, namespaces = self._now(), {account.namespace for account in accounts}
        first = datetime.combine(min(account.day for account in accounts), datetime.min.time(), UTC)
        jobs = [
            self._cache.with_figures(job, now=now)
            for job in self._cache.jobs.values()
            if job.metadata.namespace in namespaces and _has_run_since(job, first=first)
        ]
        # In a thread: thousands of jobs take a while, and the objects never change.
        places = dict(self._sampler.places)
        return await asyncio.to_thread(_savings_of, jobs, accounts=accounts, places=places, first=first, now=now)

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
    jobs: Iterable[GPUJob],
    *,
    accounts: Collection[Account],
    places: Mapping[str, Place],
    first: datetime,
    now: datetime,
) -> dict[Account, _Saved]:
    """What these jobs could save and have saved on these accounts, since the `first` moment of them.

    `places` are those of devices, by UUID.
    """
    savable, saved = list[Holding](), list[Holding]()
    for job in jobs:
        found = measured_size(job, now=now)
        savable += _on_devices(job, gpus=0.0 if found is None else found.saved_gpus, places=places)
        saved += _on_devices(job, gpus=saved_by_accepted(job), places=places)
    could, have = spent(savable, since=first, until=now), spent(saved, since=first, until=now)
    return {
        account: _Saved(
            savable_seconds=could.get(account, _NOTHING).gpu_seconds,
            saved_seconds=have.get(account, _NOTHING).gpu_seconds,
        )
        for account in accounts
        if account in could or account in have
    }


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
