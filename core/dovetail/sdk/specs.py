"""What a script asks for as the spec of a GPUJob. Pure."""

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypedDict

import msgspec

from dovetail.api.gpujob import GPUJobSpec
from dovetail.decoding import UnreadableError, convert
from dovetail.formats.suggestions import suggestion
from dovetail.gpu.request import RequestError, parse
from dovetail.sdk.errors import InvalidError

MOST_SECONDS: Final = 1 << 31
_MOST_ANSWER_SECONDS: Final = 10
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def new_name(prefix: str) -> str:
    """A name that no other object has."""
    return f"{prefix}-{secrets.token_hex(5)}"


def checked_name(name: str) -> str:
    """The name of an object. Raises `InvalidError`."""
    if not _NAME.fullmatch(name):
        raise _invalid(f'name "{name}": at most 63 lower-case letters, digits and hyphens, such as train-1')
    return name


def checked_number(number: Any) -> int:
    """The number of a job. Raises `InvalidError`."""
    if type(number) is not int or number < 1:
        raise _invalid(f"job {number!r}: write the name of its object, or its number, from 1")
    return number


def checked_key(key: Any) -> str | None:
    """What a submission says to be the same as another one. Raises `InvalidError`."""
    if key is not None and not (isinstance(key, str) and key):
        raise _invalid(f'key {key!r}: a text, such as "nightly-7"')
    return key


def checked_request(text: str | float) -> str | int:
    """A GPU request as the API takes it. Raises `InvalidError`."""
    if isinstance(text, bool):
        raise _invalid(f"gpu {text}: write for example 2, 0.5 or 2(V100)")
    try:
        parse(str(text))
    except RequestError as error:
        raise _invalid(str(error)) from error
    return text if isinstance(text, int) else str(text)


def reservation(gpu: str | float, *, lease_seconds: int, priority: int, workers: int) -> dict[str, Any]:
    """GPUs that are held without a program. Raises `InvalidError`."""
    if not 30 <= lease_seconds <= MOST_SECONDS:
        raise _invalid(f"lease_seconds {lease_seconds}: 30 to {MOST_SECONDS} are allowed")
    return {
        "gpu": checked_request(gpu),
        "workers": workers,
        "priority": priority,
        "reservation": {"durationSeconds": lease_seconds},
    }


class JobOptions(TypedDict, total=False):
    """What a submission may say about its job.

    image                       the container's image; simulated nodes and one's own machine need none
    gpu                         the request of each worker: 2, 0.5, `2(V100)`; 0 asks for none; by default 1
    name, namespace             of the object; by default a new name in the client's namespace
    environment                 variables
    priority                    0 to 255, by default 10
    workers                     their number, each with its own GPUs: all start together, with torchrun's variables
    retries                     how often the job is tried again after a worker has failed
    depends_on                  jobs, or their names, that must succeed first
    time_limit_seconds          after so long it is ended
    cpu_fallback                whether it runs on the CPU if no node could ever have its GPUs
    cpu_fallback_after_seconds  also after it has waited so long for busy ones
    spec                        further fields of the GPUJob; without a command, the whole spec
    key                         the same request with the same key gives the same job again
    answer_seconds              how long the submission waits for the queue's answer, 0 to 10, by default 1
    """

    image: str
    gpu: str | float
    name: str | None
    namespace: str | None
    environment: Mapping[str, str] | None
    priority: int
    workers: int
    retries: int
    depends_on: Sequence[Any]
    time_limit_seconds: int | None
    cpu_fallback: bool
    cpu_fallback_after_seconds: int | None
    spec: Mapping[str, Any] | None
    key: str | None
    answer_seconds: int


# Options that are numbers, and the field of the spec that each of them is.
_NUMBERS: Final[Mapping[str, str]] = {
    "priority": "priority",
    "workers": "workers",
    "retries": "backoff_limit",
    "time_limit_seconds": "active_deadline_seconds",
    "cpu_fallback_after_seconds": "on_no_gpu_after_seconds",
}


