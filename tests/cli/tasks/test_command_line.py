"""What tasks run, from one command line."""

import pytest

from dovetail_cli.submit.pod_options import Volume
from dovetail_cli.tasks.command_line import TaskPlace, task_templates
from dovetail_cli.ui.errors import UsageError


def command(line: str) -> list[str]:
    found = task_templates(train=line, infer=None, place=TaskPlace())
    words: list[str] = found["training"]["template"]["spec"]["containers"][0]["command"]
    return words


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("python train.py", ["python", "train.py"]),
        ("python t.py --data {train_path}", ["python", "t.py", "--data", "$(TASK_TRAIN_PATH)"]),
        ("python t.py --out={save_path}/{model}", ["python", "t.py", "--out=$(TASK_SAVE_PATH)/$(TASK_MODEL)"]),
        ("python t.py --name 'a b' \"c's\"", ["python", "t.py", "--name", "a b", "c's"]),
        ("python t.py '${HOME}' '$(x)'", ["python", "t.py", "$${HOME}", "$$(x)"]),
        ("python t.py '{\"a\": 1}' 'f(x)' # 1", ["python", "t.py", '{"a": 1}', "f(x)", "#", "1"]),
    ],
)
def test_a_line_is_the_words_of_a_command_with_its_fields_by_reference(line: str, words: list[str]) -> None:
    assert command(line) == words


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "--train is empty: write a command"),
        ("cd x && python t.py", "no shell reads '&&'"),
        ("python t.py > log", "no shell reads '>'"),
        ("python t.py 'a", "No closing quotation"),
        ("sh -c 'python t.py {train_path}'", r"{train_path} cannot be within a quoted text; read \$TASK_TRAIN_PATH"),
    ],
)
def test_a_line_that_only_a_shell_understands_is_refused(line: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        command(line)


def test_each_kind_has_its_share_and_runs_at_the_place() -> None:
    place = TaskPlace(image="i", workdir="/d", volumes=(Volume(claim="c", path="/d"),), annotations={"a": "b"})
    found = task_templates(train="t", infer="i", place=place)
    shares = {kind: (spec["workload"], spec["resources"]) for kind, spec in found.items()}
    assert shares == {"training": ("Training", {"share": 0.5}), "inference": ("Inference", {"share": 0.125})}
    assert found["training"]["template"] == {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "task",
                    "image": "i",
                    "command": ["t"],
                    "workingDir": "/d",
                    "volumeMounts": [{"name": "volume-0", "mountPath": "/d"}],
                }
            ],
            "volumes": [{"name": "volume-0", "persistentVolumeClaim": {"claimName": "c"}}],
        },
    }


def test_a_kind_without_a_line_has_no_template() -> None:
    assert list(task_templates(train=None, infer="i", place=TaskPlace())) == ["inference"]
