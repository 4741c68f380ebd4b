"""What a script asks for as the spec of a GPUJob. Pure."""

import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

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


def job(
    command: Sequence[str],
    *,
    image: str,
    gpu: str | float,
    environment: Mapping[str, str],
    priority: int,
    workers: int,
    time_limit_seconds: int | None,
    cpu_fallback: bool,
    cpu_fallback_after_seconds: int | None,
) -> dict[str, Any]:
    """A command in a container. Raises `InvalidError`."""
    if isinstance(command, str) or not command:
        raise _invalid('command: a list of words, such as ["python", "train.py"]')
    # Without an image, the gateway names one where no node runs images, and refuses the job elsewhere.
    container = ({"image": image} if image else {}) | {
        "name": "main",
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
    }
    spec: dict[str, Any] = {
        "priority": priority,
        "workers": workers,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    # No GPU is a request of its own: 0 is none of the texts.
    spec |= {"resources": {"device": "cpu"}} if gpu == 0 else {"gpu": checked_request(gpu)}
    if time_limit_seconds is not None:
        spec["activeDeadlineSeconds"] = time_limit_seconds
    if cpu_fallback or cpu_fallback_after_seconds is not None:
        spec["onNoGPU"] = "RunOnCPU"
    if cpu_fallback_after_seconds is not None:
        spec["onNoGPUAfterSeconds"] = cpu_fallback_after_seconds
    return spec


def _invalid(message: str) -> InvalidError:
    return InvalidError(message, status=422, reason="Invalid")
