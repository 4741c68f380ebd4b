"""How the extender answers kube-scheduler."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards.parts import dashboard_of, lines

UID: Final = "dovetail-scheduler"


def build() -> Dashboard:
    """The dashboard."""
    board = dashboard_of(
        "Dovetail / Scheduler", uid=UID, says="How the extender answers kube-scheduler, and on what data."
    )
    for add in (_with_answers, _with_state):
        board = add(board)
    return board


def _with_answers(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Answers"))
        .with_panel(
            lines(
                "Time of an answer, p99",
                says="By verb. kube-scheduler waits for each answer.",
                queries={
                    "{{verb}}": "histogram_quantile(0.99, sum by (le, verb)"
                    " (rate(dovetail_extender_request_duration_seconds_bucket[$__rate_interval])))"
                },
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Requests",
                says="Requests of kube-scheduler a second, by verb.",
                queries={
                    "{{verb}}": "sum by (verb)"
                    " (rate(dovetail_extender_request_duration_seconds_count[$__rate_interval]))"
                },
                unit="ops",
            )
        )
        .with_panel(
            lines(
                "Decisions by policy",
                says="Answers to filter: whether any node fits.",
                queries={
                    "{{policy}} {{outcome}}": "sum by (policy, outcome)"
                    " (rate(dovetail_extender_decisions_total[$__rate_interval]))"
                },
                unit="ops",
            )
        )
        .with_panel(
            lines(
                "Binds",
                says="Binds by what became of them.",
                queries={"{{result}}": "sum by (result) (rate(dovetail_extender_binds_total[$__rate_interval]))"},
                unit="ops",
            )
        )
        .with_panel(
            lines(
                "Refused nodes by kind",
                says="Why nodes are refused.",
                queries={"{{kind}}": "sum by (kind) (rate(dovetail_extender_refusals_total[$__rate_interval]))"},
                unit="ops",
            )
        )
        .with_panel(
            lines(
                "Nodes in a request, median",
                says="How many nodes kube-scheduler asks about.",
                queries={
                    "{{verb}}": "histogram_quantile(0.5, sum by (le, verb)"
                    " (rate(dovetail_extender_nodes_in_bucket[$__rate_interval])))"
                },
                unit="short",
            )
        )
        .with_panel(
            lines(
                "Refused clients",
                says="Attach mode: requests a second of clients whose certificate has no allowed name, or has expired.",
                queries={"refused": "sum(rate(dovetail_extender_refused_clients_total[$__rate_interval]))"},
                unit="ops",
            )
        )
    )


def _with_state(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("State"))
        .with_panel(
            lines(
                "Holds",
                says="Promises to pods that are not bound yet. Holds that remain mean that binds do not complete.",
                queries={
                    "{{state}}": "max by (state) (dovetail_extender_holds)",
                    "unsettled binds": "max(dovetail_extender_unsettled_binds)",
                },
            )
        )
        .with_panel(
            lines(
                "Waiting pods and wake-ups",
                says="Refused pods that wait, and how often a minute kube-scheduler is made to look at them.",
                queries={
                    "waiting": "max(dovetail_extender_waiting_pods)",
                    "wake-ups a minute": "60 * sum(rate(dovetail_extender_wakeups_total[$__rate_interval]))",
                },
                unit="short",
            )
        )
        .with_panel(
            lines(
                "Age of cached data",
                says="Time since the API server last sent anything. A watch receives something every minute.",
                queries={
                    "{{kind}}": "max by (kind) (dovetail_extender_cache_age_seconds)",
                    "agent: {{resource}}": "max by (resource) (dovetail_agent_cache_age_seconds)",
                },
                unit="s",
            )
        )
    )
