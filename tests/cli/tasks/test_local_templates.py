"""What tasks run on this machine: which options make sense, and the file that the gateway reads."""

import stat
from pathlib import Path

import pytest
import yaml

from dovetail_cli.tasks import local_templates
from dovetail_cli.tasks.local_templates import Tasks
from dovetail_cli.ui.errors import CommandError, UsageError
from tests.cli.ui.test_live_screen import KUBECONFIG


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Of a machine whose jobs' environments are left in a folder."""
    document = yaml.safe_load(KUBECONFIG.format(url="http://127.0.0.1:9"))
    extension = {"name": "dovetail.dev/local-node", "extension": {"data": str(tmp_path / "data")}}
    document["contexts"][0]["context"]["extensions"] = [extension]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    return tmp_path / "kubeconfig"


@pytest.mark.parametrize(
    ("train", "infer", "workdir", "simulated", "problem"),
    [
        (None, None, ".", False, "it is the folder of --train and --infer, and neither is given"),
        ("true", None, None, True, "on simulated nodes nothing runs"),
        (None, "true", "nowhere", False, "--workdir nowhere: there is no such folder"),
        ("a && b", None, None, False, "no shell reads"),
        (None, "a 'b", None, False, "No closing quotation"),
    ],
)
def test_options_that_make_no_sense_together_are_refused(
    train: str | None, infer: str | None, workdir: str | None, *, simulated: bool, problem: str
) -> None:
    with pytest.raises(UsageError) as refused:
        local_templates.asked(
            train=train, infer=infer, workdir=None if workdir is None else Path(workdir), simulated=simulated
        )
    assert problem in str(refused.value)


@pytest.mark.parametrize("simulated", [True, False])
def test_without_tasks_nothing_is_kept(*, simulated: bool) -> None:
    assert local_templates.asked(train=None, infer=None, workdir=None, simulated=simulated) is None


def test_relative_paths_count_from_the_folder_of_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = local_templates.asked(train="true", infer=None, workdir=None, simulated=False)
    assert here == Tasks(train="true", infer=None, workdir=tmp_path)
    (tmp_path / "below").mkdir()
    below = local_templates.asked(train="true", infer=None, workdir=Path("below"), simulated=False)
    assert below == Tasks(train="true", infer=None, workdir=tmp_path / "below")


def test_a_kind_keeps_its_template_and_each_has_the_environment_of_its_own_start(
    tmp_path: Path, kubeconfig: Path
) -> None:
    file = tmp_path / "templates.yaml"
    file.write_text("")
    for tasks in (
        Tasks(train="python train.py", infer=None, workdir=tmp_path),
        Tasks(train=None, infer="python infer.py", workdir=tmp_path),
    ):
        local_templates.keep(tasks, file=file, kubeconfig=kubeconfig)
    found = yaml.safe_load(file.read_text())
    containers = {kind: each["template"]["spec"]["containers"][0] for kind, each in found.items()}
    assert {kind: each["command"] for kind, each in containers.items()} == {
        "training": ["python", "train.py"],
        "inference": ["python", "infer.py"],
    }
    assert {each["workingDir"] for each in containers.values()} == {str(tmp_path)}
    environments = {each["template"]["metadata"]["annotations"]["dovetail.dev/environment"] for each in found.values()}
    assert {path.name for path in (tmp_path / "data" / "environments").iterdir()} == environments
    assert len(environments) == 2


def test_the_file_is_its_users_alone_and_replaced_at_once(tmp_path: Path, kubeconfig: Path) -> None:
    file = tmp_path / "state" / "templates.yaml"
    file.parent.mkdir()
    file.write_text("training: {old: true}")
    file.chmod(0o644)
    local_templates.keep(Tasks(train="true", infer=None, workdir=tmp_path), file=file, kubeconfig=kubeconfig)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["templates.yaml"]
    assert "old" not in yaml.safe_load(file.read_text())["training"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, kubeconfig: Path) -> None:
    tasks = Tasks(train="true", infer=None, workdir=tmp_path)
    with pytest.raises(CommandError, match="what tasks run cannot be kept"):
        local_templates.keep(tasks, file=tmp_path / "nowhere" / "f.yaml", kubeconfig=kubeconfig)
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(CommandError, match="what tasks run cannot be kept"):
        local_templates.keep(tasks, file=tmp_path / "broken.yaml", kubeconfig=kubeconfig)
