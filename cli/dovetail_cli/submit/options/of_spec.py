"""Options of gbatch that are one field of the spec each: their words, and how they are read.

What reads a value is loaded when the option is given: help and completion load none of it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Final, get_args

import typer

from dovetail_cli.ui.errors import UsageError

Fields = Mapping[str, Any]
# The parameter of gbatch in whose place these options stand.
_PLACE: Final = "fields"
_PLACES: Final = "Where it runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecOption:
    """An option.

    field    the attribute of `GPUJobSpec`
    flag     its word on the command line and in a script's lines
    metavar  what help shows for its value
    help     the sentence of help
    group    the group of help that lists it
    read     the field's value of a text; raises `UsageError`
    """

    field: str
    flag: str
    metavar: str
    help: str
    group: str
    read: Callable[[str], object]


def one_of(text: str, *, option: str, allowed: tuple[str, ...]) -> str:
    """The word of a closed set, in any case. Raises `UsageError`."""
    found = {word.lower(): word for word in allowed}.get(text.strip().lower())
    if found is None:
        raise UsageError(f'{option} "{text}": allowed are {", ".join(allowed)}, such as {option} {allowed[0]}')
    return found


def _workload(text: str) -> str:
    from dovetail.api.gpujob import Workload

    return one_of(text, option="--workload", allowed=get_args(Workload))


def _restart(text: str) -> str:
    from dovetail.api.gpujob import Restart

    return one_of(text, option="--restart", allowed=get_args(Restart))


def _moves(text: str) -> str:
    from dovetail.api.gpujob import Moves

    return one_of(text, option="--moves", allowed=get_args(Moves))


def _policy(text: str) -> str:
    from dovetail.api.gpujob import Policy

    return one_of(text, option="--policy", allowed=get_args(Policy))


def _score_weights(text: str) -> object:
    from dovetail.gpu.request import RequestError
    from dovetail.pods.options import annotations

    try:
        return annotations.spec_of_weights(annotations.parse_weights(text, field="--score-weights"))
    except RequestError as error:
        raise UsageError(str(error)) from error


def _pool(text: str) -> str:
    from dovetail_cli.submit.manifest import LABEL

    if not LABEL.fullmatch(text):
        raise UsageError(f'--pool "{text}": write the value of a label such as a100: a-z, 0-9 and -, at most 63')
    return text


OPTIONS: Final = (
    SpecOption(
        field="workload",
        flag="--workload",
        metavar="WORKLOAD",
        help="Training or Inference: how many of each share a GPU.",
        group="GPUs",
        read=_workload,
    ),
    SpecOption(
        field="restart",
        flag="--restart",
        metavar="WHAT",
        help="After a worker lost its node, restart the Gang or this Worker.",
        group="Many of it",
        read=_restart,
    ),
    SpecOption(
        field="moves",
        flag="--moves",
        metavar="WHAT",
        help="May it restart on other nodes so that another job starts? Never or Restart.",
        group=_PLACES,
        read=_moves,
    ),
    SpecOption(
        field="policy",
        flag="--policy",
        metavar="POLICY",
        help="Spread, Pack or Balanced.",
        group=_PLACES,
        read=_policy,
    ),
    SpecOption(
        field="score_weights",
        flag="--score-weights",
        metavar="TERM=WEIGHT,…",
        help="Weights of utilization, memory, cpu and fragmentation when nodes are ranked, such as fragmentation=0.6.",
        group=_PLACES,
        read=_score_weights,
    ),
    SpecOption(
        field="pool",
        flag="--pool",
        metavar="NAME",
        help="Only nodes of this pool (label dovetail.dev/pool).",
        group=_PLACES,
        read=_pool,
    ),
)


def with_spec_options(command: Callable[..., None]) -> Callable[..., None]:
    """A typer command with these options in the place of its parameter `fields`."""

    @wraps(command)
    def run(**given: Any) -> None:
        texts = {option: given.pop(option.field) for option in OPTIONS}
        fields = {option.field: option.read(text) for option, text in texts.items() if text is not None}
        command(**given, **{_PLACE: fields})

    own = list(inspect.signature(command).parameters.values())
    at = [parameter.name for parameter in own].index(_PLACE)
    own[at : at + 1] = [_parameter(option) for option in OPTIONS]
    run.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in own}
    return run


def _parameter(option: SpecOption) -> inspect.Parameter:
    said = typer.Option(option.flag, metavar=option.metavar, help=option.help, rich_help_panel=option.group)
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.field, kind, default=None, annotation=Annotated[str | None, said])
