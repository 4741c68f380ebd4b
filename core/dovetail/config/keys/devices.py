"""Devices: vendors, models, and what happens to a device that is not as it should be."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, ValidationInfo, field_validator

from dovetail.config.groups import WholeNumber, choice, number, refuse_bool
from dovetail.gpu import models
from dovetail.gpu.device_plugins import KNOWN_RESOURCES, Delivery, NodeKind, Vendors

StrangerPolicy = Literal["Taint", "Report"]
BadCardPolicy = Literal["Report", "Restart"]
_RESOURCE_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"


def _memory_table() -> dict[str, int]:
    sizes = {family: models.memory_mib(family) for family in models.known_families()}
    return {family: mib // 1024 for family, mib in sizes.items() if mib is not None}


class DeviceKeys(BaseModel):
    """The keys about devices."""

    gpu_resource: dict[str, Annotated[str, Field(pattern=_RESOURCE_NAME)]] = Field(
        default_factory=dict,
        description="Short names of vendors, with the extended resource of each; added to the defaults.",
        json_schema_extra={
            "unit": "resource name",
            "allowed": "a map of short names to resource names",
            "entry": "a resource name with a domain, such as amd.com/gpu",
        },
    )
    default_gpu_resource_name: str = Field(
        default="nvidia.com/gpu",
        description="The resource of a request that names no vendor: a short name or a resource name of gpu_resource.",
        json_schema_extra={"unit": "resource name", "allowed": "a short name or a resource name of gpu_resource"},
    )
    preferred_node_kind: NodeKind = choice(
        "Managed",
        "Managed",
        "Vendor",
        description="Which nodes are tried first for whole GPUs: managed nodes, or those of a vendor's plugin.",
    )
    delivery: Delivery = choice(
        "RuntimeClass",
        "RuntimeClass",
        "NRI",
        description="How containers get their GPUs: by the RuntimeClass nvidia, or by the NRI plugin of NVIDIA's "
        "container toolkit (GPU operator with cdi.nriPluginEnabled), without a RuntimeClass.",
    )
    dra_driver_absence: WholeNumber = number(
        60,
        low=1,
        high=3600,
        unit="seconds",
        description="How long a DRA driver's ResourceSlices must be absent before a managed node that they closed "
        "takes work again; kubelet removes them for some time when it restarts.",
    )
    gpu_memory_specs: dict[str, Annotated[int | float, BeforeValidator(refuse_bool), Field(gt=0, le=4096)]] = Field(
        default_factory=dict,
        description="Nominal memory of one device by model, for requests such as 2(>=32G) and for nodes that report "
        "none; added to the defaults.",
        json_schema_extra={
            "unit": "GB",
            "allowed": "a map of model names to GB",
            "entry": "a number above 0 and up to 4096 (GB)",
        },
    )
    strangers: StrangerPolicy = choice(
        "Taint",
        "Taint",
        "Report",
        description="What happens to a device while a process uses it without an allocation: it takes no new work "
        "(Taint), or is only reported (Report).",
    )
    bad_card: BadCardPolicy = choice(
        "Report",
        "Report",
        "Restart",
        description="What happens to the jobs on an unhealthy device: their status says so (Report), or they restart "
        "on other devices at no cost of a retry (Restart).",
    )

    @property
    def vendors(self) -> Vendors:
        """The resources of the vendors' devices."""
        return Vendors(
            by_name=self.gpu_resource, default=self.default_gpu_resource_name, first=self.preferred_node_kind
        )

    @field_validator("gpu_resource", mode="before")
    @classmethod
    def _add_known_resources(cls, given: Any) -> Any:
        return {**KNOWN_RESOURCES, **given} if isinstance(given, dict) else given

    @field_validator("gpu_memory_specs", mode="before")
    @classmethod
    def _add_known_models(cls, given: Any) -> Any:
        return {**_memory_table(), **given} if isinstance(given, dict) else given

    @field_validator("default_gpu_resource_name")
    @classmethod
    def _is_a_known_resource(cls, name: str, info: ValidationInfo) -> str:
        resources = info.data.get("gpu_resource", {})
        if name not in resources and name not in resources.values():
            raise ValueError("unknown resource")
        return name
