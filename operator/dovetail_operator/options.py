"""The operator's options: what the configuration and the environment decide. Values only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dovetail.audit.allocations import Rules as AuditRules
from dovetail.cluster.dra_drivers import ABSENT_SECONDS
from dovetail.config.settings import Settings
from dovetail.engine.model.ranking import DEFAULT_RANKINGS, Rankings
from dovetail.engine.model.settings import FragmentationPolicy, Limits
from dovetail.engine.model.topology import DEFAULT_LEVELS, Level
from dovetail.gpu.device_plugins import DEFAULT_VENDORS, Delivery, Vendors
from dovetail.gpu.memory_strategy import CONSERVATIVE
from dovetail.jobs.idle import IdleRules
from dovetail.jobs.moves import MoveRules
from dovetail.jobs.size_limits import JobLimits
from dovetail.query.audit import rules_of as audit_rules_of
from dovetail.query.growing_rules import growing_rules_of
from dovetail.query.preemption_rules import move_rules_of, rules_of
from dovetail.queue.growing.pools import GrowingRules
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.limits.quotas import DEFAULT_HALF_LIFE_SECONDS
from dovetail.queue.preemption.policy import Rules
from dovetail.queue.reshaping.decision import ReshapeRules
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.job.drain import DrainRules

DEFAULT_NAMESPACE: Final = "dovetail-system"
_NO_HISTORY: Final = "none"
# The API server may finish a request that its sender has given up: the extender waits as long (`bind.unsettled`).
_LATE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the configuration and the environment decide."""

    namespace: str
    """The operator's own namespace."""
    rankings: Rankings = DEFAULT_RANKINGS
    """How jobs rank nodes and devices, by namespace."""
    levels: tuple[Level, ...] = DEFAULT_LEVELS
    """The levels of the network that a job's topology may name, from wide to narrow."""
    fragmentation: FragmentationPolicy = "ph"
    """The fragmentation term of the queue's plans."""
    memory_strategy: str = CONSERVATIVE
    """The memory strategy of jobs that name none."""
    look_seconds: float = 30.0
    """How often agents measure, in seconds."""
    limits: Limits = field(default_factory=Limits)
    """How many tenants share a device, and how much of its memory is promised."""
    smoothing_seconds: float = 120.0
    """The time over which measured utilization is smoothed, in seconds."""
    measurement_max_age_seconds: float = 660.0
    """The age from which a measurement no longer counts, in seconds."""
    vendors: Vendors = DEFAULT_VENDORS
    """The GPU vendors' resources and device plugins."""
    cpu_fallback: Mapping[str, int] = field(default_factory=dict)
    """After how many seconds of busy GPUs jobs that do not set onNoGPU run on the CPU, by namespace."""
    run_times: RunTimes = field(default_factory=RunTimes)
    """Default and maximum run times."""
    leaves_bad_cards: bool = False
    """Whether jobs on unhealthy devices restart on other nodes."""
    idle: IdleRules = field(default_factory=IdleRules)
    """When a job counts as idle, and what happens to it."""
    history_url: str = "sqlite://"
    """The database of the history; `none`: no history is kept."""
    history_days: int = 400
    """How many days a record is kept."""
    notify_url: str = ""
    """The SMTP server or webhook of notifications; empty without one."""
    notify_from: str = "dovetail@localhost"
    """The sender address of mails."""
    notify_domains: Sequence[str] = ()
    """The domains that mails may go to; empty for all."""
    notify_per_hour: int = 60
    """How many mails a namespace may send within an hour."""
    mps_directory: str = ""
    """Where pods find MPS on their node; empty if they use none."""
    delivery: Delivery = "RuntimeClass"
    """How containers get their devices."""
    half_life_seconds: float = DEFAULT_HALF_LIFE_SECONDS
    """The half-life of past use in fair share, in seconds."""
    preemption: Rules = field(default_factory=Rules)
    """The rules of preemption."""
    drain: DrainRules = field(default_factory=DrainRules)
    """What happens to jobs on nodes that are to be emptied."""
    moves: MoveRules = field(default_factory=MoveRules)
    """When running jobs restart elsewhere for waiting ones."""
    reshape: ReshapeRules = field(default_factory=ReshapeRules)
    """When idle GPUs in MIG mode are partitioned again for waiting requests."""
    bind_seconds: float = 34.0
    """How long a bind of the extender can be on its way, in seconds."""
    growing: GrowingRules = field(default_factory=GrowingRules)
    """Pools to which an autoscaler adds nodes, and when nodes are requested."""
    endings: EndingRules = field(default_factory=EndingRules)
    """Whether memory overuse ends pods, and in which namespaces it does not."""
    slices_absent_seconds: float = ABSENT_SECONDS
    """For how long a missing DRA driver counts as present, in seconds."""
    audit_rules: AuditRules = field(default_factory=AuditRules)
    """What the audit lets be promised."""
    job_limits: JobLimits = field(default_factory=JobLimits)
    """The limits on the size of a GPUJob."""
    writes_tenants: bool = True
    """Whether the operator writes GPUNodeTenants. False if agents read pods themselves."""

    @property
    def keeps_history(self) -> bool:
        """Whether jobs have a record that outlives them."""
        return self.history_url != _NO_HISTORY


