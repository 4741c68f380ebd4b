"""The devices of one job, chosen by UUID: no metric carries the name of a job, and `gjob show` prints its devices."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards.parts import Limit, choice, dashboard_of, lines, stat

UID: Final = "dovetail-job"
_ITS: Final = '{uuid=~"$uuid"}'


def build() -> Dashboard:
    """The dashboard."""
    board = dashboard_of(
        "Dovetail / Job",
        uid=UID,
        says="What the devices of a job do. `gjob show JOB` prints their UUIDs; no metric has names of jobs.",
    ).with_variable(choice("uuid", label="Devices (UUID)", metric="dovetail_device_healthy"))
    for add in (_with_now, _with_over_time):
        board = add(board)
    return board


def _with_now(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Now"))
        .with_panel(stat("Devices", says="Chosen devices.", query=f"count(dovetail_device_healthy{_ITS})", width=6))
        .with_panel(
            stat(
                "Utilization",
                says="Averaged over the chosen devices.",
                query=f"avg(dovetail_device_utilization_ratio{_ITS})",
                unit="percentunit",
                width=6,
            )
        )
        .with_panel(
            stat(
                "Memory used",
                says="Of the memory of the chosen devices. Above 95 %, the next allocation may fail.",
                query=f"sum(dovetail_device_memory_used_bytes{_ITS}) / sum(dovetail_device_memory_total_bytes{_ITS})",
                unit="percentunit",
                limits=[Limit(0.95, "orange")],
                width=6,
            )
        )
        .with_panel(
            stat(
                "Unhealthy",
                says="Chosen devices that take no new work.",
                query=f"count(dovetail_device_healthy{_ITS} == 0) or vector(0)",
                limits=[Limit(1, "red")],
                width=6,
            )
        )
    )


def _with_over_time(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Over time"))
        .with_panel(
            lines(
                "Utilization",
                says="A device that does less than its peers holds a gang back.",
                queries={"{{node}}:{{index}}": f"dovetail_device_utilization_ratio{_ITS}"},
                unit="percentunit",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Memory used",
                says="A line that only rises is a leak.",
                queries={"{{node}}:{{index}}": f"dovetail_device_memory_used_bytes{_ITS}"},
                unit="bytes",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Temperature and power",
                says="A hot device lowers its clocks.",
                queries={
                    "{{node}}:{{index}} °C": f"dovetail_device_temperature_celsius{_ITS}",
                    "{{node}}:{{index}} W": f"dovetail_device_power_watts{_ITS}",
                },
                unit="short",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Tenants",
                says="Pods that were promised a part of each device.",
                queries={"{{node}}:{{index}}": f"dovetail_device_tenants{_ITS}"},
                width=12,
            )
        )
    )
