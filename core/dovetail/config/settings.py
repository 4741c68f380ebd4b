"""The settings of `gpu_config.yaml`, from command line, environment, file, defaults."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import yaml
from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from dovetail.api.gpujob import ADDRESS_PATTERN, Policy
from dovetail.config.credentials import exposed
from dovetail.config.errors import ConfigError
from dovetail.config.groups import (
    LIVE,
    IdlePolicy,
    JobSizes,
    MemoryStrategy,
    Number,
    PreemptionRules,
    ScoreWeights,
    WholeNumber,
    choice,
    number,
    refuse_bool,
)
from dovetail.config.messages import Source, explain, problems
from dovetail.engine.model.settings import FragmentationPolicy, Limits, Weights
from dovetail.formats.suggestions import suggestion
from dovetail.gpu import memory_strategy, models
from dovetail.gpu.device_plugins import KNOWN_RESOURCES, NodeKind, Vendors
from dovetail.jobs.size_limits import JobLimits

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LogFormat = Literal["auto", "json", "console"]
OverusePolicy = Literal["Warn", "Evict", "Kill"]
StrangerPolicy = Literal["Taint", "Report"]
BadCardPolicy = Literal["Report", "Restart"]

ENV_PREFIX: Final = "DOVETAIL_"
_DOMAIN: Final = r"^(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
_RESOURCE_NAME: Final = r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
_NAMESPACE: Final = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _memory_table() -> dict[str, int]:
    sizes = {family: models.memory_mib(family) for family in models.known_families()}
    return {family: mib // 1024 for family, mib in sizes.items() if mib is not None}


class Settings(BaseSettings):
    """All keys of `gpu_config.yaml`. A direct instance has the defaults and the given values."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, validate_default=True, env_prefix=ENV_PREFIX)

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
        description="The change of a measured ratio that the agent publishes at once.",
    )
    policy: Policy = choice(
        "Balanced",
        "Spread",
        "Pack",
        "Balanced",
        description="Which nodes and devices are preferred by default.",
        live=True,
    )
    namespace_policies: dict[str, Policy] = Field(
        default_factory=dict,
        description="The policy by namespace, for pods and jobs without one; policy applies to all other namespaces.",
        json_schema_extra={
            LIVE: True,
            "unit": "policy",
            "allowed": "a map of namespaces to policies",
            "entry": "Spread, Pack or Balanced",
        },
    )
    fragmentation_policy: FragmentationPolicy = choice(
        "ph",
        "ph",
        "fgd",
        "bestfit",
        "tuned",
        description="How the cost of a placement for later pods is computed: priced headroom, fragmentation gradient "
        "descent, best fit, or the best of them for the arriving pods (tuned).",
    )
    memory_guard: MemoryStrategy = Field(
        default=memory_strategy.CONSERVATIVE,
        description="How much of a shared device's memory is promised: 0.8 (Conservative) or 0.95 (Aggressive) of it, "
        "a fraction of your own, or for a GPUJob what earlier runs of its name used (Dynamic; 0.8 without earlier "
        "runs).",
        json_schema_extra={"allowed": memory_strategy.ALLOWED, "choices": list(memory_strategy.NAMES)},
    )
    measurement_max_age: WholeNumber = number(
        660,
        low=2,
        high=604800,
        unit="seconds",
        description="The maximum age of a node's report; beyond it, only promises count. More than heartbeat_interval.",
    )
    utilization_smoothing: WholeNumber = number(
        120,
        low=1,
        high=3600,
        unit="seconds",
        description="How long a change of utilization must last before most of it counts in the ranking.",
    )
    score_weights: ScoreWeights = Field(
        default=ScoreWeights(),
        description="The weight of each term in the ranking of nodes; the weights need not sum to one.",
        json_schema_extra={
            LIVE: True,
            "unit": "weights",
            "allowed": "a map with utilization, memory, cpu and fragmentation, one of them above 0 at least",
        },
    )
    hold_ttl_seconds: WholeNumber = number(
        30,
        low=1,
        high=3600,
        unit="seconds",
        description="How long devices stay promised to a pod that is not bound; more than bind_deadline_seconds.",
    )
    bind_deadline_seconds: WholeNumber = number(
        4, low=1, high=60, unit="seconds", description="How long binding a pod may take; below the scheduler's timeout."
    )
    tenants_per_device: WholeNumber = number(
        4, low=1, high=48, unit="tenants", description="How many TimeShared tenants take turns on one device."
    )
    turn_seconds: Number = number(
        2.0, low=0.1, high=60.0, unit="seconds", description="How long a turn of a TimeShared tenant lasts."
    )
    suspend_turn_seconds: Number = number(
        30.0,
        low=1.0,
        high=3600.0,
        unit="seconds",
        description="The minimum duration of a turn while a tenant's device memory is on the host.",
    )
    mps_directory: Annotated[str, Field(pattern=r"^(/[A-Za-z0-9_.-]+)*$")] = Field(
        default="",
        description="The folder of MPS's daemon on each node (with pipe and shm); empty: pods do not use MPS.",
        json_schema_extra={"unit": "path", "allowed": "an absolute path, or empty"},
    )
    training_per_device: WholeNumber = number(
        1,
        low=0,
        high=48,
        unit="tenants",
        description="How many tenants with workload Training may share one device.",
        live=True,
    )
    inference_per_device: WholeNumber = number(
        3,
        low=0,
        high=48,
        unit="tenants",
        description="How many tenants with workload Inference may share one device.",
        live=True,
    )
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
    gpujobs: JobSizes = Field(
        default=JobSizes(),
        description="The maximum sizes of GPUJobs, so that no user's jobs fill the operator's memory.",
        json_schema_extra={"unit": "map", "allowed": "a map with max_spec_bytes and max_array_bytes"},
    )
    memory_overuse: OverusePolicy = choice(
        "Warn",
        "Warn",
        "Evict",
        "Kill",
        description="What happens to a pod that uses more of a shared device's memory than promised: it gets a warning "
        "(Warn), the operator ends it (Evict), or the agent kills its processes there (Kill).",
    )
    memory_overuse_grace: WholeNumber = number(
        60,
        low=0,
        high=86400,
        unit="seconds",
        description="How long a pod may do so while its neighbors have their memory.",
    )
    exempt_namespaces: list[Annotated[str, Field(pattern=_NAMESPACE)]] = Field(
        default_factory=list,
        description="Namespaces of the platform, in addition to kube-system and the operator's own: no pod there is "
        "ended because of its memory. The chart adds its namespaces and policies.exemptNamespaces.",
        json_schema_extra={
            "unit": "namespace",
            "allowed": "a list of namespaces",
            "entry": "a namespace's name, such as gpu-operator",
        },
    )
    agents_read_pods: bool = Field(
        default=False,
        description="Whether agents read pods themselves, of all namespaces and with their environment, instead of "
        "what the operator writes for each node.",
        json_schema_extra={"unit": "true", "allowed": "true or false", "choices": ["true", "false"]},
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
    idle: IdlePolicy = Field(
        default=IdlePolicy(),
        description="The rules for jobs that hold GPUs without using them; off by default.",
        json_schema_extra={"unit": "rules", "allowed": "a map with after, below, action and grace"},
    )
    history_url: str = Field(
        default="sqlite:////var/lib/dovetail/history.db",
        description="The database of the records of finished jobs. A URL with a password is refused here: it belongs "
        "in a Secret (history.secretName of the chart, or DOVETAIL_HISTORY_URL).",
        json_schema_extra={"unit": "URL", "allowed": "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"},
    )
    history_days: WholeNumber = number(
        400, low=1, high=36500, unit="days", description="How long records of finished jobs are kept."
    )
    notify_url: str = Field(
        default="",
        description="The server for notifications about jobs (spec.notify); empty: none are sent. A URL with a "
        "password, or a webhook's with a path, is refused here: it belongs in a Secret (notify.secretName of the "
        "chart, or DOVETAIL_NOTIFY_URL).",
        json_schema_extra={"unit": "URL", "allowed": "smtp://HOST:PORT, smtps://HOST:PORT or https://HOST"},
    )
    notify_from: str = Field(
        default="dovetail@localhost",
        description="The sender's mail address.",
        pattern=ADDRESS_PATTERN,
        json_schema_extra={"unit": "mail address", "allowed": "an address such as dovetail@example.org"},
    )
    notify_domains: list[Annotated[str, Field(pattern=_DOMAIN)]] = Field(
        default_factory=list,
        description="The domains that mail may go to; *.example.org means every domain below example.org. Empty: any.",
        json_schema_extra={
            "unit": "domain",
            "allowed": "a list of domains",
            "entry": "a domain such as example.org or *.example.org, in lower case",
        },
    )
    notify_per_hour: WholeNumber = number(
        60,
        low=1,
        high=100000,
        unit="mails",
        description="How many mails the jobs of one namespace may send in an hour; the rest are dropped.",
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lower)] = choice(
        "info",
        "debug",
        "info",
        "warning",
        "error",
        "critical",
        description="The lowest level that is logged.",
        live=True,
    )
    log_format: LogFormat = choice(
        "auto",
        "auto",
        "json",
        "console",
        description="One event per line; auto is console on a terminal, otherwise json.",
    )

    def policy_in(self, namespace: str) -> Policy:
        """The policy of pods and jobs of a namespace that name none."""
        return self.namespace_policies.get(namespace, self.policy)

    @property
    def guard_fraction(self) -> float:
        """The default part of a shared device's memory that may be promised, 0 to 1."""
        return memory_strategy.fraction_of(self.memory_guard)

    @property
    def weights(self) -> Weights:
        """The weights of the terms that rank nodes."""
        return Weights(**self.score_weights.model_dump())

    @property
    def limits(self) -> Limits:
        """How much of a device may be promised, and to how many tenants."""
        return Limits(
            guard_fraction=self.guard_fraction,
            turns_per_device=self.tenants_per_device,
            training_per_device=self.training_per_device,
            inference_per_device=self.inference_per_device,
            memory_specs=models.by_family(self.gpu_memory_specs),
        )

    @property
    def job_limits(self) -> JobLimits:
        """The maximum sizes of GPUJobs."""
        return JobLimits(spec_bytes=self.gpujobs.max_spec_bytes, array_bytes=self.gpujobs.max_array_bytes)

    @property
    def vendors(self) -> Vendors:
        """The resources of the vendors' devices."""
        return Vendors(
            by_name=self.gpu_resource, default=self.default_gpu_resource_name, first=self.preferred_node_kind
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings passes all five
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Use only the given values.

        `load_settings` merges the sources, so that errors can name them.
        """
        return (init_settings,)

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

    @field_validator("score_weights")
    @classmethod
    def _weigh_something(cls, weights: ScoreWeights) -> ScoreWeights:
        if not any(weights.model_dump().values()):
            raise ValueError("all nodes would be equal")
        return weights

    @field_validator("bind_deadline_seconds")
    @classmethod
    def _below_the_hold(cls, seconds: int, info: ValidationInfo) -> int:
        if seconds >= (hold := info.data.get("hold_ttl_seconds", seconds + 1)):
            raise ValueError(f"less than hold_ttl_seconds, which is {hold} (seconds)")
        return seconds


def load_settings(path: Path | None = None, *, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Load settings from `overrides` (the command line), environment, file and defaults.

    The first source that has a key wins. The environment has `DOVETAIL_LOG_LEVEL=debug`,
    `DOVETAIL_SCORE_WEIGHTS__CPU=0.3`, and maps as JSON. Overrides that are None count as not given. Raises
    `ConfigError`, also for a file with a credential.
    """
    name = str(path) if path else "gpu_config.yaml"
    return _merged(Source(name, values={} if path is None else _file(path)), overrides=overrides)


def parse_settings(text: str, *, origin: str, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Read settings as `load_settings` does, with the `text` of a file whose name in errors is `origin`."""
    return _merged(Source(origin, values=document(text, origin=origin)), overrides=overrides)


def check_values(values: Mapping[str, Any], *, origin: str) -> Settings:
    """The settings of a file's values alone, without command line and environment. Raises `ConfigError`."""
    if problem := exposed(values):
        raise ConfigError(origin, problem=problem)
    try:
        return Settings(**values)
    except ValidationError as error:
        raise explain(error, model=Settings, sources=[Source(origin, values=values)]) from error


def problems_in(values: Mapping[str, Any]) -> list[str]:
    """What is wrong with a file's values: a sentence for each key; none if programs take them."""
    if problem := exposed(values):
        return [problem]
    try:
        Settings(**values)
    except ValidationError as error:
        return problems(error, model=Settings)
    return []


def live_keys() -> list[str]:
    """The keys that operator, extender and gateway take while they run; the others need a restart."""
    return [
        name
        for name, field in Settings.model_fields.items()
        if isinstance(field.json_schema_extra, dict) and field.json_schema_extra.get(LIVE)
    ]


def _merged(file: Source, *, overrides: Mapping[str, Any] | None) -> Settings:
    given = {key: value for key, value in (overrides or {}).items() if value is not None}
    sources = (
        Source("command line", values=given),
        Source("environment", values=_environment(), env_prefix=ENV_PREFIX),
        file,
    )
    if problem := exposed(sources[2].values):
        raise ConfigError(sources[2].name, problem=problem)
    merged = _merge(_merge(sources[2].values, high=sources[1].values), high=sources[0].values)
    try:
        return Settings(**merged)
    except ValidationError as error:
        raise explain(error, model=Settings, sources=sources) from error


def _merge(low: Mapping[str, Any], *, high: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: _merge(low[key], high=high[key]) for key in low.keys() & high.keys() if _maps(low[key], high[key])}
    return {**low, **high, **both}


def _maps(*values: Any) -> bool:
    return all(isinstance(value, Mapping) for value in values)


def _environment() -> dict[str, Any]:
    _refuse_misspelt(os.environ)
    try:
        return EnvSettingsSource(Settings, env_nested_delimiter="__", env_ignore_empty=True)()
    except SettingsError as error:
        raise ConfigError("environment", problem=f"{error}; maps are written as JSON") from error


def _refuse_misspelt(environ: Mapping[str, str]) -> None:
    # Other variables with our prefix are not ours: Kubernetes itself sets DOVETAIL_..._SERVICE_HOST.
    known = [ENV_PREFIX + key.upper() for key in Settings.model_fields]
    for name in environ:
        top = name.upper().split("__")[0]
        if top.startswith(ENV_PREFIX) and top not in known and (hint := suggestion(top, known=known, cutoff=0.9)):
            raise ConfigError(name, problem=f"unknown variable{hint}")


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(path), problem=f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), problem=f"is not YAML: {' '.join(str(error).split())}") from error
    return document(text, origin=str(path))


def document(text: str, *, origin: str) -> dict[str, Any]:
    """The keys and values in the text of a `gpu_config.yaml`. Raises `ConfigError`."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(origin, problem=f"is not YAML: {' '.join(str(error).split())}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ConfigError(origin, problem=f"must be a map of keys and values, not {type(found).__name__}")
    return {str(key): value for key, value in found.items()}
