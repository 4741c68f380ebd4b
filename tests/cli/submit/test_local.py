"""What gbatch leaves on this machine for the local node."""

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dovetail import names
from dovetail_cli.submit import local, pod_options
from dovetail_cli.submit.config_file import ConfigFile
from dovetail_cli.submit.local import Local
from dovetail_cli.submit.manifest import Submission
from dovetail_cli.ui.errors import CommandError, UsageError

ENVIRON = {"HOME": "/home/ada", "PATH": "/bin", "LR": "0.1", names.ENV_TASK_ID: "7"}


def submission(**more: Any) -> Submission:
    return Submission(**{"name": "train", "command": ["true"], "request": None, "image": "busybox", **more})


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        (None, {"HOME": "/home/ada", "PATH": "/bin", "LR": "0.1"}),
        ("ALL", {"HOME": "/home/ada", "PATH": "/bin", "LR": "0.1"}),
        ("ALL,LR=0.2", {"HOME": "/home/ada", "PATH": "/bin", "LR": "0.2"}),
        ("LR,SEED=3,MISSING", {"HOME": "/home/ada", "PATH": "/bin", "LR": "0.1", "SEED": "3"}),
        ("SEED=", {"HOME": "/home/ada", "PATH": "/bin", "SEED": ""}),
        ("NONE", None),
    ],
)
def test_export_has_slurms_meanings_and_passes_no_index_of_an_outer_job(
    text: str | None, variables: dict[str, str] | None
) -> None:
    assert local.exported(text, environ=ENVIRON) == variables


@pytest.mark.parametrize("text", ["", "ALL,", "NONE,LR"])
def test_an_export_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write ALL, NONE, or names"):
        local.exported(text, environ=ENVIRON)


def test_the_environment_is_left_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    made = local.for_local_node(submission(), asked=Local(), data=tmp_path)
    file = tmp_path / "environments" / made.annotations[names.ENVIRONMENT]
    assert b"TOKEN=secret\0" in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" not in str(made)


def test_the_job_runs_where_it_was_typed_or_where_workdir_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert local.for_local_node(submission(), asked=Local(), data=tmp_path).workdir == str(tmp_path)
    elsewhere = local.for_local_node(submission(workdir="sub"), asked=Local(), data=tmp_path)
    assert elsewhere.workdir == str(tmp_path / "sub")


def test_a_dry_run_leaves_no_file(tmp_path: Path) -> None:
    local.for_local_node(submission(), asked=Local(), data=tmp_path, dry_run=True)
    assert list(tmp_path.iterdir()) == []


def test_export_none_leaves_no_file(tmp_path: Path) -> None:
    made = local.for_local_node(submission(), asked=Local(export="NONE"), data=tmp_path)
    assert names.ENVIRONMENT not in made.annotations
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "environments").write_text("in the way")
    with pytest.raises(CommandError, match="it cannot be kept for the job"):
        local.for_local_node(submission(), asked=Local(), data=tmp_path)


@pytest.mark.parametrize("export", ["ALL", "NONE"])
def test_a_file_that_goes_along_is_copied_and_named_to_the_command(tmp_path: Path, export: str) -> None:
    along = ConfigFile(name="lr.yaml", text="lr: 0.1\n")
    wanted = submission(command=["python", "train.py", "--config", along.path])
    made = local.for_local_node(wanted, asked=Local(export=export), data=tmp_path, along=along)
    (copy,) = (tmp_path / "files").glob("*/lr.yaml")
    assert made.command == ["python", "train.py", "--config", str(copy)]
    assert copy.read_text() == "lr: 0.1\n"
    left = (tmp_path / "environments" / made.annotations[names.ENVIRONMENT]).read_bytes()
    assert f"{names.ENV_CONFIG}={copy}\0".encode() in left


def test_bytes_that_are_no_text_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "ODD", os.fsdecode(b"\xff"))
    made = local.for_local_node(submission(), asked=Local(), data=tmp_path)
    assert b"ODD=\xff\0" in (tmp_path / "environments" / made.annotations[names.ENVIRONMENT]).read_bytes()


def test_volumes_are_left_out_on_this_machine_and_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volumes = pod_options.volumes(["data:/data:ro"])
    assert local.for_local_node(submission(volumes=volumes), asked=Local(), data=tmp_path).volumes == ()
    assert capsys.readouterr().err == (
        "dovetail: --volume data:/data:ro: jobs on this machine use your files, and no volumes\n"
    )


def test_a_choice_of_nodes_is_left_out_on_this_machine_and_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = submission(fields={"pool": "gpu", "policy": "Pack"}, node_selector={"disk": "nvme"})
    made = local.for_local_node(wanted, asked=Local(), data=tmp_path)
    assert (made.fields, made.node_selector) == ({"policy": "Pack"}, {})
    assert capsys.readouterr().err == (
        "dovetail: --pool gpu, --node-selector disk=nvme: jobs run on this machine, whatever its pool and labels\n"
    )


def test_requested_memory_is_also_the_most_that_a_job_gets_here(tmp_path: Path) -> None:
    wanted = replace(submission(), host_resources={"cpu": "4", "memory": "512Mi"})
    made = local.for_local_node(wanted, asked=Local(), data=tmp_path)
    assert (made.host_resources, made.host_limits) == ({"cpu": "4", "memory": "512Mi"}, {"memory": "512Mi"})
