"""`dovetail migrate`: what it prints and refuses. tests/chart gives its values to Helm."""

import pytest
import yaml

from dovetail_cli.app import run
from tests.chart.generated import CHART


def migrate(*words: str) -> int:
    return run("migrate", arguments=list(words), prog="dovetail migrate")


def test_v1_prints_the_values_of_the_preset_and_then_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate("v1") == 0
    printed = capsys.readouterr()
    assert yaml.safe_load(printed.out) == yaml.safe_load((CHART / "presets" / "migrate.yaml").read_text("utf-8"))
    assert "helm upgrade dovetail helm/dovetail" in printed.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--image", "i"), "nothing says what tasks run: give --train, --infer or both"),
        (("--train", "t"), "Missing option '--image'"),
        (("--image", "i", "--train", "a | b"), "no shell reads '|'"),
        (("--image", "i", "--train", "t", "--workdir", "data"), '--workdir "data": write a path of the container'),
        (("--image", "i", "--train", "t", "--volume", "data"), '--volume "data"'),
    ],
)
def test_what_no_task_could_run_is_refused(
    words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert migrate("v2", *words) == 2
    printed = capsys.readouterr()
    assert (printed.out, problem in printed.err) == ("", True), printed.err
