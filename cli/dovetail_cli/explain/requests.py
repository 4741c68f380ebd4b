"""The request that `dovetail explain request` names, from its options. Pure."""

from typing import Final, Literal, get_args

from dovetail.api.gpujob import Mode, Workload
from dovetail.config.settings import Settings
from dovetail.engine.model.claims import Ask
from dovetail.formats.quantities import QuantityError, mebibytes, milli
from dovetail.gpu.request import RequestError, parse
from dovetail.query.explain.subjects import Subject
from dovetail_cli.submit.manifest import parse_policy
from dovetail_cli.ui.errors import UsageError

_MODES: Final[dict[str, Mode]] = {mode.lower(): mode for mode in get_args(Mode)}
_WORKLOADS: Final[dict[str, Workload]] = {workload.lower(): workload for workload in get_args(Workload)}


def of_request(
    text: str,
    *,
    mode: str | None,
    policy: str | None,
    cpu: str | None,
    memory: str | None,
    workload: str | None,
    settings: Settings,
) -> Subject:
    """A request that no pod or job has made yet. Raises `UsageError`."""
    try:
        request = parse(text)
    except RequestError as error:
        raise UsageError(str(error)) from error
    by_request: Mode = "Exclusive" if request.whole and request.memory_mib is None else "Fractional"
    chosen = by_request if mode is None else _mode(mode)
    if chosen == "Exclusive" and not request.whole:
        raise UsageError(f'--mode "{mode}": {request} is a share, and Exclusive takes whole GPUs')
    ask = Ask(
        gpu=request,
        mode=chosen,
        policy=parse_policy(policy) or settings.policy,
        cpu_milli=0 if cpu is None else _amount(cpu, option="--cpu", read="cpu"),
        memory_mib=0 if memory is None else _amount(memory, option="--memory-host", read="memory"),
        workload=None if workload is None else _workload(workload),
    )
    return Subject(kind="Request", called=str(request), state="asked", ask=ask)


def _mode(text: str) -> Mode:
    mode = _MODES.get(text.lower())
    if mode is None:
        raise UsageError(f'--mode "{text}": allowed are {", ".join(_MODES.values())}')
    return mode


def _workload(text: str) -> Workload:
    workload = _WORKLOADS.get(text.lower())
    if workload is None:
        raise UsageError(f'--workload "{text}": allowed are {", ".join(_WORKLOADS.values())}')
    return workload


def _amount(text: str, *, option: str, read: Literal["cpu", "memory"]) -> int:
    example = "4, 500m" if read == "cpu" else "16Gi, 512Mi"
    try:
        amount = milli(text) if read == "cpu" else mebibytes(text)
    except QuantityError as error:
        raise UsageError(f'{option} "{text}": write a Kubernetes quantity, such as {example}') from error
    if amount < 0:
        raise UsageError(f'{option} "{text}": must not be negative')
    return amount
