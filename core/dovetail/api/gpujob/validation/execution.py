"""CEL rules of the GPUJob CRD on how workers run: retries, arrays, sweeps, reservations. Data only."""

from typing import Any, Final

from dovetail.api.gpujob.execution import INDEXES_PATTERN, MAX_TASKS

Rule = dict[str, str]

# Of array.indexes: whether it can be read, its parts, and of a part that is a range the first and the last index.
_READABLE: Final = f"self.indexes.matches(r'{INDEXES_PATTERN}')"
_PARTS: Final = "self.indexes.split('%')[0].split(',')"
_FIRST: Final = "int(each.split(':')[0].split('-')[0])"
_LAST: Final = "int(each.split(':')[0].split('-')[1])"
# How a sentence about it begins.
_SAID: Final = "'array.indexes \"' + self.indexes + '\""


SPEC: Final[list[Rule]] = [
    {
        "rule": "has(self.template) != has(self.reservation)",
        "message": "exactly one of template (a pod to run) and reservation (devices to hold) must be given",
    },
    {
        "rule": "has(self.reservation) == has(oldSelf.reservation)",
        "message": "a reservation stays one, and no job becomes one: delete the job and submit it again",
    },
    {
        "rule": "!has(self.reservation) || !(has(self.array) || has(self.sweep) || has(self.distributed) || "
        "has(self.activeDeadlineSeconds) || has(self.maximumExecutionTimeSeconds))",
        "message": "a reservation holds devices for its durationSeconds: array, sweep, distributed, "
        "activeDeadlineSeconds and maximumExecutionTimeSeconds must be left out",
    },
    {
        "rule": "!has(self.reservation) || !has(self.resources) || self.resources.device != 'cpu'",
        "message": "a reservation holds devices, and device cpu takes none: write device: cuda",
    },
    {
        "rule": "!has(self.reservation) || !has(self.onNoGPU) || self.onNoGPU == 'Wait'",
        "message": "a reservation holds devices, and on the CPU there are none: leave onNoGPU out",
    },
    {
        "rule": "!(has(self.array) && has(self.sweep))",
        "message": "at most one of array (indexes) and sweep (combinations of parameters) can be given",
    },
    {
        "rule": "!has(self.template) || !has(self.template.spec.restartPolicy) || "
        "self.template.spec.restartPolicy != 'OnFailure' || "
        "(self.workers == 1 && !has(self.retryPolicy) && !has(self.podFailurePolicy))",
        "message": "restartPolicy OnFailure tries a container again in its place: with workers above 1, retryPolicy or "
        "podFailurePolicy write Never, which tries the whole job again",
    },
    {
        "rule": "!has(self.retryPolicy) || self.backoffLimit > 0",
        "message": "retryPolicy says which ends are tried again, and backoffLimit how many times: with backoffLimit 0, "
        "which is the default, none is; write backoffLimit: 1 or more, or leave retryPolicy out",
    },
    {
        "rule": "!has(self.retryPolicy) || !has(self.retryPolicy.onTimeout) || !self.retryPolicy.onTimeout || "
        "has(self.activeDeadlineSeconds)",
        "message": "retryPolicy.onTimeout needs activeDeadlineSeconds: the time after which a run is tried again",
    },
]
WHOLE: Final[list[Rule]] = [
    {
        "rule": "!(has(self.spec.array) || has(self.spec.sweep)) || size(self.metadata.name) <= 50",
        "message": "metadata.name of an array or a sweep must stay within 50 characters: its tasks add their index",
    },
]
RESERVATION: Final[list[Rule]] = [
    {
        "rule": "self.image == oldSelf.image && has(self.command) == has(oldSelf.command) && "
        "(!has(self.command) || self.command == oldSelf.command)",
        "message": "image and command of a reservation cannot be changed: delete the job and submit it again",
    },
]
ARRAY: Final[list[Rule]] = [
    {
        "rule": _READABLE,
        "messageExpression": f"{_SAID} must be such as 0-15, 0-15:2, 1,3,7-9 or 0-15%4 (four at a time)'",
    },
    {
        "rule": f"!{_READABLE} || {_PARTS}.all(each, !each.contains('-') || {_FIRST} <= {_LAST})",
        "messageExpression": f"{_SAID} has a range that ends before it starts: write the smaller index first'",
    },
    {
        "rule": f"!{_READABLE} || {_PARTS}.map(each, each.contains('-') ? ({_LAST} - {_FIRST}) / "
        f"(each.contains(':') ? int(each.split(':')[1]) : 1) + 1 : 1).sum() <= {MAX_TASKS}",
        "messageExpression": f"{_SAID} names too many tasks: {MAX_TASKS} are allowed, make several jobs of it'",
    },
    {
        "rule": "!self.indexes.contains('%') || !has(self.parallelism)",
        "message": "array.indexes says with % how many tasks run at a time: parallelism must be left out",
    },
]
SWEEP: Final[list[Rule]] = [
    {
        "rule": "self.combine != 'Zip' || "
        "self.parameters.all(each, size(each.values) == size(self.parameters[0].values))",
        "message": "combine Zip takes the values side by side: each parameter must have as many as the others",
    },
]
FAILURE_RULE: Final[list[Rule]] = [
    {
        "rule": "has(self.onExitCodes) != (has(self.onPodConditions) && size(self.onPodConditions) > 0)",
        "message": "a rule of podFailurePolicy needs exactly one of onExitCodes and onPodConditions",
    },
    {
        "rule": "!has(self.onExitCodes) || self.onExitCodes.operator != 'In' || !(0 in self.onExitCodes.values)",
        "message": "onExitCodes with operator In names 0, which is success: allowed are exit codes from 1 to 255",
    },
]


def add_to(spec: dict[str, Any]) -> None:
    """Put the rules into the schema of a GPUJob's spec."""
    fields = spec["properties"]
    spec["x-kubernetes-validations"] = [*spec.get("x-kubernetes-validations", ()), *SPEC]
    fields["reservation"]["x-kubernetes-validations"] = RESERVATION
    fields["array"]["x-kubernetes-validations"] = ARRAY
    # A rule says it in a sentence, where a pattern would be shown to people.
    fields["array"]["properties"]["indexes"].pop("pattern")
    fields["sweep"]["x-kubernetes-validations"] = SWEEP
    fields["podFailurePolicy"]["properties"]["rules"]["items"]["x-kubernetes-validations"] = FAILURE_RULE
