"""Runs blocks that call the gateway, and compares its answers."""

from contextlib import nullcontext
from functools import partial
from typing import Any

from tests.guides import comparing
from tests.guides.manifest import Expected, manifest, text_of
from tests.guides.place import Place
from tests.polling import until

_TASK = {"cfg_path": "configs/model.yaml", "weight_path": "models/best.pth", "source_path": "data/test"}


def called(expected: Expected, *, place: Place) -> list[str]:
    """What differs in the answers to a block's calls, and to samples of them."""
    with place.holding() if expected.tasks else nullcontext():
        tasks = [start(device, place=place)["task_id"] for device in expected.tasks]
        text = text_of(expected).replace("{task_id}", tasks[-1] if tasks else "")
        if tasks:
            until(lambda: _task(tasks[-1], place=place)["status"] == "running")
        found = comparing.answers(place.bash(text).stdout)
    if len(found) != len(expected.answers):
        return [f"{len(expected.answers)} answers expected: {found}"]
    wrong = []
    for at, answer in enumerate(found):
        wrong += comparing.fields(answer, expected=expected.answers[at])
        wrong += comparing.values(answer, expected=expected.values[at] if expected.values else {})
    return wrong + [
        each for sample in samples_of(expected)
        for each in comparing.fields(found[0], expected=sample.fields, absent=sample.absent)
    ]  # fmt: skip


def samples_of(expected: Expected) -> list[Expected]:
    """The samples of a block's answer."""
    return [
        each
        for each in manifest()
        if each.run == "sample" and (each.sample_guide or each.guide, each.of) == (expected.guide, expected.at)
    ]


def started(expected: Expected, *, place: Place) -> list[str]:
    """What differs if a task is started on each device."""
    found = [start(device, place=place) for device in expected.devices]
    wrong = [text for each in found for text in comparing.fields(each, expected={"task_id": "str", "status": "str"})]
    for device, answer in zip(expected.devices, found, strict=True):
        # A start waits a second for the device: on a busy machine, it is told by the task.
        until(partial(_is_on, device, answer, place=place), what=partial(_task, answer["task_id"], place=place))
    return wrong


def _is_on(device: str, answer: Any, *, place: Place) -> bool:
    told = answer if answer["status"] == "running" else _task(answer["task_id"], place=place)
    return bool(told["device"].startswith("cuda:") if device == "cuda" else told["device"] == device)


def _task(name: str, *, place: Place) -> Any:
    return place.ask("GET", f"/api/v2/tasks/{name}")


def refused(*, place: Place) -> list[str]:
    """What differs if a task names a device that does not exist."""
    count = place.ask("GET", "/api/v2/resources/gpu")["count"]
    answer = start(f"cuda:{count}", place=place)
    wanted = f"device cuda:{count} does not exist: this cluster has {count} GPUs"
    return [] if answer.get("detail", "").startswith(wanted) else [str(answer)]


def start(device: str, *, place: Place) -> Any:
    """Start an inference."""
    return place.ask("POST", "/api/v2/inference/start", body=_TASK | {"device": device})
