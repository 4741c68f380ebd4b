"""What `dovetail quota` shows: a row for each namespace or user that a quota counts."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec

from dovetail.api.gpuquota import GPUQuota
from dovetail.api.resources import GPUQUOTAS
from dovetail.query.quotas import QuotaRow, QuotaUseRow, choose, quota_row
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import output

COLUMNS: Final = ("QUOTA", "WHO", "GPUS", "RUNNING", "QUEUED", "SHARES", "GPU_HOURS", "POOLS")
_HOUR_SECONDS: Final = 3600
_NO_USE: Final = QuotaUseRow(who="", gpus=0, running_jobs=0, queued_jobs=0, gpu_seconds=0)


def show(names: Collection[str], *, form: str, kubeconfig: str | None, context: str | None) -> str:
    """The text to print. Raises `NotFoundError` for a quota that does not exist."""

    async def look(cluster: Cluster) -> list[GPUQuota]:
        return list((await cluster.client.list(GPUQUOTAS, as_type=GPUQuota)).items)

    found = work(look, kubeconfig=kubeconfig, context=context, brief=True)
    chosen = [quota_row(quota) for quota in choose(found, names=names)]
    if form in {"json", "yaml"}:
        return output.render([msgspec.to_builtins(quota) for quota in chosen], columns=(), form=form)
    return output.render(list(rows(chosen)), columns=COLUMNS, form=form)


def rows(quotas: Iterable[QuotaRow]) -> Iterator[dict[str, Any]]:
    """A row for each namespace or user that a quota counts, and at least one for each quota."""
    for quota in quotas:
        for use in quota.uses or [_NO_USE]:
            yield {
                "QUOTA": quota.name,
                "WHO": _who(quota, use=use),
                "GPUS": _of(use.gpus, most=quota.limits.gpus),
                "RUNNING": _of(use.running_jobs, most=quota.limits.running_jobs),
                "QUEUED": _of(use.queued_jobs, most=quota.limits.queued_jobs),
                "SHARES": "-" if quota.shares is None else quota.shares,
                "GPU_HOURS": "-" if quota.shares is None else f"{use.gpu_seconds / _HOUR_SECONDS:.1f}",
                "POOLS": ",".join(quota.pools) or "any",
            }


def _who(quota: QuotaRow, *, use: QuotaUseRow) -> str:
    """The namespaces or users that the numbers are of."""
    if quota.per != "Together":
        return use.who or ("-" if not quota.uses else "(no name)")
    return ",".join([*quota.namespaces, *quota.users]) or "everybody"


def _of(used: float, *, most: float | None) -> str:
    return f"{used:g}" if most is None else f"{used:g}/{most:g}"
