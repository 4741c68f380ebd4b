"""What `dovetail quota` shows: a row for each namespace or user that a quota counts."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace as with_fields

from dovetail.answers.quotas import QuotaList, QuotaRow
from dovetail.api.gpuquota import GPUQuota, QuotaForecast, QuotaGuarantee, QuotaMemoryGuarantee, QuotaUse
from dovetail.api.resources import GPUQUOTAS
from dovetail.query.errors import NotFoundError
from dovetail.query.quotas.listing import quota_list
from dovetail_cli.cluster import gateway as gateways
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import output

if TYPE_CHECKING:
    from dovetail.sdk.calls.call import Call

COLUMNS: Final = ("QUOTA", "WHO", "GPUS", "RUNNING", "QUEUED", "SHARES", "GPU_HOURS", "POOLS")
TREE_COLUMNS: Final = ("QUOTA", "WHO", "GUARANTEED", "USED", "LENT", "BORROWED", "WAITING", *COLUMNS[2:])
# In GiB, after the GPUs, where a quota names memory.
MEMORY_COLUMN: Final = "MEMORY_GIB"
MEMORY_COLUMNS: Final = ("GIB_GUARANTEED", "GIB_USED", "GIB_LENT", "GIB_BORROWED", "GIB_WAITING")
_HOUR_SECONDS: Final = 3600
_GIB_MIB: Final = 1024
_NOTHING: Final = (
    "There is no GPUQuota: nothing limits who uses how much. `dovetail quota set NAME --gpus N` begins one."
)
_NO_USE: Final = QuotaUse(who="")


def show(names: Collection[str], *, form: str, kubeconfig: str | None, context: str | None) -> str:
    """The text to print. Raises `NotFoundError` for a quota that does not exist."""

    async def look(cluster: Cluster) -> QuotaList:
        async def here() -> QuotaList:
            return quota_list((await cluster.client.list(GPUQUOTAS, as_type=GPUQuota)).items)

        async def there() -> "Call[QuotaList]":
            from dovetail.sdk.calls import v3

            return v3.quotas()

        async def url() -> str | None:
            # Only a caller who may not list them waits for this import.
            from dovetail_cli.submit.profiles.effective import gateway_of

            return await gateway_of(cluster)

        return await gateways.answered(cluster, here=here, there=there, url=url)

    found = choose(work(look, kubeconfig=kubeconfig, context=context, brief=True), names=names)
    if form in {"json", "yaml"}:
        return output.render(msgspec.to_builtins(found.items), columns=(), form=form)
    table = output.render(list(rows(in_order(found.items))), columns=columns_of(found.items), form=form)
    if form != "table":
        return table
    below = [*sentences(found.items), *([] if found.items or not output.on_terminal() else [_NOTHING])]
    return "\n".join([table, *map(output.wrapped, below)])


def choose(found: QuotaList, *, names: Collection[str]) -> QuotaList:
    """The quotas of these names, or all without names. Raises `NotFoundError`."""
    missing = sorted(set(names) - {quota.name for quota in found.items})
    if missing:
        raise NotFoundError(f"no GPUQuota {', '.join(missing)}")
    return with_fields(found, items=[quota for quota in found.items if not names or quota.name in names])


def columns_of(quotas: Iterable[QuotaRow]) -> tuple[str, ...]:
    """The columns of the table: the tree's where there is one, and memory's where it is named."""
    known = list(quotas)
    in_tree = any(quota.guarantee is not None for quota in known)
    of_memory = any(quota.guarantee is not None and quota.guarantee.memory is not None for quota in known)
    limited = of_memory or any(quota.memory_mib_limit is not None for quota in known)
    before = TREE_COLUMNS[:7] if in_tree else TREE_COLUMNS[:2]
    return (
        *before,
        *(MEMORY_COLUMNS if of_memory else ()),
        "GPUS",
        *((MEMORY_COLUMN,) if limited else ()),
        *COLUMNS[3:],
    )


def in_order(quotas: Sequence[QuotaRow]) -> list[QuotaRow]:
    """The quotas with each below its parent, otherwise by name."""
    known = {quota.name: quota for quota in quotas}

    def path(quota: QuotaRow) -> tuple[str, ...]:
        names = [quota.name]
        # Parents may be missing, or form a circle.
        while (parent := known[names[-1]].parent or "") in known and parent not in names:
            names.append(parent)
        return tuple(reversed(names))

    return sorted(quotas, key=path)


def sentences(quotas: Iterable[QuotaRow]) -> Iterator[str]:
    """The lines below the table.

    They say who waits within a guarantee, who would be asked, what is ready and forecast, and what is wrong with the
    tree.
    """
    for quota in quotas:
        known = quota.guarantee
        if known is not None and known.waiting:
            asked = ", ".join(f"{each.name} ({each.gpus:g} GPUs)" for each in known.would_give)
            who = f"would be asked: {asked}" if asked else "no quota borrows what it could give back"
            yield f"{quota.name} waits for {known.waiting:g} of its {_guaranteed(known)}; {who}."
        if (ready := quota.ready) is not None and ready.gpus:
            lent = f", {ready.lent} of them used by jobs that leave in time" if ready.lent else ""
            yield f"{quota.name} keeps {ready.gpus} GPUs ready for its next replicas: {ready.ready} are ready{lent}."
        if quota.forecast is not None:
            yield f"{quota.name} {_of_forecast(quota.demand)}."
        yield from (f"{problem.message}." for problem in quota.problems)


def _of_forecast(demand: QuotaForecast | None) -> str:
    """What a quota is forecast to request in this hour, and how good such forecasts were."""
    if demand is None or demand.expected is None:
        return "has no forecast of this hour yet: no such hour of a day was observed as a whole"
    said = f"is forecast to request {demand.expected:g} GPUs in this hour, and requested {demand.peak:g} at most so far"
    if not demand.hours:
        return f"{said}; no forecast was compared yet"
    return f"{said}; past forecasts were {demand.error:.2g} GPUs off on average ({demand.hours} hours)"


def _guaranteed(known: QuotaGuarantee) -> str:
    """What a quota guarantees, in words: with memory alone, no number of GPUs."""
    if known.memory is not None and known.memory.guaranteed_mib and not known.gpus:
        return f"GPUs in {known.memory.guaranteed_mib / _GIB_MIB:g} guaranteed GiB"
    return f"{known.gpus:g} guaranteed GPUs"


def rows(quotas: Iterable[QuotaRow]) -> Iterator[dict[str, Any]]:
    """A row for each namespace or user that a quota counts, and at least one for each quota."""
    shown = list(quotas)
    parents = {quota.parent for quota in shown}
    for quota in shown:
        for use in quota.uses or [_NO_USE]:
            yield {
                "QUOTA": quota.name,
                "WHO": _who(quota, use=use, is_parent=quota.name in parents),
                **_of_tree(quota),
                "GPUS": _of(use.gpus, most=quota.gpus_limit),
                MEMORY_COLUMN: _of_gib(use.memory_mib, most_mib=quota.memory_mib_limit),
                "RUNNING": _of(use.running_jobs, most=quota.running_jobs_limit),
                "QUEUED": _of(use.queued_jobs, most=quota.queued_jobs_limit),
                "SHARES": "-" if quota.shares is None else quota.shares,
                "GPU_HOURS": "-" if quota.shares is None else f"{use.gpu_seconds / _HOUR_SECONDS:.1f}",
                "POOLS": ",".join(quota.pools) or "any",
            }


def _of_tree(quota: QuotaRow) -> dict[str, str]:
    known, says = quota.guarantee, quota.guaranteed
    if known is None:
        return dict.fromkeys((*TREE_COLUMNS[2:7], *MEMORY_COLUMNS), "-")
    scaled = "" if says is None or says <= known.gpus else f"/{says}"
    return {
        "GUARANTEED": f"{known.gpus:g}{scaled}",
        "USED": f"{known.used:g}",
        "LENT": f"{known.lent:g}",
        "BORROWED": f"{known.borrowed:g}",
        "WAITING": f"{known.waiting:g}",
        **_of_memory(known.memory),
    }


def _of_memory(known: QuotaMemoryGuarantee | None) -> dict[str, str]:
    if known is None:
        return dict.fromkeys(MEMORY_COLUMNS, "-")
    amounts = (known.guaranteed_mib, known.used_mib, known.lent_mib, known.borrowed_mib, known.waiting_mib)
    return {column: f"{mib / _GIB_MIB:g}" for column, mib in zip(MEMORY_COLUMNS, amounts, strict=True)}


def _who(quota: QuotaRow, *, use: QuotaUse, is_parent: bool) -> str:
    """The namespaces or users that the numbers are of."""
    if quota.per != "Together":
        return use.who or ("-" if not quota.uses else "(no name)")
    named = ",".join([*quota.namespaces, *quota.projects, *quota.users])
    # The status, which has the guarantee, comes some time after the quota.
    return named or ("its children" if is_parent or quota.guarantee is not None else "everybody")


def _of_gib(used_mib: int, *, most_mib: int | None) -> str:
    return _of(used_mib / _GIB_MIB, most=None if most_mib is None else most_mib / _GIB_MIB)


def _of(used: float, *, most: float | None) -> str:
    return f"{used:g}" if most is None else f"{used:g}/{most:g}"
