"""The audit of objects that were read, by the rules of their configuration. Pure.

`dovetail.audit` computes it; this module knows where its rules come from.
"""

from collections.abc import Iterable

from msgspec.structs import replace as with_fields

from dovetail.answers.questions import Audit, Finding
from dovetail.answers.readers import Reader
from dovetail.audit.allocations import LAGGING, Rules, audit
from dovetail.cluster.objects import ClusterObjects
from dovetail.config.settings import Settings


def audit_of(objects: ClusterObjects) -> Audit:
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


def is_final(report: Audit) -> bool:
    """Whether no finding needs a second audit, as a status does that lags behind its pods."""
    return not any(finding.kind in LAGGING for finding in report.items)


def confirmed(first: Audit, *, again: Audit) -> Audit:
    """The first report, without the findings of a lagging status that a later report does not have."""
    kept = [found for found in first.items if found.kind not in LAGGING or found in again.items]
    return with_findings(first, findings=kept)


def proven_by(report: Audit) -> Audit:
    """The report without what only a later look can confirm, for a reader that looks once."""
    return with_findings(report, findings=(found for found in report.items if found.kind not in LAGGING))


def with_findings(report: Audit, *, findings: Iterable[Finding]) -> Audit:
    """The report with these findings instead."""
    items = sorted(findings)
    return with_fields(report, findings=len(items), items=items)


def audit_for(reader: Reader, *, report: Audit) -> Audit:
    """The report for `reader`.

    A finding about a device names all of its tenants, so only a reader of everything gets it.
    """
    return report if reader.everything else with_fields(report, items=[], notes=[])
