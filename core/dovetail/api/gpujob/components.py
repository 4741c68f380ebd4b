"""What a GPUJob's spec is made of: request, template, memory, dependencies. Data only."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from dovetail.api.gpujob.enums import DependencyCondition
from dovetail.api.meta import Described
from dovetail.gpu import memory_strategy
from dovetail.gpu.mig import PROFILE_PATTERN
from dovetail.gpu.request import DEVICE_PATTERN, MAX_COUNT, MAX_DEVICE, MAX_NOMINAL_GB

# The longest container and volume names, and enough of each for any pod: bounds keep the CEL cost estimates low.
_TEMPLATE_SPEC: Final = {
    "x-kubernetes-preserve-unknown-fields": True,
    # A rule and not `required`: the API server then answers in one sentence.
    "x-kubernetes-validations": [
        {
            "rule": "has(self.containers) && size(self.containers) > 0",
            "message": "containers must name at least one container",
        }
    ],
    "properties": {
        "restartPolicy": {
            "type": "string",
            "description": "Never, or OnFailure.",
            "maxLength": 16,
            "x-kubernetes-validations": [
                {
                    "rule": "self in ['Never', 'OnFailure']",
                    "message": "restartPolicy of a job is Never or OnFailure: its pods are to end",
                }
            ],
        },
        "containers": {
            "type": "array",
            "maxItems": 32,
            "description": "The worker's containers; the first one holds the devices.",
            "items": {
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "description": "Name of the container.", "maxLength": 63},
                    "image": {"type": "string", "description": "Image of the container."},
                },
            },
        },
    },
}


class ResourceRequest(Described, frozen=True, kw_only=True):
    """The structured form of a request, for those who would rather not write the compact text."""

    count: Annotated[int, Meta(description="Number of devices for each worker.", ge=1, le=MAX_COUNT)] = 1
    share: Annotated[
        float,
        Meta(
            description="Share of each device's compute, a ratio from 0.001 to 1 in steps of 0.001.",
            ge=0.001,
            le=1,
        ),
    ] = 1.0
    memory: Annotated[
        Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,9}(Mi|Gi)$")] | None,
        Meta(description="Memory on each device, such as 8Gi or 512Mi. Unset: all of it, or the share's part."),
    ] = None
    memory_percent: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | None,
        Meta(
            description="The same in percent of the memory of the device where the worker is placed. Not with `memory`."
        ),
    ] = None
    models: Annotated[
        list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=63)]],
        Meta(description="Models that will do, such as V100; empty means any.", max_length=16),
    ] = []
    excluded_models: Annotated[
        list[Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._-]*$", max_length=63)]],
        Meta(description="Models that will not do, such as T4, whatever `models` says.", max_length=16),
    ] = []
    vendor: Annotated[
        Literal["nvidia", "amd", "intel", "ascend"] | None, Meta(description="The vendor; unset means any.")
    ] = None
    min_nominal_memory_gb: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_NOMINAL_GB)] | None,
        Meta(
            description="The smallest size of each device, in GB as sold: 80 admits an 80 GB card of which the driver "
            "keeps some. Unset: any."
        ),
    ] = None
    mig_profile: Annotated[
        Annotated[str, Meta(pattern=f"^{PROFILE_PATTERN}$", max_length=16)] | None,
        Meta(
            description="MIG instances of this profile instead of GPUs, such as 3g.40gb: `count` of them, each whole. "
            "Goes with `count` and `models` alone."
        ),
    ] = None
    device: Annotated[
        str,
        Meta(
            description="cuda: any device; cuda:N: the device with index N of its node; NODE/cuda:N: that device of "
            "that node; cpu: no device at all.",
            pattern=DEVICE_PATTERN,
            max_length=MAX_DEVICE,
        ),
    ] = "cuda"


class TemplateMetadata(Described, frozen=True, kw_only=True):
    """Labels and annotations of the worker's pods."""

    labels: Annotated[dict[str, str], Meta(description="Labels of the pods.")] = {}
    annotations: Annotated[dict[str, str], Meta(description="Annotations of the pods.")] = {}


class PodTemplate(Described, frozen=True, kw_only=True):
    """The worker's pod, as in a batch Job.

    `spec` is JSON text and stays so until it is needed (`pods.demand` decodes it): as dictionaries a template of
    1 MiB takes 24 MiB.
    """

    spec: Annotated[
        msgspec.Raw,
        Meta(
            description="The pod's spec, as in a batch Job's template.",
            extra_json_schema={**_TEMPLATE_SPEC, "type": "object"},
        ),
    ]
    metadata: Annotated[TemplateMetadata, Meta(description="Labels and annotations of the pods.")] = TemplateMetadata()

    def __post_init__(self) -> None:
        # A decoded Raw is a view that keeps its whole message: here a page of 500 jobs.
        msgspec.structs.force_setattr(self, "spec", self.spec.copy())


# That of a reservation, and of a job whose template is not kept.
NO_TEMPLATE: Final = PodTemplate(spec=msgspec.Raw(b"{}"))


MAX_PARAMETERS: Final = 10**14
MAX_BATCH_SIZE: Final = 10**6
MAX_SAMPLE_MIB: Final = 10**6


class MemoryRequest(Described, frozen=True, kw_only=True):
    """How the memory guard treats the job."""

    strategy: Annotated[
        Annotated[str, Meta(pattern=memory_strategy.PATTERN)] | None,
        Meta(
            description="How much of a shared device's memory may be promised. Conservative: 0.8 of it. Aggressive: "
            "0.95. A fraction from 0.05 to 1, such as '0.7'. Dynamic: what earlier runs of this name used, with a "
            "margin; before the first run, what `parameters` come to. Unset: the configured one."
        ),
    ] = None
    parameters: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_PARAMETERS)] | None,
        Meta(
            description="Number of parameters of the model, such as 25600000, for Dynamic: what a run needs is "
            "estimated from it while no earlier run is known."
        ),
    ] = None
    batch_size: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_BATCH_SIZE)] | None,
        Meta(description="Samples that a worker computes at a time on each device, for that estimate. Unset: 1."),
    ] = None
    sample_mib: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_SAMPLE_MIB)] | None,
        Meta(
            description="Memory in MiB that each sample of a batch takes, for that estimate. Unset: as much as the "
            "weights in training, a tenth of them in inference."
        ),
    ] = None


class Dependency(Described, frozen=True, kw_only=True):
    """Another job of the namespace that has to come first."""

    name: Annotated[
        str,
        Meta(
            description="Name of the GPUJob. It may be created later.",
            pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
            max_length=63,
        ),
    ]
    condition: Annotated[
        DependencyCondition,
        Meta(
            description="Succeeded: it has ended well. Finished: it has ended somehow. Started: a worker of it has "
            "begun to run."
        ),
    ] = "Succeeded"
