"""What tasks of a model service run, from one command line for each kind. Pure."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dovetail.names import UNUSED_IMAGE
from dovetail_cli.submit import pod_options
from dovetail_cli.submit.pod_options import Volume
from dovetail_cli.ui.errors import UsageError

# `${HOME}` is the shell's and no field of a request.
_FIELD: Final = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_OPERATORS: Final = frozenset("();<>|&")
# One training and three inferences fit on a device, and some of it stays.
_TRAINING: Final = {"mode": "Fractional", "workload": "Training", "resources": {"share": 0.5}}
_INFERENCE: Final = {"mode": "Fractional", "workload": "Inference", "resources": {"share": 0.125}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlace:
    """Where tasks run: an image, the folder that relative paths count from, and what is mounted.

    `annotations` are those of their pods.
    """

    image: str = UNUSED_IMAGE
    workdir: str = ""
    volumes: Sequence[Volume] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


def task_templates(*, train: str | None, infer: str | None, place: TaskPlace) -> dict[str, Any]:
    """The gateway's templates for the kinds of task with a command line. Raises `UsageError`."""
    found: dict[str, Any] = {}
    if train is not None:
        found["training"] = {**_TRAINING, "template": _pod(_words(train, option="--train"), place=place)}
    if infer is not None:
        found["inference"] = {**_INFERENCE, "template": _pod(_words(infer, option="--infer"), place=place)}
    return found


def _pod(words: Sequence[str], *, place: TaskPlace) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "task", "image": place.image, "command": list(words)}
    if place.workdir:
        container["workingDir"] = place.workdir
    container |= pod_options.container_fields(env={}, mounted=place.volumes)
    spec = {"restartPolicy": "Never", "containers": [container]}
    spec |= pod_options.pod_fields(mounted=place.volumes, selector={})
    return {**({"metadata": {"annotations": dict(place.annotations)}} if place.annotations else {}), "spec": spec}


def _words(line: str, *, option: str) -> list[str]:
    """The words of a line, with `{field}` as kubelet's reference to the variable of that field."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(f"{option} {line!r}: {error}") from error
    if not words:
        raise UsageError(
            f"{option} is empty: write a command, such as {option} 'python train.py --data {{train_path}}'"
        )
    if operator := next((word for word in words if set(word) <= _OPERATORS), None):
        raise UsageError(f"{option} {line!r}: no shell reads {operator!r}; put it into a script, and name that")
    for word in words:
        if (found := _FIELD.search(word)) and re.search(r"\s", word):
            message = (
                f"{option} {line!r}: {found[0]} cannot be within a quoted text; read $TASK_{found[1].upper()} there"
            )
            raise UsageError(message)
    return [_FIELD.sub(lambda found: f"$(TASK_{found[1].upper()})", word.replace("$", "$$")) for word in words]
