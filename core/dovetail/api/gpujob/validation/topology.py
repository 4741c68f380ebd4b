"""The CEL rules on the topology of a GPUJob. Data only."""

from typing import Any, Final

Rule = dict[str, str]

LEVEL: Final = "a level is written with a-z, 0-9 and '-', such as rack"
TOPOLOGY: Final[list[Rule]] = [
    {
        "rule": "has(self.required) || has(self.preferred) || has(self.subGroups)",
        "message": "topology must have required, preferred or subGroups, such as {required: rack}",
    },
    {
        "rule": "!has(self.required) || !has(self.preferred) || self.required != self.preferred",
        "message": "topology.preferred must be a narrower level than topology.required",
    },
]
_SIZE: Final = "self.?topology.?subGroups.?size.orValue(1)"
_LEAST: Final = "self.?minWorkers.orValue"
# It includes the bound of minWorkers.
WORKERS: Final[Rule] = {
    "rule": f"{_LEAST}(0) <= self.workers && [self.workers, {_LEAST}(0)].all(each, each % {_SIZE} == 0)",
    "message": "minWorkers must not be more than workers, and both must be multiples of topology.subGroups.size",
}


def add_to(spec: dict[str, Any]) -> None:
    """Put the rules into the schema of a GPUJob's spec."""
    spec["x-kubernetes-validations"] = [*spec.get("x-kubernetes-validations", ()), WORKERS]
    spec["properties"]["topology"]["x-kubernetes-validations"] = TOPOLOGY
