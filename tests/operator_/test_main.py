from pathlib import Path

import pytest

from dovetail.config.groups import ScoreWeights
from dovetail.config.settings import Settings
from dovetail.engine.model.settings import Weights
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail_operator.main import main, parser
from dovetail_operator.options import make_options

# Nobody listens there, and nobody is asked.
KUBECONFIG = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
"""


def test_the_command_line_is_the_charts() -> None:
    args = parser().parse_args(["--config", "/etc/dovetail/gpu_config.yaml", "--metrics-port", "9100"])
    assert (args.config, args.metrics_port) == (Path("/etc/dovetail/gpu_config.yaml"), 9100)


def test_a_bad_configuration_is_a_sentence_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "gpu_config.yaml"
    config.write_text("tenants_per_device: 99\n", encoding="utf-8")
    assert main(["--config", str(config)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "tenants_per_device" in said
    assert "99" in said


def test_a_history_that_cannot_be_kept_is_a_sentence_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOVETAIL_HISTORY_URL", "mysql://me:secret@db/x")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG, encoding="utf-8")
    assert main([f"--kubeconfig={kubeconfig}", "--metrics-port=0"]) == 2
    told = "history_url: history mysql://me:***@db/x: allowed are sqlite:///FILE and postgresql://…\n"
    assert capsys.readouterr().err == told


def test_the_configuration_decides_what_may_be_promised() -> None:
    options = make_options(Settings(memory_guard="Aggressive", tenants_per_device=2, policy="Pack"), environ={})
    usual = options.rankings.usual
    assert (options.limits.guard_fraction, options.limits.turns_per_device, usual.policy) == (0.95, 2, "Pack")


def test_the_configuration_decides_by_what_the_nodes_of_plans_are_ranked() -> None:
    options = make_options(Settings(score_weights=ScoreWeights(cpu=7)), environ={})
    assert options.rankings.usual.weights == Weights(cpu=7)


def test_the_configuration_says_which_resources_are_a_vendors_and_which_kind_of_node_comes_first() -> None:
    settings = Settings(gpu_resource={"xe": "gpu.intel.com/xe"}, preferred_node_kind="Vendor")
    vendors = make_options(settings, environ={}).vendors
    assert "gpu.intel.com/xe" in vendors.resources
    assert vendors.first == "Vendor"


def test_the_configuration_says_how_long_jobs_without_a_limit_are_taken_to_run() -> None:
    settings = Settings(default_time_limit=7200, namespace_time_limits={"notebooks": 600})
    run_times = make_options(settings, environ={}).run_times
    assert run_times == RunTimes(default_seconds=7200, by_namespace={"notebooks": 600})


@pytest.mark.parametrize(("environ", "namespace"), [({}, "dovetail-system"), ({"POD_NAMESPACE": "gpu"}, "gpu")])
def test_the_numbers_live_in_the_operators_own_namespace(environ: dict[str, str], namespace: str) -> None:
    assert make_options(Settings(), environ=environ).namespace == namespace
