"""What `dovetail quota` shows: a row for each whom a quota counts. The rows are pure; `show` looks."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

from dovetail.api.gpuquota import GPUQuota, QuotaUse
from dovetail.api.resources import GPUQUOTAS
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError

COLUMNS: Final = ("QUOTA", "WHO", "GPUS", "RUNNING", "QUEUED", "SHARES", "GPU_HOURS", "POOLS")
_HOUR_SECONDS: Final = 3600


def show(names: Collection[str], *, form: str, kubeconfig: str | None, context: str | None) -> str:
    """The text to print. Raises `MissingError` for a quota that there is not."""

    async def look(cluster: Cluster) -> list[GPUQuota]:
        return list((await cluster.client.list(GPUQUOTAS, as_type=GPUQuota)).items)

    chosen = choose(work(look, kubeconfig=kubeconfig, context=context, brief=True), names=names)
    if form in {"json", "yaml"}:
        return output.render([record(quota) for quota in chosen], columns=(), form=form)
    return output.render(list(rows(chosen)), columns=COLUMNS, form=form)


def choose(quotas: Iterable[GPUQuota], *, names: Collection[str]) -> list[GPUQuota]:
    """The quotas by name, those that are named or all. Raises `MissingError`."""
    found = sorted(quotas, key=lambda quota: quota.metadata.name)
    missing = sorted(set(names) - {quota.metadata.name for quota in found})
    if missing:
        raise MissingError(f"no GPUQuota {', '.join(missing)}")
    return [quota for quota in found if not names or quota.metadata.name in names]


def rows(quotas: Iterable[GPUQuota]) -> Iterator[dict[str, Any]]:
    """A row for each whom a quota counts, one at least for each quota."""
    for quota in quotas:
        spec = quota.spec
        for use in quota.status.uses or [QuotaUse(who="")]:
            yield {
                "QUOTA": quota.metadata.name,
                "WHO": _who(quota, use),
                "GPUS": _of(use.gpus, spec.gpus),
                "RUNNING": _of(use.running_jobs, spec.running_jobs),
                "QUEUED": _of(use.queued_jobs, spec.queued_jobs),
                "SHARES": "-" if spec.shares is None else spec.shares,
                "GPU_HOURS": "-" if spec.shares is None else f"{use.gpu_seconds / _HOUR_SECONDS:.1f}",
                "POOLS": ",".join(spec.pools) or "any",
            }


def record(quota: GPUQuota) -> dict[str, Any]:
    """The quota as programs read it: what is not limited is null."""
    spec, status = quota.spec, quota.status
    return {
        "name": quota.metadata.name,
        "namespaces": list(spec.namespaces),
        "users": list(spec.users),
        "per": spec.per,
        "shares": spec.shares,
        "pools": list(spec.pools),
        "max_priority": spec.max_priority,
        "may_preempt": spec.may_preempt,
        "limits": {"gpus": spec.gpus, "running_jobs": spec.running_jobs, "queued_jobs": spec.queued_jobs},
        "used": {"gpus": status.gpus, "running_jobs": status.running_jobs, "queued_jobs": status.queued_jobs},
        "uses": [
            {
                "who": use.who,
                "gpus": use.gpus,
                "running_jobs": use.running_jobs,
                "queued_jobs": use.queued_jobs,
                "gpu_seconds": use.gpu_seconds,
            }
            for use in status.uses
        ],
        "reservations": [
            {"name": each.name, "start": each.start, "end": each.end, "gpus": each.gpus, "pool": each.pool}
            for each in spec.reservations
        ],
    }


def _who(quota: GPUQuota, use: QuotaUse) -> str:
    """Whom the numbers are of."""
    if quota.spec.per != "Together":
        return use.who or ("-" if not quota.status.uses else "(no name)")
    return ",".join([*quota.spec.namespaces, *quota.spec.users]) or "everybody"


def _of(used: float, most: int | None) -> str:
    return f"{used:g}" if most is None else f"{used:g}/{most}"
