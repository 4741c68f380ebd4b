"""The operator as a whole: each key of the configuration reaches what it decides, and all parts run, connected."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.builtin import Lease, LeaseSpec, Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import ObjectMeta, key_of
from dovetail.config.settings import Settings, live_keys
from dovetail.engine.model.settings import Limits
from dovetail.jobs.idle import IdleRules
from dovetail.jobs.moves import MoveRules
from dovetail.jobs.size_limits import JobLimits
from dovetail.kube.client import Client
from dovetail.queue.inputs.run_ends import RunTimes
from dovetail.queue.preemption.policy import Rules
from dovetail.queue.reshaping.decision import ReshapeRules
from dovetail_operator import app, handlers, main
from dovetail_operator.app import Operator, build_operator
from dovetail_operator.controller.controller import RUSH, Controller
from dovetail_operator.controller.informers import Informers
from dovetail_operator.devices.overuse_check import EndingRules
from dovetail_operator.events.recorder import JobEvents
from dovetail_operator.history import service
from dovetail_operator.job.drain import DrainRules
from dovetail_operator.leader import leadership
from dovetail_operator.notifications import notifier
from dovetail_operator.optional import OptionalNotifications, OptionalReshaping
from dovetail_operator.options import Options, make_options
from dovetail_operator.queue.reshaping import requests
from dovetail_operator.state.state import State
from dovetail_operator.watchers.node_tenants import NodeTenants
from dovetail_operator.watchers.waiting_pods import WaitingPods
from dovetail_operator.writes.unreadable_jobs import UnreadableJobs
from tests.operator_.builders import NOW, at, make_job, make_pod, make_state
from tests.operator_.test_main import KUBECONFIG
from tests.spec_values import RANKED

POOL = {"model": "V100", "gpus": 8, "max_nodes": 4, "labels": {"pool": "v"}, "cpu": "64", "memory": "256Gi"}
PREEMPTION = {
    "priority_gap": 10, "min_run": 61, "grace": 17, "per_job": 4, "per_hour": 5, "reclaim_grace": 19,
    "between_quotas": "Borrowers",
}  # fmt: skip
# Another value of each key, and the options that follow from it; a callable gives what is compared of an option.
LIMITS = Limits(guard_fraction=0.8, turns_per_device=4, training_per_device=1, inference_per_device=3)
EXEMPT = frozenset({"kube-system", "gpu"})
KEYS: Mapping[str, tuple[Any, Mapping[str, Any]]] = {
    "gpu_resource": ({"xe": "gpu.intel.com/xe"}, {"vendors": ..., "audit_rules": ...}),
    "default_gpu_resource_name": ("amd.com/gpu", {"vendors": ...}),
    "preferred_node_kind": ("Vendor", {"vendors": ...}),
    "delivery": ("NRI", {"delivery": "NRI"}),
    "dra_driver_absence": (61, {"slices_absent_seconds": 61}),
    "gpu_memory_specs": ({"X1": 7}, {"limits": ..., "audit_rules": ...}),
    "bad_card": ("Restart", {"leaves_bad_cards": True}),
    "monitor_update_interval": (31, {"look_seconds": 31}),
    "measurement_max_age": (661, {"measurement_max_age_seconds": 661}),
    "agents_read_pods": (True, {"writes_tenants": False}),
    "policy": ("Pack", {"rankings": ...}),
    "fragmentation_policy": ("fgd", {"fragmentation": "fgd"}),
    "topology_levels": (["rack=example.com/rack"], {"levels": ...}),
    "utilization_smoothing": (121, {"smoothing_seconds": 121}),
    "score_weights": ({"cpu": 7}, {"rankings": ...}),
    **{key: ({"team": value}, {"rankings": ...}) for key, value in RANKED.items()},
    "bind_deadline_seconds": (5, {"bind_seconds": 35}),
    "memory_guard": ("Aggressive", {"memory_strategy": "Aggressive", "limits": ..., "audit_rules": ...}),
    "tenants_per_device": (2, {"limits": replace(LIMITS, turns_per_device=2), "audit_rules": ...}),
    "mps_directory": ("/run/mps", {"mps_directory": "/run/mps"}),
    "training_per_device": (2, {"limits": replace(LIMITS, training_per_device=2)}),
    "inference_per_device": (5, {"limits": replace(LIMITS, inference_per_device=5)}),
    "memory_overuse": ("Evict", {"endings": EndingRules(ends=True, exempt_namespaces=EXEMPT)}),
    "exempt_namespaces": (
        ["lab"], {"endings": EndingRules(ends=False, exempt_namespaces=EXEMPT | {"lab"})}
    ),
    "default_time_limit": (7200, {"run_times": RunTimes(default_seconds=7200, by_namespace={})}),
    "namespace_time_limits": ({"team": 600}, {"run_times": RunTimes(by_namespace={"team": 600})}),
    "namespace_cpu_fallback": ({"team": 60}, {"cpu_fallback": {"team": 60}}),
    "fair_share_half_life": (3600, {"half_life_seconds": 3600}),
    "preemption": (
        PREEMPTION,
        {
            "preemption": Rules(
                gap=10, min_run_seconds=61, grace_seconds=17, per_job=4, left=5, reclaim_grace_seconds=19,
                between_quotas=True,
            )
        },
    ),
    "drain": ({"action": "Restart", "grace": 7}, {"drain": DrainRules(restarts=True, grace_seconds=7)}),
    "moves": (
        {
            "mode": "Apply", "default": "Restart", "namespaces": {"a": "Never"}, "after": 64, "rest": 65, "per_hour": 66
        },
        {
            "moves": MoveRules(
                mode="Apply", default="Restart", by_namespace={"a": "Never"}, after_seconds=64, rest_seconds=65,
                per_hour=66,
            )
        },
    ),
    "mig_reshape": (
        {"enabled": True, "node_labels": {"a": "b"}, "after": 61, "idle_for": 62, "cooldown": 63},
        {
            "reshape": ReshapeRules(
                enabled=True, labels={"a": "b"}, after_seconds=61, idle_seconds=62, cooldown_seconds=63
            )
        },
    ),
    "growing": ({"after": 61, "give_up": 901, "back_off": 601, "pools": {"v": POOL}}, {"growing": ...}),
    "gpujobs": (
        {"max_spec_bytes": 8192, "max_array_bytes": 2 << 20},
        {"job_limits": JobLimits(spec_bytes=8192, array_bytes=2 << 20)},
    ),
    "idle": (
        {"after": 61, "below": 0.25, "action": "End", "grace": 62},
        {"idle": IdleRules(after_seconds=61, below=0.25, grace_seconds=62, action="End")},
    ),
    "history_url": ("sqlite:////tmp/h.db", {"history_url": "sqlite:////tmp/h.db"}),
    "history_days": (30, {"history_days": 30}),
    "notify_url": ("smtp://mail:25", {"notify_url": "smtp://mail:25"}),
    "notify_from": ("gpu@example.com", {"notify_from": "gpu@example.com"}),
    "notify_domains": (["example.com"], {"notify_domains": ["example.com"]}),
    "notify_per_hour": (7, {"notify_per_hour": 7}),
}  # fmt: skip
# Keys that other programs read, and those of every process.
NOT_OURS = {
    "strangers", "heartbeat_interval", "resource_change_threshold", "hold_ttl_seconds", "turn_seconds",
    "suspend_turn_seconds", "memory_overuse_grace", "log_level", "log_format", "samples_url", "gpu_hour_prices",
    "currency",
}  # fmt: skip


def options_of(**settings: Any) -> Options:
    return make_options(Settings(**settings), environ={"POD_NAMESPACE": "gpu"})


def test_every_key_is_an_option_or_is_read_by_others() -> None:
    assert KEYS.keys() | NOT_OURS == Settings.model_fields.keys()


@pytest.mark.parametrize("key", KEYS)
def test_a_key_changes_the_options_that_follow_from_it_and_no_others(key: str) -> None:
    value, follows = KEYS[key]
    before, after = options_of(), options_of(**{key: value})
    changed = {each.name for each in fields(Options) if getattr(before, each.name) != getattr(after, each.name)}
    assert changed == follows.keys()
    for name, wanted in follows.items():
        if wanted is not ... and name != "limits":
            assert getattr(after, name) == wanted
        elif wanted is not ...:
            assert replace(after.limits, memory_specs=wanted.memory_specs) == wanted


@pytest.mark.parametrize(("policy", "ends"), [("Warn", False), ("Evict", True), ("Kill", True)])
def test_the_operator_ends_jobs_beyond_their_memory_unless_they_are_only_warned(policy: str, ends: bool) -> None:
    assert options_of(memory_overuse=policy).endings.ends is ends


# --- the operator that is built from options -----------------------------------------------------------------------


def build(client: Client, **settings: Any) -> Operator:
    """An operator with these settings, which opens no database before it runs."""
    options = options_of(**settings)
    office = leadership(client, namespace="gpu", environ={"POD_NAME": "one"})
    return build_operator(client, options=options, office=office, registry=CollectorRegistry())


def part_of(operator: Operator, kind: type[Any]) -> Any:
    (found,) = (each for each in (*operator._parts, *operator._early) if isinstance(each, kind))
    return found


def state_of(operator: Operator) -> State:
    state: State = part_of(operator, Controller)._state
    return state


# A live key, and where the state has what follows from it.
LIVE: Mapping[str, Callable[[State], Any]] = {
    "policy": lambda state: state.requests._rankings,
    "score_weights": lambda state: state.requests._rankings,
    **dict.fromkeys(RANKED, lambda state: state.requests._rankings),
    "topology_levels": lambda state: state.requests._levels,
    "training_per_device": lambda state: state.store.view.ledger.limits.training_per_device,
    "inference_per_device": lambda state: state.store.view.ledger.limits.inference_per_device,
    "default_time_limit": lambda state: state.run_times,
    "namespace_time_limits": lambda state: state.run_times,
    "namespace_cpu_fallback": lambda state: state.cpu_fallback,
    "preemption": lambda state: state.preemption,
    "drain": lambda state: state.drain,
    "moves": lambda state: state.moves,
    "mig_reshape": lambda state: state.reshape,
    "growing": lambda state: state.growing.rules,
}


def test_every_live_key_that_the_operator_reads_is_compared() -> None:
    assert LIVE.keys() == set(live_keys()) - NOT_OURS


@pytest.mark.parametrize("key", LIVE)
async def test_a_key_that_changes_at_run_time_counts_as_one_of_the_start(client: Client, key: str) -> None:
    """And the queue looks at all jobs by it, those that waited too."""
    changed = {key: KEYS[key][0]}
    found, wanted = build(client), build(client, **changed)
    scheduling = part_of(found, Controller)._scheduling
    candidates = scheduling._caches.candidates
    candidates.keep("uid-x", value=cast("Any", "as it was"))
    candidates.forget_others()
    assert LIVE[key](state_of(found)) != LIVE[key](state_of(wanted))
    found.configure(options_of(**changed))
    assert LIVE[key](state_of(found)) == LIVE[key](state_of(wanted))
    assert (scheduling._wake_up._urgent.is_set(), candidates.get("uid-x")) == (True, None)


# What is built, and which of its arguments is which option. Optional parts have their module.
HOMES: Mapping[str, ModuleType] = {"build_history": service, "build_notifier": notifier, "Reshaper": requests}
ARGUMENTS: Mapping[str, Mapping[str, str]] = {
    "build_view": {
        "limits": "limits",
        "smoothing_seconds": "smoothing_seconds",
        "max_age_seconds": "measurement_max_age_seconds",
        "vendors": "vendors",
        "absent_seconds": "slices_absent_seconds",
    },
    "build_state": {
        name: name
        for name in (
            "rankings", "run_times", "preemption", "endings", "job_limits", "leaves_bad_cards", "fragmentation",
            "cpu_fallback", "growing", "drain", "moves", "reshape", "levels",
        )
    },
    "Learning": {"default": "memory_strategy", "look_seconds": "look_seconds"},
    "Quotas": {"half_life_seconds": "half_life_seconds"},
    "build_controller": {"mps_directory": "mps_directory", "delivery": "delivery", "endings": "endings"},
    "build_watchers": {"idle": "idle"},
    "build_history": {"url": "history_url", "keep_days": "history_days"},
    "build_notifier": {
        "url": "notify_url", "sender": "notify_from", "domains": "notify_domains", "per_hour": "notify_per_hour",
    },
    "Numbers": {"namespace": "namespace"},
    "DeviceIndexes": {"namespace": "namespace"},
    "LastingMisses": {"namespace": "namespace"},
    "MixLearning": {"namespace": "namespace"},
    "Reshaper": {"drain_seconds": "bind_seconds"},
    "VendorQuotas": {"vendors": "vendors"},
    "AuditWatch": {"rules": "audit_rules"},
    "NodeTenants": {"vendors": "vendors"},
}  # fmt: skip


async def test_without_a_history_no_job_waits_for_its_record(client: Client) -> None:
    """`ttlSecondsAfterFinished` deletes a job only after its record is written."""
    ended = make_job(status={"phase": "Succeeded"})
    found = dict[str, bool]()
    for url in ("none", "sqlite:////tmp/h.db"):
        state = state_of(build(client, history_url=url))
        state.store.job_changed(ended)
        observed = state.observe(key_of(ended.metadata), now=NOW)
        assert observed is not None
        found[url] = observed.recorded
    assert found == {"none": True, "sqlite:////tmp/h.db": False}


async def test_each_option_of_the_start_is_where_it_counts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    built = dict[str, Mapping[str, Any]]()

    def noting(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **options: Any) -> Any:
            built[name] = options
            return make(*args, **options)

        return noted

    for name in ARGUMENTS:
        home = HOMES.get(name, app)
        monkeypatch.setattr(home, name, noting(name, getattr(home, name)))
    changed = {key: value for key, (value, _) in KEYS.items() if key != "agents_read_pods"}
    part_of(build(client, **changed), OptionalReshaping).load()
    options = options_of(**changed)
    for name, arguments in ARGUMENTS.items():
        for argument, option in arguments.items():
            assert built[name][argument] == getattr(options, option), f"{argument} of {name}"
    unnamed = {each.name for each in fields(Options)} - {each for some in ARGUMENTS.values() for each in some.values()}
    assert unnamed == {"writes_tenants"}


async def test_where_agents_read_pods_no_one_writes_tenants(client: Client) -> None:
    for reads in (True, False):
        operator = build(client, agents_read_pods=reads)
        writers = [each for each in operator._parts if isinstance(each, NodeTenants)]
        assert len(writers) == (not reads)
        assert len(operator.informers._on_pod._handlers) == (3 if reads else 4)


async def test_every_part_is_there_once(client: Client) -> None:
    operator = build(client)
    assert sorted(type(each).__name__ for each in operator._parts) == [
        "AuditWatch", "Controller", "DeviceIndexes", "GuestKeeper", "HistoryService", "IdleWatch", "JobEvents",
        "KueueWatch", "LastingMisses", "LastingMoves", "MixLearning", "NodeTenants", "OptionalNotifications",
        "OptionalReshaping", "PlaceholderKeeper", "ProvisioningRequestKeeper", "QuotaStatusWriter", "ServiceKeeper",
        "VendorQuotas", "WaitingPods",
    ]  # fmt: skip
    assert [type(each).__name__ for each in operator._early] == ["UnreadableJobs", "OptionalWatch", "KindWatches"]


async def test_news_of_one_part_reaches_the_others(client: Client) -> None:
    operator = build(client)
    state, controller = state_of(operator), part_of(operator, Controller)
    due = controller._scheduling._wake_up._due
    state.growing._changed()
    assert due.is_set(), "a pool that grows wakes the queue"
    due.clear()
    controller.changes.job_changed(job := make_job(status={"number": 1}))
    due.clear()
    part_of(operator, UnreadableJobs).report(job.metadata, "cannot be read: Expected `int` - at `$.spec.gpu`")
    assert (due.is_set(), state.store.is_unreadable("team/x")) == (True, True)
    assert part_of(operator, OptionalNotifications) in state.store._followers
    assert controller.reconciler._actions._guests.watches is operator._early[-1]
    assert part_of(operator, WaitingPods)._nodes == operator.informers.nodes == {}


async def test_a_batch_job_has_the_fencing_token_of_now(client: Client) -> None:
    office = leadership(client, namespace="gpu", environ={"POD_NAME": "one"})
    operator = build_operator(client, options=options_of(), office=office, registry=CollectorRegistry())
    term = part_of(operator, Controller).reconciler._actions._term
    assert term() is None
    office._lease = Lease(metadata=ObjectMeta(name="l"), spec=LeaseSpec(lease_transitions=7))
    assert term() == 7


async def test_events_wait_while_many_jobs_do_or_in_a_rush(client: Client) -> None:
    operator = build(client)
    is_busy, queue = part_of(operator, JobEvents)._recorder._is_busy, part_of(operator, Controller).queue
    for number in range(RUSH):
        assert not is_busy()
        queue.add(str(number))
    assert is_busy()
    other = build(client)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    state_of(other).decisions.set_at_work(starting=64, ended=0, now=now)
    assert part_of(other, JobEvents)._recorder._is_busy()


async def test_what_was_there_before_the_operator_counts_in_the_mix_the_oldest_first(client: Client) -> None:
    """Without pods that have ended, and once each."""
    counted, state = list[str](), make_state(a=1)
    for name, seconds in (("new", -1), ("old", -9)):
        state.store.job_changed(make_job(name, meta={"creationTimestamp": at(seconds)}))
    pods = [
        make_pod(phase=phase, created=created, meta={"name": name, "creationTimestamp": at(created)})
        for name, phase, created in (("b", "Running", -2), ("gone", "Succeeded", -3), ("a", "Pending", -8))
    ]
    recorded = cast("State", Recorded(state, counted))
    await app._count_present(recorded, pods=lambda: pods)
    assert counted == ["old", "new", "a", "b"]


class Recorded:
    """A state that notes what is counted."""

    def __init__(self, state: State, counted: list[str]) -> None:
        self.store, self._counted = state.store, counted

    def count_submitted(self, job: GPUJob) -> None:
        self._counted.append(job.metadata.name)

    def count_created(self, pod: Pod) -> None:
        self._counted.append(pod.metadata.name)


class Part:
    """Notes that it runs."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self._name, self._ran = name, ran

    async def run(self) -> None:
        self._ran.append(self._name)
        await asyncio.Event().wait()


