"""What a GPUJob says about the places of its workers: its topology, and how its template spreads its pods. Pure."""

from collections.abc import Iterator

from dovetail.api.gpujob import GPUJob, TopologySpec
from dovetail.engine.model.topology import HOSTNAME, Level, Spread, Topology
from dovetail.formats.suggestions import suggestion
from dovetail.gpu.request import RequestError
from dovetail.pods.anti_affinity import labels_apart, labels_of_worker, selects
from dovetail.pods.template_types import TemplateSpec


def topology_of(job: GPUJob, *, where: TemplateSpec, levels: tuple[Level, ...]) -> Topology | None:
    """The rules of a job's gang; None for a single worker. Raises `RequestError` for a level that is not configured.

    `where` is what its pods say about placement, and `levels` are the configured ones, from wide to narrow.
    """
    asked = job.spec.topology or TopologySpec()
    groups = asked.sub_groups
    named = {
        "required": asked.required or "",
        "preferred": asked.preferred or "",
        "subGroups.required": "" if groups is None else groups.required,
    }
    for field, name in named.items():
        _check_configured(name, field=field, levels=levels)
    for field in ("preferred", "subGroups.required"):
        _check_narrower(named[field], field=field, required=named["required"], levels=levels)
    if job.spec.workers == 1:
        return None
    return Topology(
        levels=levels,
        required=named["required"],
        preferred=named["preferred"],
        group_size=0 if groups is None else groups.size,
        group_level=named["subGroups.required"],
        spreads=tuple(_spreads(job, where=where)),
    )


def _check_configured(name: str, *, field: str, levels: tuple[Level, ...]) -> None:
    known = [level.name for level in levels]
    if name and name not in known:
        listed = f"the levels are {', '.join(known)}" if known else "no level is configured"
        hint = suggestion(name, known=known)
        raise RequestError(
            name, field=f"topology.{field}", problem=f"no such level is configured (topology_levels): {listed}{hint}",
            example=f"{field}: {known[0]}" if known else "no topology",
        )  # fmt: skip


def _check_narrower(name: str, *, field: str, required: str, levels: tuple[Level, ...]) -> None:
    known = [level.name for level in levels]
    if not name or not required or known.index(name) > known.index(required):
        return
    narrower = known[known.index(required) + 1 :]
    raise RequestError(
        name, field=f"topology.{field}", problem=f"must be narrower than required, which is {required}",
        example=f"{field}: {narrower[0]}" if narrower else f"required: {known[0]}",
    )  # fmt: skip


def _spreads(job: GPUJob, *, where: TemplateSpec) -> Iterator[Spread]:
    """How the template spreads the job's own workers. One worker for each node is `Ask.apart`."""
    for label in labels_apart(job, where=where):
        if label != HOSTNAME:
            yield Spread(label=label, most=1)
    labels = labels_of_worker(job)
    for each in where.topology_spread_constraints:
        if each.when_unsatisfiable != "DoNotSchedule" or each.max_skew < 1:
            continue
        if selects(each.label_selector, labels=labels, same=each.match_label_keys):
            yield Spread(label=each.topology_key, max_skew=each.max_skew, min_domains=each.min_domains or 1)
