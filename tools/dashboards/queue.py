"""Which jobs wait, why and for how long; what starts, ends and is preempted."""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import Dashboard, Row

from tools.dashboards.parts import Limit, dashboard_of, lines, stat

UID: Final = "dovetail-queue"


def build() -> Dashboard:
    """The dashboard."""
    board = dashboard_of("Dovetail / Queue and waits", uid=UID, says="Which jobs wait, why and for how long.")
    for add in (_with_waiting, _with_quotas, _with_flow):
        board = add(board)
    return board


def _with_waiting(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Waiting"))
        .with_panel(
            stat(
                "Oldest waiting job",
                says="Age of the oldest job that waits for room, and not for its user, a time or another job.",
                query="time() - min(dovetail_jobs_oldest_waiting_timestamp_seconds"
                '{reason!~"Held|BeginTime|Dependency"}) or vector(0)',
                unit="s",
                limits=[Limit(86400, "orange"), Limit(259200, "red")],
                width=6,
            )
        )
        .with_panel(
            stat(
                "Median wait",
                says="Time from submission to admission, the median of the last hour.",
                query="histogram_quantile(0.5, sum by (le) (increase(dovetail_job_wait_seconds_bucket[1h])))",
                unit="s",
                width=6,
            )
        )
        .with_panel(
            stat(
                "Admissions",
                says="Jobs that the queue has admitted within an hour.",
                query="sum(increase(dovetail_admissions_total[1h]))",
                unit="short",
                width=4,
            )
        )
        .with_panel(
            stat(
                "Preemptions",
                says="Jobs that have lost their GPUs to others within an hour.",
                query="sum(increase(dovetail_preemptions_total[1h]))",
                unit="short",
                limits=[Limit(15, "orange")],
                width=4,
            )
        )
        .with_panel(
            stat(
                "Plans of moves",
                says="Plans of moves that start a waiting job, within an hour: reported or carried out.",
                query="sum(increase(dovetail_move_plans_total[1h])) or vector(0)",
                unit="short",
                width=4,
            )
        )
        .with_panel(
            lines(
                "Waiting jobs by reason",
                says="What the reasons mean: docs/gpujob.md.",
                queries={"{{reason}}": "max by (reason) (dovetail_jobs_waiting) > 0 or vector(0)"},
                width=12,
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Age of the oldest by reason",
                says="How long the oldest job has waited with each reason.",
                queries={"{{reason}}": "time() - min by (reason) (dovetail_jobs_oldest_waiting_timestamp_seconds)"},
                unit="s",
                width=12,
            )
        )
    )


def _with_quotas(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Guaranteed quotas"))
        .with_panel(
            lines(
                "Used of each quota",
                says="GPUs in use by each GPUQuota in a tree and by those below it.",
                queries={"{{quota}}": 'topk(20, max by (quota) (dovetail_quota_gpus{kind="used"})) or vector(0)'},
                width=12,
            )
        )
        .with_panel(
            lines(
                "Guaranteed to each quota",
                says="GPUs that are guaranteed now; less than the spec says while devices are lost.",
                queries={"{{quota}}": 'topk(20, max by (quota) (dovetail_quota_gpus{kind="guaranteed"})) or vector(0)'},
                width=12,
            )
        )
        .with_panel(
            lines(
                "Waiting within the guarantee",
                says="GPUs that waiting jobs request within what is guaranteed to them: above 0 while a reclaim takes.",
                queries={"{{quota}}": 'max by (quota) (dovetail_quota_gpus{kind="waiting"}) > 0 or vector(0)'},
                width=12,
            )
        )
        .with_panel(
            lines(
                "Lent and borrowed",
                says="Guaranteed GPUs that others use, and GPUs in use beyond a guarantee.",
                queries={
                    "{{quota}} lent": 'max by (quota) (dovetail_quota_gpus{kind="lent"}) > 0 or vector(0)',
                    "{{quota}} borrowed": 'max by (quota) (dovetail_quota_gpus{kind="borrowed"}) > 0 or vector(0)',
                },
                width=12,
            )
        )
    )


def _with_flow(board: Dashboard) -> Dashboard:
    return (
        board.with_row(Row("Flow"))
        .with_panel(
            lines(
                "Wait from submission to admission",
                says="Of the jobs that were admitted within ten minutes.",
                queries={
                    "median": "histogram_quantile(0.5, sum by (le) (rate(dovetail_job_wait_seconds_bucket[10m])))",
                    "95 %": "histogram_quantile(0.95, sum by (le) (rate(dovetail_job_wait_seconds_bucket[10m])))",
                },
                unit="s",
            )
        )
        .with_panel(
            lines(
                "Admissions",
                says="Jobs that the queue admits a second.",
                queries={"admitted": "sum(rate(dovetail_admissions_total[$__rate_interval]))"},
                unit="ops",
            )
        )
        .with_panel(
            lines(
                "Ended jobs",
                says="Jobs that have ended, by their last phase.",
                queries={"{{phase}}": "sum by (phase) (rate(dovetail_jobs_finished_total[$__rate_interval]))"},
                unit="ops",
            )
        )
        .with_panel(
            lines(
                "Jobs by phase",
                says="All jobs that have not ended.",
                queries={"{{phase}}": 'max by (phase) (dovetail_jobs{phase!~"Succeeded|Failed|Cancelled|TimedOut"})'},
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Notifications and events",
                says="What was sent to users, and what was dropped.",
                queries={
                    "notifications {{outcome}}": "sum by (outcome)"
                    " (rate(dovetail_notifications_total[$__rate_interval]))",
                    "events {{outcome}}": "sum by (outcome) (rate(dovetail_events_total[$__rate_interval]))",
                },
                unit="ops",
            )
        )
        .with_panel(
            lines(
                "Time of a scheduling cycle and of a reconcile, p99",
                says="A cycle looks at all waiting jobs; a reconcile at one job.",
                queries={
                    "cycle": "histogram_quantile(0.99, sum by (le)"
                    " (rate(dovetail_queue_cycle_duration_seconds_bucket[$__rate_interval])))",
                    "reconcile": "histogram_quantile(0.99, sum by (le)"
                    " (rate(dovetail_reconcile_duration_seconds_bucket[$__rate_interval])))",
                },
                unit="s",
            )
        )
    )
