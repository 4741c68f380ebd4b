"""The first page: what there is, what is promised and used, what waits, what is wrong."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards.parts import Limit, dashboard_of, lines, stat

UID: Final = "dovetail-fleet"
_SHARE: Final = "max(dovetail_extender_promised_share_milli) / max(dovetail_extender_share_milli)"
_UNHEALTHY: Final = (
    '(count(dovetail_device_healthy == 0) or vector(0)) + (sum(dovetail_agent_nodes{readable="false"}) or vector(0))'
)


def build() -> Dashboard:
    """The dashboard."""
    board = dashboard_of(
        "Dovetail / Fleet", uid=UID, says="What there is, what is promised and used, what waits and is wrong."
    )
    for add in (_with_now, _with_promised_and_used, _with_room, _with_safety):
        board = add(board)
    return board


def _with_now(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Now"))
        .with_panel(stat("GPUs", says="Healthy devices that may be promised.", query="max(dovetail_extender_devices)"))
        .with_panel(stat("Promised", says="Compute that is promised to pods.", query=_SHARE, unit="percentunit"))
        .with_panel(
            stat(
                "Used",
                says="Measured utilization, averaged over devices.",
                query="avg(dovetail_device_utilization_ratio)",
                unit="percentunit",
            )
        )
        .with_panel(
            stat(
                "Running",
                says="GPUJobs that run.",
                query='max(dovetail_jobs{phase="Running"})',
                link="/d/dovetail-queue",
            )
        )
        .with_panel(
            stat(
                "Waiting",
                says="GPUJobs that wait and are not held by their users.",
                query='sum(max by (reason) (dovetail_jobs_waiting{reason!="Held"}))',
                link="/d/dovetail-queue",
            )
        )
        .with_panel(
            stat(
                "Unhealthy",
                says="Devices that take no work, and nodes whose devices cannot be read.",
                query=_UNHEALTHY,
                limits=[Limit(1, "red")],
                link="/d/dovetail-devices",
            )
        )
    )


def _with_promised_and_used(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Promised and used"))
        .with_panel(
            lines(
                "Compute",
                says="A wide gap between the two means that requests are larger than the work.",
                queries={"promised": _SHARE, "used": "avg(dovetail_device_utilization_ratio)"},
                unit="percentunit",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Memory",
                says="Memory of all devices, what is promised of it, and what is in use.",
                queries={
                    "total": "sum(dovetail_device_memory_total_bytes)",
                    "promised": "sum(dovetail_device_promised_memory_bytes)",
                    "used": "sum(dovetail_device_memory_used_bytes)",
                },
                unit="bytes",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Promised by model",
                says="Compute that is promised, by model: a model at 100 % with waiting jobs is short.",
                queries={"{{model}}": "avg by (model) (clamp_max(dovetail_device_promised_share_ratio, 1))"},
                unit="percentunit",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Used by model",
                says="Measured utilization, by model.",
                queries={"{{model}}": "avg by (model) (dovetail_device_utilization_ratio)"},
                unit="percentunit",
                width=12,
            )
        )
    )


def _with_room(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Room"))
        .with_panel(
            lines(
                "Idle and fragmented",
                says="Idle compute in GPUs, and the part that no pod of the usual mix could use.",
                queries={
                    "idle": "max(dovetail_extender_idle_gpus)",
                    "fragmented": "max(dovetail_extender_fragmented_gpus)",
                },
                unit="short",
                width=12,
            )
        )
        .with_panel(
            lines(
                "GPUs held by namespace",
                says="GPUs that running jobs hold, the ten largest namespaces.",
                queries={"{{namespace}}": "topk(10, max by (namespace) (dovetail_gpus_held))"},
                unit="short",
                width=12,
                stacked=True,
            )
        )
    )


def _with_safety(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Safety"))
        .with_panel(
            stat(
                "Audit findings",
                says="Findings of the operator's latest audit. Any is a promise that may be broken.",
                query="sum(max by (kind) (dovetail_audit_findings))",
                limits=[Limit(1, "red")],
                width=6,
            )
        )
        .with_panel(
            stat(
                "Audit's age",
                says="Time since the operator's latest audit, which it makes every ten minutes.",
                query="time() - max(dovetail_audit_timestamp_seconds)",
                unit="s",
                limits=[Limit(3600, "orange")],
                width=6,
            )
        )
        .with_panel(
            stat(
                "Unreadable objects",
                says="Versions of objects within an hour that a process could not read.",
                query="sum(increase(dovetail_unreadable_objects_total[1h])) or vector(0)",
                limits=[Limit(1, "orange")],
                width=6,
            )
        )
        .with_panel(
            stat(
                "In office",
                says="Operators and extenders that hold their lease; two when all is well.",
                query="max(dovetail_operator_lease_held) + max(dovetail_extender_lease_held)",
                width=6,
            )
        )
    )
