"""Reports of nodes: how often the agents measure and publish, and how long a report counts."""

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from dovetail.config.groups import Number, WholeNumber, number


class ReportKeys(BaseModel):
    """The keys about the reports of nodes."""

    monitor_update_interval: WholeNumber = number(
        30, low=1, high=3600, unit="seconds", description="How often the agent reads the devices."
    )
    heartbeat_interval: WholeNumber = number(
        300,
        low=1,
        high=86400,
        unit="seconds",
        description="How often the agent publishes when nothing changed; at least monitor_update_interval.",
    )
    resource_change_threshold: Number = number(
        0.05,
        low=0.0,
        high=1.0,
        unit="ratio",
        description="The change of a measured ratio that the agent publishes before the heartbeat.",
    )
    measurement_max_age: WholeNumber = number(
        660,
        low=2,
        high=604800,
        unit="seconds",
        description="The maximum age of a node's report; beyond it, only promises count. More than heartbeat_interval.",
    )
    agents_read_pods: bool = Field(
        default=False,
        description="Whether agents read pods themselves, of all namespaces and with their environment, instead of "
        "what the operator writes for each node.",
        json_schema_extra={"unit": "true", "allowed": "true or false", "choices": ["true", "false"]},
    )

    @field_validator("heartbeat_interval")
    @classmethod
    def _not_below_the_look(cls, seconds: int, info: ValidationInfo) -> int:
        if seconds < (look := info.data.get("monitor_update_interval", 0)):
            raise ValueError(f"at least monitor_update_interval, which is {look} (seconds)")
        return seconds

    @field_validator("measurement_max_age")
    @classmethod
    def _above_the_heartbeat(cls, seconds: int, info: ValidationInfo) -> int:
        if seconds <= (beat := info.data.get("heartbeat_interval", 0)):
            raise ValueError(f"more than heartbeat_interval, which is {beat} (seconds)")
        return seconds
