"""The chart that is kept next to a program: a copy of the one in its Go module."""

from pathlib import Path

import pytest
import yaml

from dovetail_sandbox.errors import BuildFailedError
from dovetail_sandbox.programs import catalog, go_build


def fake_go(folder: Path, *, module: Path) -> str:
    """A `go` whose answer is where a module is."""
    command = folder / "go"
    command.write_text(f"#!/bin/sh\necho {module}\n", encoding="utf-8")
    command.chmod(0o755)
    return str(command)


def test_charts_of_others_that_the_module_does_not_have_are_no_dependencies(tmp_path: Path) -> None:
    tool = catalog.tool("trainer")
    source = tmp_path / "module" / tool.chart
    (source / "templates").mkdir(parents=True)
    facts = {"name": "kubeflow-trainer", "version": "2.2.1", "dependencies": [{"name": "jobset"}]}
    (source / "Chart.yaml").write_text(yaml.safe_dump(facts), encoding="utf-8")
    (source / "templates" / "a.yaml").write_text("kind: ConfigMap\n", encoding="utf-8")
    go_build.copy_chart(tool, go=fake_go(tmp_path, module=tmp_path / "module"), target=tmp_path / "copy")
    assert yaml.safe_load((tmp_path / "copy" / "Chart.yaml").read_text()) == {
        "name": "kubeflow-trainer",
        "version": "2.2.1",
    }
    assert (tmp_path / "copy" / "templates" / "a.yaml").read_text() == "kind: ConfigMap\n"


def test_a_module_without_the_chart_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BuildFailedError, match="there is no chart in"):
        go_build.copy_chart(catalog.tool("trainer"), go=fake_go(tmp_path, module=tmp_path), target=tmp_path / "copy")