def asked(command: Sequence[str], *, options: JobOptions) -> Mapping[str, Any]:
    """The spec of the GPUJob that a submission means. Raises `InvalidError`."""
    _check(options)
    more = options.get("spec")
    if more is not None and not command:
        return more
    return {**_job(command, options=options), **(more or {})}


def _job(command: Sequence[str], *, options: JobOptions) -> dict[str, Any]:
    """A command in a container."""
    if isinstance(command, str) or not command:
        raise _invalid('command: a list of words, such as ["python", "train.py"]')
    image, gpu, environment = options.get("image"), options.get("gpu", 1), options.get("environment") or {}
    # Without an image, the gateway names one where no node runs images, and refuses the job elsewhere.
    container = ({"image": image} if image else {}) | {
        "name": "main",
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    spec: dict[str, Any] = {
        "priority": options.get("priority", 10),
        "workers": options.get("workers", 1),
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    # No GPU is a request of its own: 0 is none of the texts.
    spec |= {"resources": {"device": "cpu"}} if gpu == 0 else {"gpu": checked_request(gpu)}
    after = options.get("cpu_fallback_after_seconds")
    further = {
        "backoffLimit": options.get("retries"),
        "dependencies": [{"name": getattr(each, "name", each)} for each in options.get("depends_on", ())] or None,
        "activeDeadlineSeconds": options.get("time_limit_seconds"),
        "onNoGPU": "RunOnCPU" if options.get("cpu_fallback") or after is not None else None,
        "onNoGPUAfterSeconds": after,
    }
    return spec | {name: value for name, value in further.items() if value is not None}


def _check(options: Mapping[str, Any]) -> None:
    """Raise `InvalidError` for an option that there is not, or whose value no job can have."""
    known = JobOptions.__annotations__
    for name in options:
        if name not in known:
            near = suggestion(name, known=known) or f"; there are {', '.join(known)}"
            raise _invalid(f"{name}: no such option{near}")
    for name, field in _NUMBERS.items():
        if options.get(name) is not None:
            _check_number(name, value=options[name], field=field)
    wait = options.get("answer_seconds", 0)
    if type(wait) is not int or not 0 <= wait <= _MOST_ANSWER_SECONDS:
        raise _invalid(f"answer_seconds {wait!r}: a whole number from 0 to {_MOST_ANSWER_SECONDS}")
    after = options.get("depends_on", ())
    if isinstance(after, str) or not isinstance(after, Collection):
        shown = after if isinstance(after, str) else getattr(after, "name", after)
        raise _invalid(f'depends_on "{shown}": a list of jobs or of their names, such as ["{shown}"]')
    environment = options.get("environment") or {}
    if not isinstance(environment, Mapping):
        raise _invalid(f'environment {environment!r}: names with their texts, such as {{"LR": "0.1"}}')
    for name, text in environment.items():
        if not isinstance(text, str):
            raise _invalid(f'environment {name} {text!r}: a text, such as "{text}"')


def _check_number(option: str, *, value: Any, field: str) -> None:
    """Raise `InvalidError` for a number that the field of a GPUJob's spec does not take."""
    (kind,) = (each.type for each in msgspec.structs.fields(GPUJobSpec) if each.name == field)
    try:
        convert(value, as_type=kind)
    except UnreadableError as error:
        from msgspec import inspect

        number = inspect.type_info(kind)
        while isinstance(number, inspect.Metadata | inspect.UnionType):
            number = number.type if isinstance(number, inspect.Metadata) else number.types[0]
        bounds = f" from {number.ge} to {number.le}" if isinstance(number, inspect.IntType) else ""
        raise _invalid(f"{option} {value!r}: a whole number{bounds}") from error


def _invalid(message: str) -> InvalidError:
    return InvalidError(message, status=422, reason="Invalid")
