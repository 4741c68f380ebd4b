"""Every alert fires where it should and is silent where it should be, by Prometheus's own promtool."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

import promql_parser
import pytest
import yaml

from tests.chart.conftest import Helm, Render
from tests.chart.generated import CHART
from tests.chart.test_dashboards import EXPOSED, metrics_in

RULES: Final = CHART / "rules" / "dovetail.yaml"
RUNBOOKS: Final = CHART.parents[1] / "docs" / "runbooks"
GROUPS: Final[list[dict[str, Any]]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
ALERTS: Final = {rule["alert"]: rule for group in GROUPS for rule in group["rules"] if "alert" in rule}
# Recorded sums first; else promtool takes the groups in any order.
ORDER: Final = [group["name"] for group in GROUPS]
RECORDED: Final = {rule["record"] for group in GROUPS for rule in group["rules"] if "record" in rule}
# The memory guard's own tests show that it counts this; the agent has it where the guard is on.
OF_FEATURES: Final = {"dovetail_device_over_promise_bytes"}
PROGRAMS: Final = {"kubectl", "dovetail", "ginfo", "gqueue", "gjob", "gstats"}

Series = dict[str, str]


class Case(NamedTuple):
    """The series of a cluster in trouble, those of one that is well, and what the alert says of the first."""

    trouble: Series
    well: Series
    at: str
    summary: str
    labels: dict[str, str] = {}


# Values are in promtool's notation: `1+2x3` is 1, 3, 5, 7, one sample a minute, from the time 0.
CASES: Final = {
    "DovetailNoOperator": Case(
        {'dovetail_operator_lease_held{pod="a"}': "0x10", 'dovetail_operator_lease_held{pod="b"}': "0x10"},
        {'dovetail_operator_lease_held{pod="a"}': "0x10", 'dovetail_operator_lease_held{pod="b"}': "1x10"},
        "5m",
        "No operator holds the lease, so no GPUJob starts, ends or changes its status.",
    ),
    "DovetailNoExtender": Case(
        {},
        {'dovetail_extender_lease_held{pod="a"}': "1x10"},
        "5m",
        "No scheduler extender holds the lease, so no pod that asks for GPUs is bound.",
    ),
    "DovetailNoAgent": Case(
        {},
        {'dovetail_agent_nodes{readable="true"}': "1x20"},
        "15m",
        "No node agent reports, so devices are judged by reports that become stale.",
    ),
    "DovetailReportStale": Case(
        {'dovetail_device_measured_timestamp_seconds{node="v100-0"}': "0x60"},
        {'dovetail_device_measured_timestamp_seconds{node="v100-0"}': "0+60x60"},
        "30m",
        "The devices of node v100-0 were last measured 30m 0s ago.",
        {"node": "v100-0"},
    ),
    "DovetailDevicesUnreadable": Case(
        {
            'dovetail_agent_nodes{pod="a",readable="false"}': "1x20",
            'dovetail_agent_nodes{pod="b",readable="false"}': "2x20",
        },
        {'dovetail_agent_nodes{pod="a",readable="false"}': "0x20"},
        "15m",
        "The agents of 3 nodes cannot read their devices.",
    ),
    "DovetailStaleCache": Case(
        {'dovetail_extender_cache_age_seconds{kind="nodes"}': "0+60x20"},
        {'dovetail_extender_cache_age_seconds{kind="nodes"}': "30x20"},
        "15m",
        "The extender last heard of nodes 15m 0s ago.",
        {"kind": "nodes"},
    ),
    "DovetailReportsNotWritten": Case(
        {"dovetail_agent_write_failures_total": "0+1x40"},
        {"dovetail_agent_write_failures_total": "7x40"},
        "35m",
        "The API server does not accept the reports of node agents.",
    ),
    "DovetailNearlyFull": Case(
        {
            "dovetail_extender_share_milli": "8000x120",
            "dovetail_extender_promised_share_milli": "7800x120",
            'dovetail_jobs_waiting{reason="Resources"}': "3x120",
        },
        {
            "dovetail_extender_share_milli": "8000x120",
            "dovetail_extender_promised_share_milli": "7800x120",
            'dovetail_jobs_waiting{reason="Resources"}': "0x120",
        },
        "90m",
        "97.5% of the GPUs have been promised for an hour, and jobs wait.",
    ),
    "DovetailFragmented": Case(
        {
            "dovetail_extender_share_milli": "8000x60",
            "dovetail_extender_fragmented_gpus": "2x60",
            'dovetail_jobs_waiting{reason="Fragmentation"}': "1x60",
        },
        {
            "dovetail_extender_share_milli": "8000x60",
            "dovetail_extender_fragmented_gpus": "1x60",
            'dovetail_jobs_waiting{reason="Fragmentation"}': "1x60",
        },
        "50m",
        "25% of the GPUs are idle in pieces that the usual requests do not fit, and jobs wait.",
    ),
    "DovetailDeviceUnhealthy": Case(
        {'dovetail_device_healthy{node="v100-0",index="2",uuid="GPU-1",model="V100"}': "0x20"},
        {'dovetail_device_healthy{node="v100-0",index="2",uuid="GPU-1",model="V100"}': "0 0 1x20"},
        "10m",
        "Device 2 of node v100-0 (V100) takes no work.",
        {"node": "v100-0", "index": "2", "uuid": "GPU-1", "model": "V100"},
    ),
    "DovetailMemoryOverPromise": Case(
        {'dovetail_device_over_promise_bytes{node="v100-0",index="2",uuid="GPU-1"}': "1073741824x20"},
        {'dovetail_device_over_promise_bytes{node="v100-0",index="2",uuid="GPU-1"}': "0x20"},
        "15m",
        "Tenants of device 2 on node v100-0 use 1GiB more memory than they were promised.",
        {"node": "v100-0", "index": "2", "uuid": "GPU-1"},
    ),
    "DovetailJobsWaitLong": Case(
        {'dovetail_jobs_oldest_waiting_timestamp_seconds{reason="Resources"}': "0x1600"},
        # A job that its user holds may wait for ever.
        {
            'dovetail_jobs_oldest_waiting_timestamp_seconds{reason="Held"}': "0x1600",
            'dovetail_jobs_oldest_waiting_timestamp_seconds{reason="Resources"}': "0+60x1600",
        },
        "1500m",
        "A job has waited for 1d 1h 0m 0s with the reason Resources.",
        {"reason": "Resources"},
    ),
    "DovetailStarvation": Case(
        {
            'dovetail_jobs_oldest_waiting_timestamp_seconds{reason="GangWaiting"}': "0x4500",
            "dovetail_admissions_total": "0+1x4500",
        },
        # Nothing is admitted: the cluster is full, and nobody goes first.
        {
            'dovetail_jobs_oldest_waiting_timestamp_seconds{reason="GangWaiting"}': "0x4500",
            "dovetail_admissions_total": "9x4500",
        },
        "4400m",
        "A job has waited for 3d 1h 20m 0s (GangWaiting) while others were admitted.",
        {"reason": "GangWaiting"},
    ),
    "DovetailNeverFits": Case(
        {'dovetail_jobs_waiting{reason="ExceedsCapacity"}': "2x90"},
        {
            'dovetail_jobs_waiting{reason="ExceedsCapacity"}': "0x90",
            'dovetail_jobs_waiting{reason="Resources"}': "4x90",
        },
        "80m",
        "2 jobs ask for what this cluster cannot give (ExceedsCapacity).",
        {"reason": "ExceedsCapacity"},
    ),
    "DovetailGuaranteeNotKept": Case(
        {'dovetail_quota_gpus{quota="team",kind="waiting"}': "2x30"},
        # A reclaim takes its notice; who waits beyond the guarantee does not count.
        {
            'dovetail_quota_gpus{quota="team",kind="waiting"}': "2x10 0x20",
            'dovetail_quota_gpus{quota="team",kind="guaranteed"}': "4x30",
        },
        "25m",
        "Jobs of GPUQuota team have waited for 15 minutes for 2 GPUs that it guarantees.",
        {"quota": "team"},
    ),
    "DovetailQuotaContradictory": Case(
        {'dovetail_quota_contradictory{quota="team"}': "1x30"},
        {'dovetail_quota_contradictory{quota="team"}': "0x30"},
        "20m",
        "GPUQuota team contradicts its tree, so it acts otherwise than it is written.",
        {"quota": "team"},
    ),
    "DovetailPreemptionStorm": Case(
        {"dovetail_preemptions_total": "0+2x30"},
        {"dovetail_preemptions_total": "0+0.5x30"},
        "20m",
        "30 jobs were preempted within 15 minutes.",
    ),
    "DovetailExtenderSlow": Case(
        {
            'dovetail_extender_request_duration_seconds_bucket{verb="filter",le="0.5"}': "0+1x30",
            'dovetail_extender_request_duration_seconds_bucket{verb="filter",le="1"}': "0+100x30",
            'dovetail_extender_request_duration_seconds_bucket{verb="filter",le="+Inf"}': "0+100x30",
        },
        {
            'dovetail_extender_request_duration_seconds_bucket{verb="filter",le="0.5"}': "0+100x30",
            'dovetail_extender_request_duration_seconds_bucket{verb="filter",le="1"}': "0+100x30",
            'dovetail_extender_request_duration_seconds_bucket{verb="filter",le="+Inf"}': "0+100x30",
        },
        "20m",
        "One in a hundred answers to kube-scheduler (filter) takes more than 994.9ms.",
        {"verb": "filter"},
    ),
    "DovetailExtenderBadRequests": Case(
        {'dovetail_extender_bad_requests_total{verb="filter"}': "0+1x30"},
        {'dovetail_extender_bad_requests_total{verb="filter"}': "4x30"},
        "20m",
        "The extender cannot read requests of kube-scheduler.",
    ),
    "DovetailClientsRefused": Case(
        {"dovetail_extender_refused_clients_total": "0+1x30"},
        # One client that was refused once, and went away.
        {"dovetail_extender_refused_clients_total": "0 1x40"},
        "20m",
        "The extender refuses a client by its certificate: if it is kube-scheduler, no pod with GPUs is bound.",
    ),
    "DovetailClientCertificateExpires": Case(
        {'dovetail_extender_client_certificate_expiry_timestamp_seconds{pod="a"}': "90000x10"},
        # A standby has seen no client; with the chart's own kube-scheduler there is none.
        {
            'dovetail_extender_client_certificate_expiry_timestamp_seconds{pod="a"}': "9000000x10",
            'dovetail_extender_client_certificate_expiry_timestamp_seconds{pod="b"}': "0x10",
        },
        "5m",
        "The certificate that kube-scheduler shows to the extender expires in 1d 0h 55m 0s.",
    ),
    "DovetailBindsUnsettled": Case(
        {"dovetail_extender_unsettled_binds": "3x30"},
        {"dovetail_extender_unsettled_binds": "3 0 2 0 0 1 0x30"},
        "20m",
        "The result of 3 binds has not been known for ten minutes.",
    ),
    "DovetailWebhookFails": Case(
        {'dovetail_webhook_reviews_total{kind="Pod",outcome="failed"}': "0+1x30"},
        {
            'dovetail_webhook_reviews_total{kind="Pod",outcome="failed"}': "0x30",
            'dovetail_webhook_reviews_total{kind="Pod",outcome="denied"}': "0+9x30",
        },
        "20m",
        "The admission webhook fails at objects of kind Pod.",
        {"kind": "Pod"},
    ),
    "DovetailAuditFindings": Case(
        {
            'dovetail_audit_findings{kind="ShareOverpromised"}': "1x10",
            'dovetail_audit_findings{kind="NotSole"}': "0x10",
        },
        {'dovetail_audit_findings{kind="ShareOverpromised"}': "0x10"},
        "5m",
        "The audit has 1 findings of kind ShareOverpromised; a promise may be broken.",
        {"kind": "ShareOverpromised"},
    ),
    "DovetailAuditStale": Case(
        {"dovetail_audit_timestamp_seconds": "0x100"},
        {"dovetail_audit_timestamp_seconds": "0+60x100"},
        "75m",
        "The last audit was made 1h 15m 0s ago.",
    ),
    "DovetailUnreadableObjects": Case(
        {'dovetail_unreadable_objects_total{kind="GPUJob"}': "0 0 1x60"},
        {'dovetail_unreadable_objects_total{kind="GPUJob"}': "8x60"},
        "30m",
        "Objects of kind GPUJob cannot be read.",
        {"kind": "GPUJob"},
    ),
    "DovetailHistoryNotWritten": Case(
        {"dovetail_history_failures_total": "0+2x60"},
        {"dovetail_history_failures_total": "0 1x60"},
        "35m",
        "The history's database has failed for 15 minutes; records wait in the operator's memory.",
    ),
    "DovetailCertificateNotRenewed": Case(
        {'dovetail_certificate_renewal_timestamp_seconds{secret="webhook"}': "0x1600"},
        {'dovetail_certificate_renewal_timestamp_seconds{secret="webhook"}': "60000x1600"},
        "1500m",
        "The certificate in Secret webhook should have been replaced a day ago.",
        {"secret": "webhook"},
    ),
    "DovetailCertificateExpires": Case(
        {'dovetail_certificate_expiry_timestamp_seconds{secret="webhook"}': "90000x10"},
        {'dovetail_certificate_expiry_timestamp_seconds{secret="webhook"}': "9000000x10"},
        "5m",
        "The certificate in Secret webhook expires in 1d 0h 55m 0s.",
        {"secret": "webhook"},
    ),
}


@pytest.fixture(scope="session")
def promtool() -> str:
    """Prometheus's tool for rules; Debian's package `prometheus` has it."""
    return shutil.which("promtool") or pytest.skip("there is no promtool")


def write_case(alert: str, *, series: Series, expected: list[dict[str, Any]], folder: Path) -> Path:
    """A file of promtool's that tests one alert at the time of its case."""
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "alert_rule_test": [{"eval_time": CASES[alert].at, "alertname": alert, "exp_alerts": expected}],
        }
    ]
    file, rules = folder / f"{alert}.yaml", folder / f"{alert}-rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": groups_of(alert)}), encoding="utf-8")
    file.write_text(
        yaml.safe_dump({"rule_files": [str(rules)], "group_eval_order": ORDER, "tests": tests}), encoding="utf-8"
    )
    return file


