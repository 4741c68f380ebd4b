"""What a script asks for as the spec of a GPUJob. Pure."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypedDict

from dovetail.gpu.request import RequestError, parse
from dovetail.sdk.errors import InvalidError

MOST_SECONDS: Final = 1 << 31
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def new_name(prefix: str) -> str:
    """A name that no other object has."""
    return f"{prefix}-{secrets.token_hex(5)}"


def checked_name(name: str) -> str:
    """The name of an object. Raises `InvalidError`."""
    if not _NAME.fullmatch(name):
        raise _invalid(f'name "{name}": at most 63 lower-case letters, digits and hyphens, such as train-1')
    return name


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


def asked(command: Sequence[str], *, options: JobOptions) -> Mapping[str, Any]:
    """The spec of the GPUJob that a submission means. Raises `InvalidError`."""
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


def _invalid(message: str) -> InvalidError:
    return InvalidError(message, status=422, reason="Invalid")
