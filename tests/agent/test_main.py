from pathlib import Path

import pytest

from dovetail_agent.main import main


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    return capsys.readouterr().err.strip().splitlines()[-1]


def test_an_unknown_provider_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, "--provider", "nvlm", "--metrics-port", "0")
    assert said.startswith("dovetail-agent: error: argument --provider: invalid choice: 'nvlm' (choose from ")
    assert "simulated" in said


@pytest.mark.parametrize("provider", ["auto", "nvml"])
def test_a_library_without_a_node_is_refused_since_it_tells_of_one(
    capsys: pytest.CaptureFixture[str], provider: str
) -> None:
    assert f"--provider={provider} needs --node" in refused(capsys, f"--provider={provider}", "--metrics-port=0")


def test_a_bad_configuration_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "gpu_config.yaml"
    config.write_text("monitor_update_intervall: 10\n", encoding="utf-8")
    said = refused(capsys, "--provider=simulated", "--metrics-port=0", f"--config={config}")
    assert "monitor_update_intervall" in said


def test_a_missing_kubeconfig_is_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = refused(capsys, "--provider=simulated", "--metrics-port=0", f"--kubeconfig={tmp_path / 'none'}")
    assert str(tmp_path / "none") in said


def test_help_ends_well_and_tells_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(option in told for option in ("--config", "--provider", "--node", "--metrics-port", "--kubeconfig"))