def run_promtool(promtool: str, *files: Path) -> str:
    """What promtool prints of the tests in these files; empty if they passed."""
    done = subprocess.run(
        [promtool, "test", "rules", *map(str, files)], capture_output=True, text=True, timeout=600, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


def groups_of(alert: str) -> list[dict[str, Any]]:
    """All groups with the recorded sums and this one alert: a test of three days evaluates each rule 4,500 times."""
    return [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert", alert) == alert]} for group in GROUPS
    ]


def firing(alert: str) -> list[dict[str, Any]]:
    case = CASES[alert]
    labels = {"severity": ALERTS[alert]["labels"]["severity"], **case.labels}
    return [{"exp_labels": labels, "exp_annotations": {"summary": case.summary}}]


def test_each_alert_fires_in_trouble(promtool: str, tmp_path: Path) -> None:
    files = [
        write_case(alert, series=CASES[alert].trouble, expected=firing(alert), folder=tmp_path) for alert in ALERTS
    ]
    found = run_promtool(promtool, *files)
    assert not found, found


def test_each_alert_is_silent_when_all_is_well(promtool: str, tmp_path: Path) -> None:
    assert [alert for alert in ALERTS if CASES[alert].well == CASES[alert].trouble] == []
    files = [write_case(alert, series=CASES[alert].well, expected=[], folder=tmp_path) for alert in ALERTS]
    found = run_promtool(promtool, *files)
    assert not found, found


def test_promtool_accepts_the_rules_of_the_chart(promtool: str) -> None:
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS) + len(RECORDED)} rules found" in done.stdout


