"""Read what the audit checks: nodes, devices, pods and jobs of the whole cluster.

The rules follow the cluster's configuration.
"""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import msgspec

from dovetail import names
from dovetail.answers.questions import Audit, Finding
from dovetail.api.builtin import Node, Pod, ResourceSlice
from dovetail.api.gpunode import GPUNode
from dovetail.api.meta import ObjectMeta
from dovetail.api.resources import GPUNODES, GPUQUOTAS, NODES, PODS, Resource
from dovetail.audit.allocations import OLDER_THAN_SECONDS, Rules, audit
from dovetail.audit.quota_use import DatedQuota
from dovetail.kube.errors import Forbidden
from dovetail.kube.queries.cluster import read_settings
from dovetail.kube.resource_slices import list_slices
from dovetail.query.audit import confirmed, is_final, rules_of, with_findings
from dovetail_cli.cluster.connection import Cluster, read_jobs, work
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.ui import output

# Between two looks at what may put itself right.
_PAUSE_SECONDS: Final = 3.0
_NOT_SEEN: Final = "you may not list resourceslices, so DRA drivers on managed nodes are not looked for"
_NO_QUOTAS: Final = "you may not list gpuquotas, so neither their limits nor jobs that fit and wait are looked at"
COLUMNS: Final = ("kind", "subject", "message")


def prove(*, kubeconfig: str | None, context: str | None, older_than_seconds: float = OLDER_THAN_SECONDS) -> Audit:
    """The audit of the cluster that the options name; see `run_audit`."""
    task = partial(run_audit, older_than_seconds=older_than_seconds)
    return work(task, kubeconfig=kubeconfig, context=context)


async def run_audit(cluster: Cluster, *, older_than_seconds: float = OLDER_THAN_SECONDS) -> Audit:
    """The audit as of now.

    What the programs put right by themselves is a finding only if every look within `older_than_seconds` finds it. So
    a clean cluster needs one look, and another one needs that long at most.
    """
    report = await _look_once(cluster, older_than_seconds=older_than_seconds)
    end = time.monotonic() + older_than_seconds
    while not is_final(report) and (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(left, _PAUSE_SECONDS))
        report = confirmed(report, again=await _look_once(cluster, older_than_seconds=older_than_seconds))
    return report


def render(report: Audit, *, form: str) -> str:
    """The report to print."""
    match form:
        case "json":
            return output.as_json(msgspec.to_builtins(report))
        case "yaml":
            return output.as_yaml(msgspec.to_builtins(report))
        case "csv":
            return output.as_csv(_rows(report), columns=COLUMNS)
        case _:
            return summary(report)


def summary(report: Audit) -> str:
    """One line when all is well, else a table; and a line for each note."""
    return "\n".join([_findings(report), *(f"Note: {note}" for note in report.notes)])


def _rows(report: Audit) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(finding) for finding in report.items]


def _findings(report: Audit) -> str:
    looked_at = f"{_count(report.pods, noun='pod')}, {_count(report.devices, noun='device')}"
    if not report.findings:
        return f"Audit clean: {looked_at}"
    rows = _rows(report)
    heading = output.paint(f"Audit: {_count(len(rows), noun='finding')} ({looked_at})", colour="red")
    return f"{heading}\n{output.render(rows, columns=COLUMNS, form='table')}"


def _count(number: int, *, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


async def _look_once(cluster: Cluster, *, older_than_seconds: float) -> Audit:
    client = cluster.client
    # Who names is read before what is named: a pod that is bound after its job was read, or a device that is reported
    # after the pod that holds it, is none too few.
    jobs = await read_jobs(cluster)
    unread: list[Finding] = []
    pods = await client.list(PODS, as_type=Pod, on_unreadable=partial(_note, unread, PODS))
    gpunodes, nodes, quotas, rules, slices = await asyncio.gather(
        client.list(GPUNODES, as_type=GPUNode, on_unreadable=partial(_note, unread, GPUNODES)),
        client.list(NODES, as_type=Node, on_unreadable=partial(_note, unread, NODES)),
        _quotas(cluster),
        _rules(cluster),
        _slices(cluster),
    )
    report = audit(
        nodes=nodes.items,
        gpunodes=gpunodes.items,
        pods=pods.items,
        jobs=jobs,
        rules=replace(rules, older_than_seconds=older_than_seconds),
        slices=slices or (),
        quotas=quotas,
        now=datetime.now(UTC),
    )
    unseen = [note for found, note in ((slices, _NOT_SEEN), (quotas, _NO_QUOTAS)) if found is None]
    found = with_findings(report, findings=[*report.items, *unread])
    return msgspec.structs.replace(found, notes=[*report.notes, *unseen])


def _note(found: list[Finding], resource: Resource, meta: ObjectMeta, problem: str) -> None:
    """A sum without it proves nothing. A GPUJob promises nothing itself, so one is only named."""
    subject = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    found.append(Finding(kind="Unreadable", subject=subject, message=f"the {resource.kind} {problem}"))


async def _slices(cluster: Cluster) -> list[ResourceSlice] | None:
    """None where the user may not read them."""
    try:
        return await list_slices(cluster.client, drivers=names.GPU_DRIVERS)
    except Forbidden:
        return None


async def _quotas(cluster: Cluster) -> list[DatedQuota] | None:
    """None where the user may not read them."""
    try:
        return (await cluster.client.list(GPUQUOTAS, as_type=DatedQuota)).items
    except Forbidden:
        return None


async def _rules(cluster: Cluster) -> Rules:
    return rules_of(await read_settings(cluster.client, namespace=await release_namespace(cluster)))
