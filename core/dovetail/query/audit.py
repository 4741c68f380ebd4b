"""The audit of objects that were read, by the rules of their configuration. Pure.

`dovetail.audit` computes it; this module knows where its rules come from.
"""

from dataclasses import replace

from dovetail.answers.questions import Audit, FindingRow
from dovetail.answers.readers import EVERYTHING, Reader
from dovetail.audit.allocations import Report, Rules, audit
from dovetail.audit.findings import LAGGING
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings


def audit_of(objects: ClusterObjects) -> Report:
    """The audit of all objects of a cluster."""
    return audit(
        nodes=objects.nodes,
        gpunodes=objects.gpunodes,
        pods=objects.pods,
        jobs=objects.jobs,
        rules=rules_of(objects.settings),
        slices=objects.slices,
    )


def rules_of(settings: Settings) -> Rules:
    """What a configuration allows to be promised."""
    return Rules(
        guard_fraction=settings.guard_fraction,
        turns_per_device=settings.tenants_per_device,
        vendor_resources=settings.vendors.resources,
        memory_specs=settings.limits.memory_specs,
    )


def is_final(report: Report) -> bool:
    """Whether no finding needs a second audit, as a status does that lags behind its pods."""
    return not any(finding.kind in LAGGING for finding in report.findings)


def confirmed(first: Report, *, again: Report) -> Report:
    """The first report, without the findings of a lagging status that a later report does not have."""
    kept = tuple(found for found in first.findings if found.kind not in LAGGING or found in again.findings)
    return replace(first, findings=kept)


def proven_by(report: Report) -> Report:
    """The report without what only a later look can confirm, for a reader that looks once."""
    return replace(report, findings=tuple(found for found in report.findings if found.kind not in LAGGING))


def audit_answer(report: Report, *, reader: Reader = EVERYTHING) -> Audit:
    """The report for `reader`.

    A finding about a device names all of its tenants, so only a reader of everything gets it.
    """
    shown = report.findings if reader.everything else ()
    return Audit(
        pods=report.pods,
        devices=report.devices,
        findings=len(report.findings),
        items=[FindingRow(kind=each.kind, subject=each.subject, message=each.message) for each in shown],
        notes=list(report.notes) if reader.everything else [],
    )
