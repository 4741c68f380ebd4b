"""CEL rules and printer columns of the GPUJob CRD: what is wrong is refused in a sentence. Data only."""

from typing import Final

from dovetail.gpu import memory_strategy
from dovetail.gpu.request import EXAMPLES, MAX_COUNT, NO_REQUEST_PATTERN, PATTERN

_IS_TEXT: Final = "has(self.gpu) && type(self.gpu) != int"
_TEXT_HAS_SHARE: Final = r"string(self.gpu).matches('(^|[xX,，])\\s*0[.]')"

GPU: Final = {
    "rule": f"type(self) == int ? (self >= 1 && self <= {MAX_COUNT}) : "
    f"string(self).matches(r'{PATTERN}') && !string(self).matches(r'{NO_REQUEST_PATTERN}')",
    "messageExpression": (
        f"'gpu \"' + string(self) + '\" is no request: allowed are a whole number of GPUs from 1 to {MAX_COUNT}, "
        f"a share from 0.001 to 1, or memory and a share, each with a model or a size if need be, such as {EXAMPLES}'"
    ),
}
# Needed in addition to `minimum`: the API server rounds whole numbers down before it compares them with `minimum`,
# and would accept a share of 0.
_MILLI: Final = "self * 1000.0"
_WHOLE_MILLI: Final = f"double(int({_MILLI} + 0.5))"
SHARE: Final = {
    "rule": f"self >= 0.001 && self <= 1.0 && {_MILLI} - {_WHOLE_MILLI} < 0.000001 && "
    f"{_WHOLE_MILLI} - {_MILLI} < 0.000001",
    "message": "share must be from 0.001 to 1, with at most three decimals",
}
_MODELS: Final = 'a model is written with letters, digits, ".", "_", "-" and spaces, such as V100 or A100-SXM4-80GB'
# What a field of `resources` must look like, in words.
SHAPES: Final = {
    "memory": "memory must be a whole number of Gi or Mi, such as 8Gi or 512Mi",
    "excludedModels": _MODELS,
    "models": _MODELS,
    "migProfile": "migProfile must be 1g to 7g with the memory, such as 1g.10gb or 3g.40gb",
    "device": "device must be cuda (any GPU), cuda:N (the GPU with index N of its node), "
    "NODE/cuda:N (that GPU of that node) or cpu (no GPU)",
}
RIGHT_SIZE: Final = "rightSize must be a share of a device, or its memory and a share, such as 0.5, 8G,0.5 or 50%,0.5"
STRATEGY: Final = f"strategy must be {memory_strategy.ALLOWED}"
MEMORY: Final = [
    {
        "rule": "!has(self.parameters) || !has(self.strategy) || self.strategy == 'Dynamic'",
        "message": "parameters are for strategy Dynamic: write it, or leave parameters out",
    },
    {
        "rule": "has(self.parameters) || !(has(self.batchSize) || has(self.sampleMiB))",
        "message": "batchSize and sampleMiB say how much a batch adds to the model: parameters must be given",
    },
]
RESOURCES: Final = [
    {
        "rule": "self.device != 'cpu' || (self.count == 1 && self.share == 1.0 && !has(self.memory) && "
        "!has(self.memoryPercent) && !has(self.models) && !has(self.excludedModels) && !has(self.vendor) && "
        "!has(self.minNominalMemoryGB))",
        "message": "device cpu takes no GPU: count, share, memory, memoryPercent, models, excludedModels, vendor and "
        "minNominalMemoryGB must be left out",
    },
    {
        "rule": "!has(self.memory) || !has(self.memoryPercent)",
        "message": "memory (such as 8Gi) and memoryPercent (such as 50) say the same: one of them must be left out",
    },
    {
        "rule": "!self.device.contains('cuda:') || self.count == 1",
        "message": "device cuda:N names one GPU: count must be 1 (write device: cuda for any)",
    },
]
SPEC: Final = [
    {
        "rule": "has(self.gpu) != has(self.resources)",
        "message": 'exactly one of gpu (such as 2 or "8G,0.5") and resources (such as {count: 2}) must be given',
    },
    {
        "rule": f"!has(self.mode) || self.mode != 'Exclusive' || !({_IS_TEXT} && {_TEXT_HAS_SHARE})",
        "message": "mode Exclusive takes whole GPUs, but gpu asks for a share: write Fractional or TimeShared",
    },
    {
        "rule": "!has(self.mode) || self.mode != 'Exclusive' || !has(self.resources) || self.resources.share == 1.0",
        "message": "mode Exclusive takes whole GPUs, but resources.share is below 1: write Fractional or TimeShared",
    },
    {
        "rule": "!has(self.maxConcurrent) || has(self.group)",
        "message": "maxConcurrent limits the jobs of a group: group must name it",
    },
    {
        "rule": "!has(self.onNoGPUAfterSeconds) || (has(self.onNoGPU) && self.onNoGPU == 'RunOnCPU')",
        "message": "onNoGPUAfterSeconds says when a job stops waiting for busy GPUs: onNoGPU must be RunOnCPU",
    },
]
WHOLE: Final = [
    {
        "rule": "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "message": "metadata.name must be a DNS label (a-z, 0-9 and '-'): it becomes the pods' host name",
    },
    {
        "rule": "size(self.metadata.name) + 1 + size(string(self.spec.workers - 1)) <= 63",
        "message": "metadata.name is too long: with '-' and the worker's index it must stay within 63 characters",
    },
    {
        "rule": "!has(self.spec.dependencies) || !self.spec.dependencies.exists(each, each.name == self.metadata.name)",
        "message": "spec.dependencies names the job itself: it would wait for ever",
    },
]
COLUMNS: Final = [
    ("State", "string", ".status.phase", "Summary of the conditions."),
    ("Reason", "string", ".status.reason", "Why the job is where it is."),
    ("Position", "integer", ".status.queue.position", "Place in the queue, from 1."),
    ("GPUs", "integer", ".status.gpus", "Number of devices that all workers ask for."),
    ("Nodes", "string", ".status.nodeList", "The nodes that the workers run on."),
    ("Priority", "integer", ".spec.priority", "0-255, higher first."),
    ("Started", "date", ".status.startTime", "Time since its latest run began."),
    ("Elapsed", "string", ".status.elapsed", "Run time of its latest run, once that has ended."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the job was submitted."),
]
WIDE_COLUMNS: Final = [
    ("Number", "integer", ".status.number", "Short number of the job in its namespace."),
    ("Request", "string", ".status.request", "What each worker asks for."),
    ("Message", "string", ".status.message", "The reason in one sentence."),
]
