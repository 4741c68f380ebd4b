"""The GPUJob of a task: a configured spec with the request's device, arguments and variables."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec

from dovetail.api.gpujob import MAX_BATCH_SIZE, GPUJob, GPUJobSpec
from dovetail.config.errors import ConfigError
from dovetail.decoding import UnreadableError, convert, decode
from dovetail.formats.yaml_text import YAMLTextError, load_yaml
from dovetail.names import GROUP
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.v2.types import Kind

LABEL: Final = f"{GROUP}/task-type"
_SHIPPED: Final = "task_templates.yaml"
_FIELD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_MOST_CHARACTERS: Final = 4096
# What means nothing without a GPU.
_OF_GPUS: Final = frozenset({"mode", "workload", "memory", "onNoGPU", "onNoGPUAfterSeconds"})


class _Templates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    training: dict[str, Any]
    inference: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """The spec of each kind's tasks."""

    by_kind: Mapping[Kind, Mapping[str, Any]]

    def spec(self, kind: Kind, *, device: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """The spec of a task on this device, as `spec.resources.device` names it. Raises `RequestFailedError`."""
        spec = copy.deepcopy(dict(self.by_kind[kind]))
        texts = {name: _text(name, value=value) for name, value in fields.items()}
        container = spec["template"]["spec"]["containers"][0]
        container["args"] = [*container.get("args", []), *_arguments(texts)]
        container["env"] = [*container.get("env", []), *_variables(texts)]
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


def load_templates(path: Path | None) -> Templates:
    """The templates of a YAML file, or those that ship. Raises `ConfigError`."""
    origin = _SHIPPED if path is None else str(path)
    source = resources.files(__package__) / _SHIPPED if path is None else path
    try:
        found = convert(load_yaml(source.read_text(encoding="utf-8")), as_type=_Templates)
        return Templates(by_kind={"training": _checked(found.training), "inference": _checked(found.inference)})
    except (OSError, YAMLTextError) as error:
        raise ConfigError(origin, problem=f"cannot be read: {error}") from error
    except UnreadableError as error:
        raise ConfigError(origin, problem=error.problem) from error


def as_job(spec: Mapping[str, Any], *, namespace: str) -> GPUJob:
    """A spec as a job that is not submitted. Raises `UnreadableError`."""
    job = {"metadata": {"name": "asked", "namespace": namespace}, "spec": dict(spec)}
    return decode(msgspec.json.encode(job), as_type=GPUJob)


def _checked(spec: dict[str, Any]) -> dict[str, Any]:
    decode(msgspec.json.encode(spec), as_type=GPUJobSpec)
    pod = spec.get("template", {}).get("spec", {})
    if "resources" not in spec or not isinstance(pod, dict) or not pod.get("containers"):
        raise UnreadableError("a task's template needs resources and template.spec.containers")
    return spec


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
        message = f'field "{name[:63]}": a name has letters, digits, "_", "." and "-", 63 at most'
        raise RequestFailedError(422, reason="Invalid", message=message)
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    if len(text) > _MOST_CHARACTERS or "\0" in text:
        message = f"{name}: {len(text)} characters, allowed are {_MOST_CHARACTERS} without NUL"
        raise RequestFailedError(422, reason="Invalid", message=message)
    return text


def _arguments(texts: Mapping[str, str]) -> list[str]:
    return [part.replace("$(", "$$(") for name, text in texts.items() for part in (f"--{name}", text)]


def _variables(texts: Mapping[str, str]) -> list[dict[str, str]]:
    # kubelet expands $(NAME) in values; $$( is a plain $(.
    return [
        {"name": "TASK_" + re.sub(r"[^A-Z0-9]", "_", name.upper()), "value": text.replace("$(", "$$(")}
        for name, text in texts.items()
    ]
