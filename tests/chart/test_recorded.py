"""What the recording rules make of the metrics of pods and of queues, by Prometheus's own promtool."""

from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from tests.chart.test_alerts import ORDER, RULES, run_promtool
from tests.chart.test_alerts import promtool as promtool  # noqa: PLC0414 - a fixture

_UTILIZATION: Final = "namespace_pod:dovetail_pod_gpu_utilization_of_promise:ratio"
_MEMORY: Final = "namespace_pod:dovetail_pod_gpu_memory_of_promise:ratio"
GIB: Final = 2**30


class Case(NamedTuple):
    """Series at a constant value, a query, and its samples by their labels."""

    series: dict[str, float]
    query: str
    samples: dict[str, float]


def of_pod(metric: str, pod: str, *, uuid: str = "GPU-1", container: str = "main", job: str = "train") -> str:
    labels = f'namespace="ml",pod="{pod}",container="{container}",job="{job}",node="a",index="0",uuid="{uuid}"'
    return f"dovetail_pod_gpu_{metric}{{{labels}}}"


CASES: Final = {
    "half of a quarter of a device is half of its promise": Case(
        {of_pod("promised_share_ratio", "a"): 0.25, of_pod("utilization_ratio", "a"): 0.125},
        _UTILIZATION,
        {f'{_UTILIZATION}{{namespace="ml",pod="a"}}': 0.5},
    ),
    "two devices of a pod are averaged": Case(
        {
            of_pod("promised_share_ratio", "a"): 1.0,
            of_pod("promised_share_ratio", "a", uuid="GPU-2"): 1.0,
            of_pod("utilization_ratio", "a"): 0.25,
            of_pod("utilization_ratio", "a", uuid="GPU-2"): 0.75,
        },
        _UTILIZATION,
        {f'{_UTILIZATION}{{namespace="ml",pod="a"}}': 0.5},
    ),
    "a device whose use is not told counts neither as used nor as promised": Case(
        {
            of_pod("promised_share_ratio", "a"): 1.0,
            of_pod("promised_share_ratio", "a", uuid="GPU-2"): 1.0,
            of_pod("utilization_ratio", "a"): 0.5,
            of_pod("promised_share_ratio", "under-mps", uuid="GPU-3"): 0.5,
        },
        _UTILIZATION,
        {f'{_UTILIZATION}{{namespace="ml",pod="a"}}': 0.5},
    ),
    "what two containers were promised of a device is compared with what their pod uses": Case(
        {
            of_pod("promised_memory_bytes", "a", container="main"): 3 * GIB,
            of_pod("promised_memory_bytes", "a", container="side"): 1 * GIB,
            of_pod("memory_used_bytes", "a", container=""): 2 * GIB,
            of_pod("promised_memory_bytes", "without-memory"): 0,
            of_pod("memory_used_bytes", "without-memory"): 2 * GIB,
        },
        _MEMORY,
        {f'{_MEMORY}{{namespace="ml",pod="a"}}': 0.5},
    ),
    "the workers of a job are summed, and pods of no job are left out": Case(
        {
            of_pod("promised_share_ratio", "a"): 0.5,
            of_pod("promised_share_ratio", "b", uuid="GPU-2"): 1.0,
            of_pod("promised_share_ratio", "plain", job=""): 1.0,
        },
        "namespace_job:dovetail_pod_gpu_promised_share:sum",
        {'namespace_job:dovetail_pod_gpu_promised_share:sum{namespace="ml",job="train"}': 1.5},
    ),
    "their utilization too": Case(
        {
            of_pod("utilization_ratio", "a"): 0.5,
            of_pod("utilization_ratio", "b", uuid="GPU-2"): 0.25,
            of_pod("utilization_ratio", "plain", job=""): 1.0,
        },
        "namespace_job:dovetail_pod_gpu_utilization:sum",
        {'namespace_job:dovetail_pod_gpu_utilization:sum{namespace="ml",job="train"}': 0.75},
    ),
    "two operators do not double a queue": Case(
        {
            'dovetail_namespace_jobs_waiting{namespace="ml",instance="a"}': 3,
            'dovetail_namespace_jobs_waiting{namespace="ml",instance="b"}': 3,
            'dovetail_namespace_jobs_waiting{namespace="web",instance="a"}': 1,
        },
        "namespace:dovetail_jobs_waiting:max",
        {
            'namespace:dovetail_jobs_waiting:max{namespace="ml"}': 3,
            'namespace:dovetail_jobs_waiting:max{namespace="web"}': 1,
        },
    ),
    "a wait lasts from the creation until now": Case(
        {'dovetail_namespace_oldest_waiting_timestamp_seconds{namespace="ml"}': 60},
        "namespace:dovetail_jobs_waiting_age_seconds:max",
        {'namespace:dovetail_jobs_waiting_age_seconds:max{namespace="ml"}': 240},
    ),
    "the next start is in so many seconds": Case(
        {'dovetail_namespace_next_start_timestamp_seconds{namespace="ml"}': 400},
        "namespace:dovetail_next_start_seconds:min",
        {'namespace:dovetail_next_start_seconds:min{namespace="ml"}': 100},
    ),
    "and never in the past": Case(
        {'dovetail_namespace_next_start_timestamp_seconds{namespace="ml"}': 10},
        "namespace:dovetail_next_start_seconds:min",
        {'namespace:dovetail_next_start_seconds:min{namespace="ml"}': 0},
    ),
}


def written(case: Case, *, folder: Path) -> Path:
    """A file of promtool's that asks the query after five minutes."""
    test: dict[str, Any] = {
        "interval": "15s",
        "input_series": [{"series": name, "values": f"{value}x40"} for name, value in case.series.items()],
        "promql_expr_test": [
            {
                "expr": case.query,
                "eval_time": "5m",
                "exp_samples": [{"labels": labels, "value": value} for labels, value in case.samples.items()],
            }
        ],
    }
    file = folder / "case.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "group_eval_order": ORDER, "tests": [test]}))
    return file


def test_recorded_sums(promtool: str, tmp_path: Path) -> None:
    found = {}
    for name, case in CASES.items():
        folder = tmp_path / str(len(found))
        folder.mkdir()
        found[name] = run_promtool(promtool, written(case, folder=folder))
    assert {name: text for name, text in found.items() if text} == {}


def test_promtool_would_say_that_a_sum_is_wrong(promtool: str, tmp_path: Path) -> None:
    case = CASES["the next start is in so many seconds"]
    wrong = case._replace(samples={name: value + 1 for name, value in case.samples.items()})
    assert "FAILED" in run_promtool(promtool, written(wrong, folder=tmp_path))
