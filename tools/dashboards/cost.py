"""What GPUs cost and who leaves them idle, by namespace and user. The price is a variable of the page."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards.parts import Column, choice, dashboard_of, lines, number, stat, table

UID: Final = "dovetail-cost"
_HELD: Final = 'max by (namespace) (dovetail_gpus_held{namespace=~"$namespace"})'
_IDLE: Final = 'max by (namespace) (dovetail_gpus_held_idle{namespace=~"$namespace"})'
# A subquery of one sample a minute: its sum over the page's time, divided by 60, is hours.
_HELD_HOURS: Final = f"sum_over_time(({_HELD})[$__range:1m]) / 60"
_IDLE_HOURS: Final = f"sum_over_time(({_IDLE})[$__range:1m]) / 60"
_UNPROMISED: Final = "max(dovetail_extender_share_milli - dovetail_extender_promised_share_milli) / 1000"


def build() -> Dashboard:
    """The dashboard."""
    board = (
        dashboard_of(
            "Dovetail / Cost and waste",
            uid=UID,
            says="GPU hours over the page's time by namespace and user: held, idle, and their price.",
            since="now-24h",
        )
        .with_variable(choice("namespace", label="Namespace", metric="dovetail_gpus_held"))
        .with_variable(
            number("price", label="Price of a GPU hour", says="In the currency of your bill.", default="2.5")
        )
    )
    for add in (_with_sums, _with_over_time):
        board = add(board)
    return board


def _with_sums(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Sums over the page's time"))
        .with_panel(stat("GPU hours held", says="By running jobs.", query=f"sum({_HELD_HOURS})", unit="short", width=6))
        .with_panel(
            stat(
                "Cost",
                says="GPU hours held, times the price.",
                query=f"sum({_HELD_HOURS}) * $price",
                unit="short",
                width=6,
            )
        )
        .with_panel(
            stat(
                "Held and idle",
                says="Of the GPU hours that jobs hold, the part in which their busiest device did nothing.",
                query=f"sum({_IDLE_HOURS}) / sum({_HELD_HOURS})",
                unit="percentunit",
                width=6,
            )
        )
        .with_panel(
            stat(
                "Cost of free GPUs",
                says="GPU hours that were not promised to anyone, times the price.",
                query=f"sum_over_time(({_UNPROMISED})[$__range:1m]) / 60 * $price",
                unit="short",
                width=6,
            )
        )
        .with_panel(
            table(
                "By namespace",
                says="The 500 namespaces with the most GPUs have rows of their own.",
                labels=["namespace"],
                sort="cost",
                columns={
                    "GPU hours": Column(_HELD_HOURS, "short"),
                    "cost": Column(f"{_HELD_HOURS} * $price", "short"),
                    "idle hours": Column(_IDLE_HOURS, "short"),
                    "idle": Column(f"{_IDLE_HOURS} / ({_HELD_HOURS} > 0)", "percentunit", gauge=True),
                },
                width=12,
            )
        )
        .with_panel(
            table(
                "Ended jobs by user",
                says="GPU hours of jobs that have ended within the page's time; from the history.",
                labels=["namespace", "user"],
                sort="GPU hours",
                columns={
                    "GPU hours": Column(
                        "sum by (namespace, user)"
                        ' (increase(dovetail_gpu_seconds_total{namespace=~"$namespace"}[$__range])) / 3600',
                        "short",
                    ),
                    "cost": Column(
                        "sum by (namespace, user)"
                        ' (increase(dovetail_gpu_seconds_total{namespace=~"$namespace"}[$__range])) / 3600 * $price',
                        "short",
                    ),
                },
                width=12,
            )
        )
    )


def _with_over_time(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Over time"))
        .with_panel(
            lines(
                "GPUs held",
                says="By running jobs, by namespace.",
                queries={"{{namespace}}": _HELD},
                unit="short",
                width=12,
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "GPUs held and idle",
                says="Who holds GPUs that do nothing: the idle policy can have them back (docs/idle.md).",
                queries={"{{namespace}}": _IDLE},
                unit="short",
                width=12,
                stacked=True,
            )
        )
    )
