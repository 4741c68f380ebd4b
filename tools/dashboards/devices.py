"""Nodes and their devices: health, load, promises, tenants."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards.parts import Column, choice, dashboard_of, lines, table

UID: Final = "dovetail-devices"
_HERE: Final = '{node=~"$node",model=~"$model"}'


def build() -> Dashboard:
    """The dashboard."""
    board = (
        dashboard_of("Dovetail / Nodes and devices", uid=UID, says="Health, load, promises and tenants of each device.")
        .with_variable(choice("node", label="Node", metric="dovetail_device_healthy"))
        .with_variable(choice("model", label="Model", metric="dovetail_device_healthy"))
    )
    for add in (_with_nodes, _with_devices, _with_agents):
        board = add(board)
    return board


def _with_nodes(board: Dashboard) -> Dashboard:
    return board.with_row(Row("Nodes")).with_panel(
        table(
            "Nodes",
            says="How many devices are healthy, what is promised and used, and the highest temperature.",
            labels=["node", "model"],
            sort="promised",
            links={"node": f"/d/{UID}?${{datasource:queryparam}}&var-node=${{__value.text}}"},
            columns={
                "devices": Column(f"count by (node, model) (dovetail_device_healthy{_HERE})"),
                "healthy": Column(f"sum by (node, model) (dovetail_device_healthy{_HERE})"),
                "promised": Column(
                    f"avg by (node, model) (dovetail_device_promised_share_ratio{_HERE})", "percentunit", gauge=True
                ),
                "used": Column(
                    f"avg by (node, model) (dovetail_device_utilization_ratio{_HERE})", "percentunit", gauge=True
                ),
                "memory promised": Column(
                    f"sum by (node, model) (dovetail_device_promised_memory_bytes{_HERE})"
                    f" / sum by (node, model) (dovetail_device_memory_total_bytes{_HERE})",
                    "percentunit",
                    gauge=True,
                ),
                "memory used": Column(
                    f"sum by (node, model) (dovetail_device_memory_used_bytes{_HERE})"
                    f" / sum by (node, model) (dovetail_device_memory_total_bytes{_HERE})",
                    "percentunit",
                    gauge=True,
                ),
                "tenants": Column(f"sum by (node, model) (dovetail_device_tenants{_HERE})"),
                "hottest": Column(f"max by (node, model) (dovetail_device_temperature_celsius{_HERE})", "celsius"),
                "power": Column(f"sum by (node, model) (dovetail_device_power_watts{_HERE})", "watt"),
            },
        )
    )


def _with_devices(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Devices of the chosen nodes"))
        .with_panel(
            lines(
                "Utilization",
                says="Measured utilization of each device.",
                queries={"{{node}}:{{index}}": f"dovetail_device_utilization_ratio{_HERE}"},
                unit="percentunit",
            )
        )
        .with_panel(
            lines(
                "Memory used",
                says="Memory in use on each device.",
                queries={"{{node}}:{{index}}": f"dovetail_device_memory_used_bytes{_HERE}"},
                unit="bytes",
            )
        )
        .with_panel(
            lines(
                "Memory beyond promises",
                says="Memory in use beyond what was promised to pods: a stranger, or a tenant that takes more.",
                queries={"{{node}}:{{index}}": f"dovetail_device_foreign_memory_bytes{_HERE}"},
                unit="bytes",
            )
        )
        .with_panel(
            lines(
                "Temperature",
                says="Of each device.",
                queries={"{{node}}:{{index}}": f"dovetail_device_temperature_celsius{_HERE}"},
                unit="celsius",
            )
        )
        .with_panel(
            lines(
                "Power",
                says="Of each device.",
                queries={"{{node}}:{{index}}": f"dovetail_device_power_watts{_HERE}"},
                unit="watt",
            )
        )
        .with_panel(
            lines(
                "Age of the measurement",
                says="Time since the devices of a node were last read.",
                queries={"{{node}}": 'time() - dovetail_device_measured_timestamp_seconds{node=~"$node"}'},
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Tenants by workload",
                says="Pods on the chosen nodes, by what they count as for tenant limits.",
                queries={"{{workload}}": f"sum by (workload) (dovetail_device_tenants_by_workload{_HERE})"},
            )
        )
    )


def _with_agents(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Agents"))
        .with_panel(
            lines(
                "Reports",
                says="Reports that agents write a second, by why, and those that the API server did not accept.",
                queries={
                    "{{why}}": "sum by (why) (rate(dovetail_agent_published_total[$__rate_interval]))",
                    "failed": "sum(rate(dovetail_agent_write_failures_total[$__rate_interval]))",
                },
                unit="ops",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Nodes by readability",
                says="Nodes whose devices the agent can and cannot read.",
                queries={"readable: {{readable}}": "sum by (readable) (dovetail_agent_nodes)"},
                width=12,
            )
        )
    )
