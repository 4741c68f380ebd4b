"""The subject of an explanation for a request that no pod or job has made yet. Pure."""

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeVar, get_args

from dovetail.api.gpujob import POLICIES_BY_LETTERS, Mode, Workload
from dovetail.api.reasons import explain as says
from dovetail.config.settings import Settings
from dovetail.engine.model.claims import Ask
from dovetail.formats.quantities import QuantityError, mebibytes, milli
from dovetail.gpu.request import RequestError, parse
from dovetail.query.errors import InvalidQueryError
from dovetail.query.explain.subjects import Subject

T = TypeVar("T")

_MODES: Final[dict[str, Mode]] = {mode.lower(): mode for mode in get_args(Mode)}
_WORKLOADS: Final[dict[str, Workload]] = {workload.lower(): workload for workload in get_args(Workload)}


def of_request(
    text: str,
    *,
    settings: Settings,
    mode: str | None = None,
    policy: str | None = None,
    cpu: str | None = None,
    memory: str | None = None,
    workload: str | None = None,
    field: Callable[[str], str] = str,
) -> Subject:
    """The subject for a request text such as `2(V100)`. Raises `InvalidQueryError`.

    `cpu` and `memory` are Kubernetes quantities of the host. `field` gives the name of a parameter in errors.
    """
    try:
        request = parse(text)
    except RequestError as error:
        raise InvalidQueryError(f"{field('gpu')}{str(error).removeprefix('gpu')}") from error
    by_request: Mode = "Exclusive" if request.whole and not request.names_memory else "Fractional"
    chosen = by_request if mode is None else _word(mode, allowed=_MODES, field=field("mode"))
    if chosen == "Exclusive" and not request.whole:
        raise InvalidQueryError(f'{field("mode")} "{mode}": {request} is a share, and Exclusive takes whole GPUs')
    ranking = settings.rankings.usual
    ask = Ask(
        gpu=request,
        mode=chosen,
        policy=ranking.policy if policy is None else _word(policy, allowed=POLICIES_BY_LETTERS, field=field("policy")),
        weights=ranking.weights,
        cpu_milli=0 if cpu is None else _amount(cpu, field=field("cpu"), read="cpu"),
        memory_mib=0 if memory is None else _amount(memory, field=field("memory"), read="memory"),
        workload=None if workload is None else _word(workload, allowed=_WORKLOADS, field=field("workload")),
    )
    return Subject(kind="Request", called=says.REQUEST(request=str(request)), state="asked", ask=ask)


def _word(text: str, *, allowed: Mapping[str, T], field: str) -> T:
    found = allowed.get(text.lower())
    if found is None:
        raise InvalidQueryError(f'{field} "{text}": allowed are {", ".join(map(str, allowed.values()))}')
    return found


def _amount(text: str, *, field: str, read: Literal["cpu", "memory"]) -> int:
    example = "4, 500m" if read == "cpu" else "16Gi, 512Mi"
    try:
        amount = milli(text) if read == "cpu" else mebibytes(text)
    except QuantityError as error:
        raise InvalidQueryError(f'{field} "{text}": write a Kubernetes quantity, such as {example}') from error
    if amount < 0:
        raise InvalidQueryError(f'{field} "{text}": must not be negative')
    return amount
