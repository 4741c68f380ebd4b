"""`dovetail quota plan FILE`: what GPUQuotas in a file would do, before they are applied."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import msgspec

from dovetail.answers.quotas import MemoryChange, QuotaPlan
from dovetail.api.crd import structural_schema
from dovetail.api.gpuquota import KIND, GPUQuota
from dovetail.api.schema_problems import first_problem
from dovetail.cluster.objects import ClusterObjects
from dovetail.decoding import UnreadableError, convert
from dovetail.formats.yaml_text import YAMLTextError, load_all_yaml
from dovetail.names import API_VERSION
from dovetail.query.quotas.changes import problem_of
from dovetail.query.quotas.plan import plan_quotas
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.cluster.snapshot import take
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import UsageError
from dovetail_cli.ui.files import read_text
from dovetail_cli.ui.progress import patiently
from dovetail_cli.ui.times import utc_now

COLUMNS: Final = ("QUOTA", "GUARANTEED", "WOULD_BE", "USED")
# Where a quota names memory.
MEMORY_COLUMNS: Final = ("GIB_GUARANTEED", "GIB_WOULD_BE", "GIB_USED")
_GIB_MIB: Final = 1024


def read(file: str) -> list[GPUQuota]:
    """The GPUQuotas of a YAML or JSON file.

    Raises `UsageError`, and `MissingError` for a file that does not exist.
    """
    try:
        documents = [each for each in load_all_yaml(read_text(file)) if each is not None]
    except YAMLTextError as error:
        raise UsageError(f"{file}: expected YAML or JSON ({error})") from error
    found = [_quota(each, number=number, file=file) for number, each in enumerate(_items(documents), start=1)]
    if not found:
        raise UsageError(f"{file}: it has no GPUQuota")
    for one, other in pairwise(sorted(quota.metadata.name for quota in found)):
        if one == other:
            raise UsageError(f"{file}: GPUQuota {one} is in it twice, and only one of them can count")
    return found


def _items(documents: list[Any]) -> Iterator[Any]:
    """The objects of the documents; a List is its items."""
    for each in documents:
        if isinstance(each, dict) and each.get("kind") == "List" and isinstance(each.get("items"), list):
            yield from each["items"]
        else:
            yield each


def _quota(document: Any, *, number: int, file: str) -> GPUQuota:
    if not isinstance(document, dict) or (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise UsageError(f"{file}: document {number} must be a {KIND} of {API_VERSION}")
    try:
        if problem := first_problem(document, schema=structural_schema(GPUQuota)):
            raise UsageError(f"{file}: document {number}: {problem}")
        quota = convert(document, as_type=GPUQuota)
    except UnreadableError as error:
        raise UsageError(f"{file}: document {number}: {error}") from error
    if not quota.metadata.name:
        raise UsageError(f"{file}: document {number} has no metadata.name")
    if "spec" not in document:
        raise UsageError(f"{file}: GPUQuota {quota.metadata.name} has no spec")
    if problem := problem_of(quota):
        raise UsageError(f"{file}: GPUQuota {quota.metadata.name}: {problem}")
    return quota


def show(file: str, *, form: str, kubeconfig: str | None, context: str | None) -> tuple[str, bool]:
    """What the quotas of the file would do now, as text, and whether they contradict each other."""
    changed = read(file)

    async def look(cluster: Cluster) -> ClusterObjects:
        with patiently() as say:
            return await take(cluster, say=say)

    objects = work(look, kubeconfig=kubeconfig, context=context)
    found = plan_quotas(objects, changed=changed, now=utc_now())
    if form in {"json", "yaml"}:
        return output.render([msgspec.to_builtins(found)], columns=(), form=form), found.is_refused
    of_memory = any(quota.memory is not None for quota in found.quotas)
    columns = (*COLUMNS, *MEMORY_COLUMNS) if of_memory else COLUMNS
    text = "\n".join([output.render(list(rows(found)), columns=columns, form=form), *sentences(found)])
    return text, found.is_refused


def rows(found: QuotaPlan) -> Iterator[dict[str, Any]]:
    """A row for each quota of the tree."""
    for quota in found.quotas:
        yield {
            "QUOTA": quota.name,
            "GUARANTEED": _amount(quota.before),
            "WOULD_BE": _amount(quota.after),
            "USED": f"{quota.used:g}",
            **_of_memory(quota.memory),
        }


def _of_memory(memory: MemoryChange | None) -> dict[str, str]:
    if memory is None:
        return {}
    amounts = (memory.before_mib, memory.after_mib, memory.used_mib)
    gib = [None if mib is None else mib / _GIB_MIB for mib in amounts]
    return {column: _amount(each) for column, each in zip(MEMORY_COLUMNS, gib, strict=True)}


def sentences(found: QuotaPlan) -> Iterator[str]:
    """Contradictions, and the jobs that would start, wait or end."""
    yield from (f"{each}." for each in found.contradictions)
    for ended in found.ends:
        yield f"{ended.job} would be ended for {ended.by}: {ended.reason}."
    if found.starts:
        yield f"Would start now: {', '.join(found.starts)}."
    if found.waits:
        yield f"Would no longer start now: {', '.join(found.waits)}."
    if not (found.contradictions or found.ends or found.starts or found.waits):
        yield "No contradictions, and no job starts or ends because of it now."


def _amount(gpus: float | None) -> str:
    return "-" if gpus is None else f"{gpus:g}"