async def test_what_decides_begins_once_all_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app.heap, "keep_for_good", lambda: None)
    ran, synced, listed = list[str](), asyncio.Event(), asyncio.Event()

    class Listing(Part):
        async def synced(self) -> None:
            await synced.wait()

    async def all_listed() -> None:
        await listed.wait()

    operator = Operator(
        cast("Informers", Listing("informers", ran)),
        early=[Part("early", ran)],
        parts=[Part("part", ran), Part("other", ran)],
        listed=all_listed,
        configure=lambda _: None,
    )
    task = asyncio.create_task(operator.run())
    for released, wanted in ((None, []), (synced, []), (listed, ["part", "other"])):
        if released is not None:
            released.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert ran == ["informers", "early", *wanted]
    task.cancel()
    await asyncio.wait([task])


def test_nothing_is_written_without_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease's own client writes without it, of course."""
    kubeconfig, built = tmp_path / "kubeconfig", list[Client]()
    kubeconfig.write_text(KUBECONFIG, encoding="utf-8")

    def noted(client: Client, **options: Any) -> Operator:
        built.extend((client, options["office"]._client))
        assert client._transport._guard == options["office"].guard
        return build_operator(client, **options | {"registry": CollectorRegistry()})

    async def run(process: handlers.Process, *, liveness: str | None) -> None:
        assert (process.standard_login, liveness) == (False, None)

    monkeypatch.setattr(main, "build_operator", noted)
    monkeypatch.setattr(handlers, "run", run)
    assert main.main([f"--kubeconfig={kubeconfig}", "--metrics-port=0"]) == 0
    assert built[0] is not built[1]
    assert built[1]._transport._guard is None
