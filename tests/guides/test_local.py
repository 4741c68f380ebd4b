"""The guides' commands, jobs and calls on the queue of a machine with four GPUs."""

import re
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import pytest
import yaml

from tests.asked import Row, has_ended
from tests.guides import calls, comparing
from tests.guides.blocks import Step, transcript
from tests.guides.manifest import Expected, text_of, those
from tests.guides.place import HERE, Place
from tests.polling import until

pytestmark = pytest.mark.cluster
# A line of devices, such as `CUDA_VISIBLE_DEVICES: 1,2`; lines that count them have a number, and tables commas.
_DEVICES = r"(CUDA_VISIBLE_DEVICES|Allocated GPUs): \d+(,\d+)*"


@those("local", "curl")
def test_a_call_answers_with_the_guides_fields(block: Expected, local: Place) -> None:
    assert calls.called(block, place=local) == []


@those("local", "device")
def test_a_task_has_the_device_that_the_guide_names(block: Expected, local: Place) -> None:
    text = text_of(block)
    assert list(dict.fromkeys(re.findall(r'"(cuda(?::\d)?|cpu)"', text))) == list(block.devices)
    assert calls.started(block, place=local) == []


@those("local", "tree")
def test_the_gateway_prints_the_devices_as_the_guide_does(block: Expected, local: Place) -> None:
    local.cluster.restart("gateway")
    log = local.cluster.folder / "logs" / "gateway.log"
    until(lambda: "├──" in log.read_text(), what=log.read_text)
    assert [key for key in block.keys if key not in log.read_text()] == []


@those("local", "config")
def test_the_configuration_is_read_as_it_is(block: Expected, local: Place) -> None:
    path = local.work / "gpu_config.yaml"
    path.write_text(text_of(block))
    assert local.bash(f"dovetail config check {path}").returncode == 0
    assert _flat(yaml.safe_load(path.read_text())) == _flat(block.values)


@those("local", "shell")
def test_commands_do_and_print_what_the_guide_says(block: Expected, local: Place) -> None:
    with local.busy(block.busy) as running, local.holding() if block.holds else nullcontext():
        before = len(local.jobs())
        printed = _played(block, place=local, running=running)
        assert comparing.keys(printed, expected=block.keys) == []
        assert comparing.columns(printed, expected=block.columns) == []
        if block.prints_log:
            log = local.bash(f"gjob log {running[-1]}").stdout.strip()
            assert log
            assert log in "\n".join(printed)
        made = [int(job["number"]) for job in local.jobs()[before:]]
        assert len(made) == len(block.jobs)
        for number, expected in zip(made, block.jobs, strict=True):
            _until_job(number, expected=expected, place=local)
    if block.log:
        assert comparing.lines(_log(made[-1], place=local), expected=block.log) == []


@those("local", "job")
def test_a_job_prints_what_the_guide_says(block: Expected, local: Place) -> None:
    text = text_of(block)
    script = local.work / ("block.sh" if text.startswith("#!") or "echo" in text else "block.py")
    script.write_text(text)
    script.chmod(0o755)
    (local.work / "train.py").write_text((HERE / "user_script.py").read_text())
    words = f"bash {script.name}" if script.suffix == ".sh" else f"python {HERE / 'run_block.py'} {script.name}"
    own = script.name if text.startswith("#!") else f"--gpus {block.gpus} {words}"
    done = local.bash(f"gbatch {own}")
    number = int(done.stdout.split()[-1])
    assert local.show(number)["gpus"] == block.gpus
    printed = _log(number, place=local)
    assert comparing.lines(printed, expected=block.lines) == []
    assert comparing.columns(printed, expected=block.columns) == []
    counted = [line for line in printed if "devices" in block.lines and re.fullmatch(_DEVICES, line)]
    assert all(line.count(",") == block.gpus - 1 for line in counted)


def _played(block: Expected, *, place: Place, running: list[int]) -> list[str]:
    """What a block prints; `running` are the jobs that keep GPUs busy, of which the last one is the reader's own."""
    text = text_of(block).replace("<job_id>", str(running[-1] if running else 0)).replace("<N> ...", "1 nvidia-smi")
    if not re.search(r"^\$ ", text, re.MULTILINE):
        return place.bash(text).stdout.splitlines()
    found: list[str] = []
    for step in transcript(text):
        found += _stepped(step, place=place, others=set() if "<job_id>" in text_of(block) else set(running))
    return found


def _stepped(step: Step, *, place: Place, others: set[int]) -> list[str]:
    """What a command of a transcript prints but for `others`; one that only shows jobs, once it shows the guide's."""
    printed, wrong = list[str](), list[str]()

    def agrees() -> bool:
        lines = place.bash(step.command).stdout.splitlines()
        printed[:] = [line for line in lines if not step.printed or line.split(maxsplit=1)[0] not in map(str, others)]
        wrong[:] = comparing.step(step, printed=printed) if step.printed else []
        assert not (wrong and step.command.startswith("gbatch")), wrong
        return not wrong

    until(agrees, what=lambda: wrong)
    return printed


def _until_job(number: int, *, expected: Mapping[str, Any], place: Place) -> None:
    """Wait until a job is as expected."""

    def is_so(row: Row) -> bool:
        found = {**row, "after": len(row["dependencies"])}
        return all(found[name] == value for name, value in expected.items())

    place.show(number, holds=is_so)


def _log(number: int, *, place: Place) -> list[str]:
    """The log of a job that has ended well."""
    ended = place.show(number, holds=has_ended)
    log = place.bash(f"gjob log {number}").stdout
    assert ended["phase"] == "Succeeded", log
    return log.splitlines()


def _flat(value: Any, *, path: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {name: each for key, inner in value.items() for name, each in _flat(inner, path=f"{path}.{key}").items()}