def test_promtool_would_say_that_an_alert_is_missing(promtool: str, tmp_path: Path) -> None:
    alert = "DovetailReportStale"
    silent = write_case(alert, series=CASES[alert].well, expected=firing(alert), folder=tmp_path)
    quiet = write_case("DovetailFragmented", series=CASES["DovetailFragmented"].well, expected=[], folder=tmp_path)
    found = run_promtool(promtool, silent, quiet)
    assert "FAILED" in found
    assert alert in found


def test_every_alert_has_a_case_and_every_case_an_alert() -> None:
    assert set(CASES) == set(ALERTS)


def test_every_rule_asks_for_metrics_that_exist() -> None:
    rules = [rule for group in GROUPS for rule in group["rules"]]
    known = EXPOSED | RECORDED | OF_FEATURES
    asked = {rule.get("alert") or rule["record"]: metrics_in(promql_parser.parse(rule["expr"])) for rule in rules}
    names = {name: set(metrics) for name, metrics in asked.items()}
    assert [name for name, metrics in names.items() if not metrics] == []
    assert {name: metrics - known for name, metrics in names.items() if metrics - known} == {}


def test_every_alert_has_a_severity_a_summary_and_a_runbook_that_begins_with_a_command(
    subtests: pytest.Subtests,
) -> None:
    for alert, rule in ALERTS.items():
        with subtests.test(alert):
            assert rule["labels"]["severity"] in {"info", "warning", "critical"}
            assert rule["annotations"]["summary"].endswith(".")
            lines = (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8").splitlines()
            assert lines[:3] == [f"# {alert}", "", "```sh"]
            commands = lines[3 : lines.index("```", 3)]
            assert commands
            assert {command.split()[0] for command in commands} <= PROGRAMS


def test_there_is_no_runbook_without_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS.glob("Dovetail*.md")} == set(ALERTS)


def test_the_chart_gives_the_same_rules_with_the_address_of_each_runbook(render: Render) -> None:
    chart = render(
        monitoring__rules__enabled=True,
        monitoring__rules__runbookUrl="https://docs.example/runbooks/",
        monitoring__rules__labels={"release": "stack"},
    )
    (found,) = [each for each in chart if each["kind"] == "PrometheusRule"]
    assert found["metadata"]["labels"]["release"] == "stack"
    given = found["spec"]["groups"]
    for rule in (rule for group in given for rule in group["rules"] if "alert" in rule):
        assert rule["annotations"].pop("runbook_url") == f"https://docs.example/runbooks/{rule['alert']}.md"
    assert given == GROUPS


def test_the_chart_gives_no_rules_unless_asked(render: Render) -> None:
    assert not [each for each in render() if each["kind"] == "PrometheusRule"]


def test_an_address_of_runbooks_that_is_no_text_is_refused_with_its_path(helm: Helm) -> None:
    done = helm("template", "d", str(CHART), "--set-json=monitoring.rules.runbookUrl=3")
    assert done.returncode != 0
    assert re.search(r"/monitoring/rules/runbookUrl", done.stderr)