def make_options(settings: Settings, *, environ: Mapping[str, str]) -> Options:
    """The operator's options from the configuration and the environment."""
    namespace = environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE
    return Options(
        namespace=namespace,
        rankings=settings.rankings,
        levels=settings.levels,
        fragmentation=settings.fragmentation_policy,
        memory_strategy=settings.memory_guard,
        look_seconds=settings.monitor_update_interval,
        limits=settings.limits,
        smoothing_seconds=settings.utilization_smoothing,
        measurement_max_age_seconds=settings.measurement_max_age,
        vendors=settings.vendors,
        slices_absent_seconds=settings.dra_driver_absence,
        leaves_bad_cards=settings.bad_card == "Restart",
        mps_directory=settings.mps_directory,
        delivery=settings.delivery,
        idle=IdleRules(
            after_seconds=settings.idle.after,
            below=settings.idle.below,
            grace_seconds=settings.idle.grace,
            action=settings.idle.action,
        ),
        history_url=settings.history_url,
        history_days=settings.history_days,
        notify_url=settings.notify_url,
        notify_from=settings.notify_from,
        notify_domains=settings.notify_domains,
        notify_per_hour=settings.notify_per_hour,
        run_times=RunTimes(default_seconds=settings.default_time_limit, by_namespace=settings.namespace_time_limits),
        cpu_fallback=settings.namespace_cpu_fallback,
        half_life_seconds=settings.fair_share_half_life,
        preemption=rules_of(settings.preemption),
        drain=DrainRules(restarts=settings.drain.action == "Restart", grace_seconds=settings.drain.grace),
        moves=move_rules_of(settings.moves),
        reshape=_reshape(settings),
        bind_seconds=settings.bind_deadline_seconds + _LATE_SECONDS,
        growing=growing_rules_of(settings),
        endings=_endings(settings, namespace=namespace),
        audit_rules=audit_rules_of(settings),
        job_limits=settings.job_limits,
        writes_tenants=not settings.agents_read_pods,
    )


def _reshape(settings: Settings) -> ReshapeRules:
    said = settings.mig_reshape
    return ReshapeRules(
        enabled=said.enabled,
        labels=said.node_labels,
        after_seconds=said.after,
        idle_seconds=said.idle_for,
        cooldown_seconds=said.cooldown,
    )


def _endings(settings: Settings, *, namespace: str) -> EndingRules:
    return EndingRules(
        ends=settings.memory_overuse != "Warn",
        exempt_namespaces=frozenset({"kube-system", namespace, *settings.exempt_namespaces}),
    )
