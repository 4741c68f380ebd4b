"""Memory of the programs and audits, all along."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dovetail.kube.errors import KubeError
from dovetail_cli.cluster import audit
from dovetail_cli.ui.errors import CommandError
from dovetail_sandbox.cluster import Cluster
from tools.soak.disturb import programs
from tools.soak.record import AuditRecord, Record, Sample

PROGRAMS: Final = ("operator", "extender", "agent", "webhook", "certificates", "gateway")
_AUDIT_SECONDS: Final = 45.0
_KIB_PER_MIB: Final = 1024


async def sample(sandbox: Cluster, *, record: Record, now: Callable[[], float], every_seconds: float) -> None:
    """Add the memory of each program to the record until it is cancelled."""
    while True:
        for name, process in programs(sandbox, names=PROGRAMS).items():
            if (mib := resident_mib(process.pid)) is not None:
                record.samples.append(Sample(at=now(), program=name, pid=process.pid, mib=mib))
        await asyncio.sleep(every_seconds)


async def audit_all_along(
    sandbox: Cluster, *, record: Record, now: Callable[[], float], say: Callable[[str], None]
) -> None:
    """Audit the cluster until it is cancelled, and say at once what an audit finds."""
    while True:
        await asyncio.sleep(_AUDIT_SECONDS)
        for finding in await audit_once(sandbox, record=record, at=now()):
            say(f"{now():5.0f} s  audit: {finding}")


async def audit_once(sandbox: Cluster, *, record: Record, at: float) -> list[str]:
    """Add the findings of one audit to the record, or why there are none if the API server does not answer."""
    try:
        report = await asyncio.to_thread(audit.prove, kubeconfig=str(sandbox.kubeconfig), context=None)
    except (CommandError, KubeError, OSError) as error:
        record.audits.append(AuditRecord(at=at, findings=[], failed=str(error)))
        return []
    found = [f"{each.kind} {each.subject}: {each.message}" for each in report.items]
    record.audits.append(AuditRecord(at=at, findings=found))
    return found


def resident_mib(pid: int) -> float | None:
    """The resident memory of a process in MiB; None if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return None
    kib = next((line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")), None)
    return int(kib) / _KIB_PER_MIB if kib else None
