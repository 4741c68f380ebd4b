"""gbatch --config: what goes along with a job, how the command gets it, and whose it is."""

from pathlib import Path

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob, spec_of, template_of
from dovetail_cli.app import run
from dovetail_cli.submit import attachments, config_file, manifest, submit
from dovetail_cli.submit.config_file import ConfigFile
from dovetail_cli.submit.scripts import Script
from dovetail_cli.ui.errors import MissingError, UsageError
from tests.cli.builders import make_job
from tests.core.kube.api import Answer

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
FILE = ConfigFile(name="train.yaml", text="lr: 0.1\n")
MADE = Answer(body={"metadata": {"name": "train-config-x", "resourceVersion": "3"}})


def written(tmp_path: Path, data: bytes, *, name: str = "train.yaml") -> str:
    path = tmp_path / name
    path.write_bytes(data)
    return str(path)


def test_a_text_goes_along_under_its_name(tmp_path: Path) -> None:
    assert config_file.read(written(tmp_path, b"lr: 0.1\n")) == FILE
    assert config_file.read(written(tmp_path, b"x" * 1024 * 1024)).text == "x" * 1024 * 1024
    assert config_file.read(written(tmp_path, b"", name="my config")).path == "/etc/dovetail-config/my config"


@pytest.mark.parametrize(
    ("data", "name", "told"),
    [
        (b"x" * (1024 * 1024 + 1), "a", r"--config .*/a is too large: allowed are at most 1048576 bytes \(1 MiB\)"),
        (b"\x89PNG\xff", "a", "--config .*/a is no text in UTF-8: what is binary belongs into the image"),
        (b"a\0b", "a", "--config .*/a is no text"),
        (b"a", "..a", r'a plain name that does not begin with "\.\."'),
    ],
)
def test_what_cannot_go_along_is_refused_in_one_sentence(tmp_path: Path, data: bytes, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        config_file.read(written(tmp_path, data, name=name))


def test_a_file_that_is_not_there_is_exit_code_3_and_no_file_at_all_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(MissingError, match=r"--config nowhere\.yaml: there is no such file"):
        config_file.read("nowhere.yaml")
    assert run("gbatch", arguments=["--config", str(tmp_path / "none"), "sleep", "1"], prog="gbatch") == 3
    with pytest.raises(UsageError, match="--config /dev/zero is no file"):
        config_file.read("/dev/zero")
    assert run("gbatch", arguments=["--config", str(tmp_path), "sleep", "1"], prog="gbatch") == 2
    assert capsys.readouterr().err.count("\n") == 2


HANDED = ["--config", "/etc/dovetail-config/train.yaml"]


def test_the_command_is_handed_the_file_behind_its_own_words() -> None:
    assert submit.command_of(["python", "train.py", "-v"], script=None, file=FILE) == [
        "python",
        "train.py",
        "-v",
        *HANDED,
    ]
    assert submit.command_of(["echo a && train"], script=None, file=FILE) == [
        "/bin/sh",
        "-c",
        "echo a && train",
        "sh",
        *HANDED,
    ]
    script = Script(name="t.sh", text="#!/bin/sh\ntrain $@\n")
    assert submit.command_of(["t.sh", "5"], script=script, file=FILE)[-3:] == ["5", *HANDED]


def test_who_names_the_variable_is_handed_nothing() -> None:
    words = ["python", "train.py", "--cfg=$(DOVETAIL_CONFIG)"]
    assert submit.command_of(words, script=None, file=FILE) == words
    script = Script(name="t.sh", text="#!/bin/sh\ntrain -c $DOVETAIL_CONFIG\n")
    assert submit.command_of(["t.sh"], script=script, file=FILE)[-1] == "t.sh"


@pytest.mark.parametrize("word", ["", "  "])
def test_a_command_without_a_program_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match=rf'command "{word}": write a program and its arguments'):
        submit.command_of([word, "x"], script=None)


def job_with_file() -> GPUJob:
    submission = manifest.Submission(name="train", command=["a"], request=None, image="busybox")
    job = manifest.build(submission, namespace="default")
    return FILE.mounted(job, config_map="train-config-x")


def test_the_job_mounts_the_file_and_names_its_path() -> None:
    spec = spec_of(job_with_file().spec.template)
    (container,) = spec["containers"]
    assert container["env"] == [{"name": "DOVETAIL_CONFIG", "value": "/etc/dovetail-config/train.yaml"}]
    assert container["volumeMounts"] == [
        {"name": "dovetail-config", "mountPath": "/etc/dovetail-config", "readOnly": True}
    ]
    (volume,) = spec["volumes"]
    assert volume["configMap"] == {"name": "train-config-x", "items": [{"key": "config", "path": "train.yaml"}]}
    assert attachments.config_maps_of(job_with_file()) == ["train-config-x"]
    assert attachments.config_maps_of(make_job()) == []


def test_the_job_keeps_its_own_variables_volumes_and_mounts() -> None:
    own = {
        "env": [{"name": "A", "value": "1"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {"containers": [{"name": "main", **own}, {"name": "side"}], "volumes": [{"name": "data", "emptyDir": {}}]}
    job = make_job()
    job = msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, template=template_of(spec)))
    after = spec_of(FILE.mounted(job, config_map="c").spec.template)
    main, side = after["containers"]
    assert [each["name"] for each in main["env"]] == ["A", "DOVETAIL_CONFIG"]
    assert [each["mountPath"] for each in main["volumeMounts"]] == ["/data", "/etc/dovetail-config"]
    assert [each["name"] for each in after["volumes"]] == ["data", main["volumeMounts"][1]["name"]]
    assert side == {"name": "side"}
