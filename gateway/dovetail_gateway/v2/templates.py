"""The GPUJob of a task: a configured spec with the request's device, arguments and variables."""

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.answers.v2 import Kind
from dovetail.api.gpujob import MAX_BATCH_SIZE, GPUJob, GPUJobSpec
from dovetail.api.reasons import problems as says
from dovetail.config.errors import ConfigError
from dovetail.decoding import UnreadableError, convert, decode
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.names import GROUP
from dovetail.pods.template_types import TemplateContainer
from dovetail_gateway.routing.problems import RequestFailedError

LABEL: Final = f"{GROUP}/task-type"
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_MOST_CHARACTERS: Final = 4096
# What means nothing without a GPU.
_OF_GPUS: Final = frozenset({"mode", "workload", "memory", "onNoGPU", "onNoGPUAfterSeconds"})
# kubelet replaces $(NAME) in commands and arguments, and writes $$ as one $.
_REFERENCE: Final = re.compile(r"\$(?:\$|\(TASK_([A-Z0-9_]+)\))")
_LINES: Final[Mapping[Kind, str]] = {
    "training": "--train 'python train.py --data {train_path} --out {save_path}'",
    "inference": "--infer 'python infer.py --weights {weight_path} --data {source_path}'",
}


class _Templates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    training: dict[str, Any] | None = None
    inference: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """The spec of each kind's tasks; a kind without one has no tasks.

    A container whose command or arguments refer to fields, as `$(TASK_LR)`, gets them there and nowhere else. Any
    other gets all fields as arguments, such as `--lr 0.1`.
    """

    by_kind: Mapping[Kind, Mapping[str, Any]]

    def spec(self, kind: Kind, *, device: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The spec of a task on this device, as `spec.resources.device` names it. Raises `RequestFailedError`."""
        if kind not in self.by_kind:
            raise _no_template(kind)
        spec = copy.deepcopy(dict(self.by_kind[kind]))
        texts = {name: _text(name, value=value) for name, value in fields.items()}
        container = spec["template"]["spec"]["containers"][0]
        known = convert(container, as_type=TemplateContainer)
        container["env"] = [*container.get("env", ()), *_variables(texts)]
        if not (used := _fields_in([*known.command, *known.args])):
            container["args"] = [*known.args, *_arguments(texts)]
        elif missing := sorted(used - {str(each.get("name")).removeprefix("TASK_") for each in container["env"]}):
            sentence = says.FIELD_MISSING(field=missing[0].lower(), kind=kind)
            raise RequestFailedError(422, reason="Invalid", sentence=sentence)
        if device == "cpu":
            kept = {name: value for name, value in spec.items() if name not in _OF_GPUS}
            return {**kept, "resources": {"device": "cpu"}}
        request = {**spec["resources"], "device": device}
        if (memory := _memory_of_model(fields)) is not None:
            # The template's memory is for models of which nothing is known.
            request.pop("memory", None)
            spec["memory"] = memory
        # The arguments name a GPU, so a default of the namespace moves no task to the CPU; its template may.
        return {"onNoGPU": "Wait", "policy": "Spread", **spec, "resources": request}


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """A YAML file with templates, read for each task: it may change while the gateway runs. No file, no templates."""

    path: Path | None = None

    def read(self) -> Templates:
        """The templates as they are now. Raises `ConfigError`."""
        if self.path is None:
            return Templates(by_kind={})
        try:
            found = convert(load_yaml(self.path.read_text(encoding="utf-8")), as_type=_Templates)
            given: dict[Kind, dict[str, Any] | None] = {"training": found.training, "inference": found.inference}
            return Templates(by_kind={kind: _checked(spec) for kind, spec in given.items() if spec is not None})
        except (OSError, UnicodeDecodeError, YAMLTextError) as error:
            raise ConfigError(str(self.path), problem=f"cannot be read: {error}") from error
        except UnreadableError as error:
            raise ConfigError(str(self.path), problem=error.problem) from error


def as_job(spec: Mapping[str, Any], *, namespace: str) -> GPUJob:
    """A spec as a job that is not submitted. Raises `UnreadableError`."""
    job = {"metadata": {"name": "asked", "namespace": namespace}, "spec": dict(spec)}
    return decode(msgspec.json.encode(job), as_type=GPUJob)


def _checked(spec: dict[str, Any]) -> dict[str, Any]:
    decode(msgspec.json.encode(spec), as_type=GPUJobSpec)
    pod = spec.get("template", {}).get("spec", {})
    if "resources" not in spec or not isinstance(pod, dict) or not pod.get("containers"):
        raise UnreadableError("a task's template needs resources and template.spec.containers")
    convert(pod["containers"][0], as_type=TemplateContainer)
    return spec


def _no_template(kind: Kind) -> RequestFailedError:
    return RequestFailedError(409, reason="NoTaskTemplate", sentence=says.NO_TEMPLATE(kind=kind, line=_LINES[kind]))


def _fields_in(words: Iterable[str]) -> set[str]:
    """The fields that words refer to, as their variables name them without `TASK_`."""
    return {match[1] for word in words for match in _REFERENCE.finditer(word) if match[1]}


def _memory_of_model(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """`spec.memory` for the model of a request.

    None without a number of parameters, or with a batch size that the program chooses itself.
    """
    parameters, batch = fields.get("parameter_count"), fields.get("batch_size", 1)
    if parameters is None or type(batch) is not int or not 1 <= batch <= MAX_BATCH_SIZE:
        return None
    return {"strategy": "Dynamic", "parameters": parameters, "batchSize": batch}


def _text(name: str, *, value: Any) -> str:
    if not _FIELD.fullmatch(name):
        raise RequestFailedError(422, reason="Invalid", sentence=says.FIELD_NAME(field=name[:63]))
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(text) > _MOST_CHARACTERS or "\0" in text:
        sentence = says.FIELD_TOO_LONG(field=name, characters=len(text), most=_MOST_CHARACTERS)
        raise RequestFailedError(422, reason="Invalid", sentence=sentence)
    return text


def _arguments(texts: Mapping[str, str]) -> list[str]:
    return [_literal(part) for name, text in texts.items() for part in (f"--{name}", text)]


def _variables(texts: Mapping[str, str]) -> list[dict[str, str]]:
    return [
        {"name": "TASK_" + re.sub(r"[^A-Z0-9]", "_", name.upper()), "value": _literal(text)}
        for name, text in texts.items()
    ]


def _literal(text: str) -> str:
    """`text` as kubelet leaves it: it expands $(NAME), and writes $$ as one $."""
    return text.replace("$", "$$")
