"""The pods of one job and their devices, chosen by namespace, job and pod."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards.parts import Limit, choice, dashboard_of, lines, stat

UID: Final = "dovetail-job"
_PROMISED: Final = "dovetail_pod_gpu_promised_share_ratio"
_MEMORY_USED: Final = "dovetail_pod_gpu_memory_used_bytes"
_PROMISED_MEMORY: Final = "dovetail_pod_gpu_promised_memory_bytes"
_ITS: Final = '{namespace=~"$namespace", job=~"$job", pod=~"$pod"}'
# Figures of a device, of the devices that the job's pods were promised a part of.
_ON_ITS_DEVICES: Final = f"and on (node, uuid) {_PROMISED}{_ITS}"


def build() -> Dashboard:
    """The dashboard."""
    of_namespace = f'{_PROMISED}{{namespace=~"$namespace"}}'
    of_job = f'{_PROMISED}{{namespace=~"$namespace", job=~"$job"}}'
    board = (
        dashboard_of(
            "Dovetail / Job",
            uid=UID,
            says="What the pods of a job do on their devices. A pod of no GPUJob has no job: choose it by its name.",
        )
        .with_variable(choice("namespace", label="Namespace", metric=_PROMISED))
        .with_variable(choice("job", label="Job", metric=of_namespace))
        .with_variable(choice("pod", label="Pod", metric=of_job))
    )
    for add in (_with_now, _with_over_time):
        board = add(board)
    return board


def _with_now(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Now"))
        .with_panel(
            stat("GPUs", says="What the pods were promised, in GPUs.", query=f"sum({_PROMISED}{_ITS})", width=6)
        )
        .with_panel(
            stat(
                "Utilization",
                says="Averaged over the devices of the pods, with the work of other pods there.",
                query=f"avg(dovetail_device_utilization_ratio {_ON_ITS_DEVICES})",
                unit="percentunit",
                width=6,
            )
        )
        .with_panel(
            stat(
                "Memory used",
                says="Of what the pods were promised. Above 95 %, the next allocation may fail.",
                query=f"sum({_MEMORY_USED}{_ITS}) / sum({_PROMISED_MEMORY}{_ITS})",
                unit="percentunit",
                limits=[Limit(0.95, "orange")],
                width=6,
            )
        )
        .with_panel(
            stat(
                "Unhealthy",
                says="Devices of the pods that take no new work.",
                query=f"count((dovetail_device_healthy == 0) {_ON_ITS_DEVICES}) or vector(0)",
                limits=[Limit(1, "red")],
                width=6,
            )
        )
    )


def _with_over_time(board: Dashboard) -> Dashboard:
    pod_and_device = "{{pod}} {{node}}:{{index}}"
    return (
        board.with_row(Row("Over time"))
        .with_panel(
            lines(
                "Utilization of pods",
                says="A pod that does less than its peers holds a gang back. On a shared device, what the driver tells "
                "apart; under MPS nothing.",
                queries={pod_and_device: f"dovetail_pod_gpu_utilization_ratio{_ITS}"},
                unit="percentunit",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Memory used by pods",
                says="A line that only rises is a leak.",
                queries={pod_and_device: f"{_MEMORY_USED}{_ITS}"},
                unit="bytes",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Temperature and power of the devices",
                says="A hot device lowers its clocks.",
                queries={
                    "{{node}}:{{index}} °C": f"dovetail_device_temperature_celsius {_ON_ITS_DEVICES}",
                    "{{node}}:{{index}} W": f"dovetail_device_power_watts {_ON_ITS_DEVICES}",
                },
                unit="short",
                width=12,
            )
        )
        .with_panel(
            lines(
                "Tenants of the devices",
                says="Pods that were promised a part of each device.",
                queries={"{{node}}:{{index}}": f"dovetail_device_tenants {_ON_ITS_DEVICES}"},
                width=12,
            )
        )
    )
