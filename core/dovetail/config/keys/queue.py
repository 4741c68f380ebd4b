"""The queue and its jobs: time limits, fair share, preemption, sizes, idle jobs."""

from typing import Annotated

from pydantic import BaseModel, Field

from dovetail.config.groups import (
    LIVE,
    DrainRules,
    IdlePolicy,
    JobSizes,
    MigReshape,
    MoveRules,
    PreemptionRules,
    WholeNumber,
    number,
)
from dovetail.config.growing import Growing
from dovetail.jobs.size_limits import JobLimits


class QueueKeys(BaseModel):
    """The keys about the queue and its jobs."""

    default_time_limit: WholeNumber = number(
        86400,
        low=60,
        high=31536000,
        unit="seconds",
        description="The run time that the queue assumes for a job without a time limit.",
        live=True,
    )
    namespace_time_limits: dict[str, Annotated[WholeNumber, Field(ge=60, le=31536000)]] = Field(
        default_factory=dict,
        description="The same by namespace; default_time_limit applies to all other namespaces.",
        json_schema_extra={
            LIVE: True,
            "unit": "seconds",
            "allowed": "a map of namespaces to seconds",
            "entry": "a whole number from 60 to 31536000 (seconds)",
        },
    )
    namespace_cpu_fallback: dict[str, Annotated[WholeNumber, Field(ge=0, le=31536000)]] = Field(
        default_factory=dict,
        description="By namespace, after how many seconds of busy GPUs a GPUJob without onNoGPU runs on the CPU. Such "
        "a job also runs there if no GPU of the cluster could ever serve it. In all other namespaces, it waits.",
        json_schema_extra={
            LIVE: True,
            "unit": "seconds",
            "allowed": "a map of namespaces to seconds",
            "entry": "a whole number from 0 to 31536000 (seconds)",
        },
    )
    fair_share_half_life: WholeNumber = number(
        604800,
        low=60,
        high=315360000,
        unit="seconds",
        description="The time after which a GPU second counts half in the fair share of GPUQuotas with shares.",
    )
    preemption: PreemptionRules = Field(
        default=PreemptionRules(),
        description="The rules for preemption of running jobs by a waiting one; off by default.",
        json_schema_extra={
            LIVE: True,
            "unit": "rules",
            "allowed": "a map with priority_gap, min_run, grace, per_job and per_hour",
        },
    )
    drain: DrainRules = Field(
        default=DrainRules(),
        description="The rules for jobs on nodes that are cordoned or that an autoscaler is about to remove.",
        json_schema_extra={LIVE: True, "unit": "rules", "allowed": "a map with action and grace"},
    )
    moves: MoveRules = Field(
        default=MoveRules(),
        description="The rules for running jobs that restart on other nodes for waiting ones; off by default.",
        json_schema_extra={
            LIVE: True,
            "unit": "rules",
            "allowed": "a map with mode, default, namespaces, after, patience, rest and per_hour",
        },
    )
    mig_reshape: MigReshape = Field(
        default=MigReshape(),
        description="The rules for idle GPUs in MIG mode that are partitioned again for waiting requests; off by "
        "default.",
        json_schema_extra={
            LIVE: True,
            "unit": "rules",
            "allowed": "a map with enabled, node_labels, after, idle_for and cooldown",
        },
    )
    growing: Growing = Field(
        default=Growing(),
        description="Pools to which an autoscaler adds nodes: the queue requests nodes there for jobs that do not fit.",
        json_schema_extra={LIVE: True, "unit": "map", "allowed": "a map with pools, after, give_up and back_off"},
    )
    gpujobs: JobSizes = Field(
        default=JobSizes(),
        description="The maximum sizes of GPUJobs, so that no user's jobs fill the operator's memory.",
        json_schema_extra={"unit": "map", "allowed": "a map with max_spec_bytes and max_array_bytes"},
    )
    idle: IdlePolicy = Field(
        default=IdlePolicy(),
        description="The rules for jobs that hold GPUs without using them; off by default.",
        json_schema_extra={"unit": "rules", "allowed": "a map with after, below, action and grace"},
    )

    @property
    def job_limits(self) -> JobLimits:
        """The maximum sizes of GPUJobs."""
        return JobLimits(spec_bytes=self.gpujobs.max_spec_bytes, array_bytes=self.gpujobs.max_array_bytes)
