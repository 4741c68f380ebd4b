"""Values of the fields of a job's spec that stand in an annotation of its pods or are one option of gbatch.

And of the keys by which the configuration ranks nodes for one namespace. What any such field or key goes through is
tested with these: a new one needs a line here.
"""

from dataclasses import dataclass
from typing import Any, Final

from dovetail import names


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A field with a value, and the annotation that it becomes.

    beside  what else the spec has, so that the field counts
    """

    field: str
    value: Any
    annotation: str
    text: str
    beside: dict[str, Any]

    @property
    def spec(self) -> dict[str, Any]:
        return {**self.beside, self.field: self.value}


_SHARE: Final = {"gpu": "0.5"}
CARRIED: Final = (
    Carried(field="mode", value="TimeShared", annotation=names.MODE, text="TimeShared", beside={"gpu": "8G,0.5"}),
    Carried(field="policy", value="Pack", annotation=names.POLICY, text="Pack", beside=_SHARE),
    Carried(
        field="scoreWeights",
        value={"cpu": 0.25, "memory": 0},
        annotation=names.SCORE_WEIGHTS,
        text="memory=0,cpu=0.25",
        beside=_SHARE,
    ),
    Carried(
        field="memory",
        value={"strategy": "Aggressive"},
        annotation=names.MEMORY_STRATEGY,
        text="Aggressive",
        beside=_SHARE,
    ),
    Carried(field="workload", value="Inference", annotation=names.WORKLOAD, text="Inference", beside=_SHARE),
    Carried(
        field="priority",
        value=7,
        annotation=names.PRIORITY,
        text="7",
        beside={"gpu": "8G,0.5", "mode": "TimeShared"},
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Optional:
    """An option of gbatch for a field: a text with its value, and a text with the beginning of its refusal."""

    flag: str
    text: str
    value: Any
    wrong: str
    refusal: str


OPTIONAL: Final = (
    Optional(
        flag="--workload",
        text="training",
        value="Training",
        wrong="serving",
        refusal="allowed are Training, Inference, such as --workload Training",
    ),
    Optional(
        flag="--restart",
        text="WORKER",
        value="Worker",
        wrong="",
        refusal="allowed are Gang, Worker, such as --restart Gang",
    ),
    Optional(
        flag="--moves",
        text="restart",
        value="Restart",
        wrong="sometimes",
        refusal="allowed are Never, Restart, such as --moves Never",
    ),
    Optional(
        flag="--policy",
        text="pack",
        value="Pack",
        wrong="best",
        refusal="allowed are Spread, Pack, Balanced",
    ),
    Optional(
        flag="--score-weights",
        text="fragmentation=0.6,cpu=0",
        value={"fragmentation": 0.6, "cpu": 0.0},
        wrong="gpu=1",
        refusal="the terms are utilization, memory, cpu, fragmentation; write for example",
    ),
    Optional(
        flag="--pool",
        text="big-one",
        value="big-one",
        wrong="A100",
        refusal="write the value of a label such as a100",
    ),
)


# What the configuration may say of one namespace's ranking of nodes, by key.
RANKED: Final[dict[str, Any]] = {"namespace_policies": "Pack", "namespace_score_weights": {"cpu": {"min": 5.0}}}
