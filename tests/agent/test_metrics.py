from dataclasses import replace
from datetime import timedelta

import pytest
from msgspec.structs import replace as with_fields
from prometheus_client import CollectorRegistry

from dovetail.api.gpunodetenants import NodeTenant
from dovetail.config.groups import IdlePolicy
from dovetail.config.settings import Settings
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_agent.agent import Agent, Look, Rules
from dovetail_agent.devices.model import DeviceSample, Process
from dovetail_agent.devices.simulated.provider import SimulatedProvider, compute_level, memory_level
from dovetail_agent.main import rules_of
from dovetail_agent.metrics import AgentCollector
from dovetail_agent.pod_metrics import MOST
from dovetail_agent.report import node_status
from tests.agent.builders import NOON, V100S, allocated, make_node, make_tenant

UUID = allocated(0).uuid
LABELS = {"node": "v100-0", "index": "0", "uuid": UUID, "model": "V100"}


def make_agent() -> Agent:
    client = Client(Connection(server="http://127.0.0.1:1"))
    return Agent(client, provider=SimulatedProvider(), rules=rules_of(Settings()), clock=lambda: NOON)


def registry_of(agent: Agent) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent))
    return registry


def look(*tenants, **node) -> Look:
    provider, made = SimulatedProvider(), make_node(**node)
    inventory = provider.inventory(made)
    sample = provider.sample(inventory, node=made, tenants=tenants, now=NOON)
    status = node_status.readable(
        inventory, sample=sample, provider="simulated", tenants=tenants, previous=None, now=NOON
    )
    return Look(status=status, tenants=tenants, inventory=inventory, sample=sample)


def test_a_device_s_figures_are_gauges_in_base_units() -> None:
    agent = make_agent()
    agent._looks["v100-0"] = look(make_tenant(allocated(0, share_milli=500, memory_mib=1000)))
    registry = registry_of(agent)

    def value(name: str) -> float | None:
        return registry.get_sample_value(f"dovetail_device_{name}", LABELS)

    assert value("utilization_ratio") == 0.5 * compute_level("ml/a", now=NOON)
    assert value("memory_total_bytes") == 32768 * 2**20
    assert value("memory_used_bytes") == int(1000 * memory_level("ml/a")) * 2**20
    assert (value("promised_share_ratio"), value("promised_memory_bytes")) == (0.5, 1000 * 2**20)
    assert (value("tenants"), value("healthy")) == (1, 1)


def test_tenants_are_counted_by_what_they_declare_to_be() -> None:
    agent = make_agent()
    kinds = ("Training", "Inference", "Inference", None)
    agent._looks["v100-0"] = look(
        *(
            with_fields(make_tenant(allocated(0, share_milli=200)), uid=f"u{at}", workload=kind)
            for at, kind in enumerate(kinds)
        )
    )
    registry = registry_of(agent)
    found = {
        kind: registry.get_sample_value("dovetail_device_tenants_by_workload", {**LABELS, "workload": kind})
        for kind in ("training", "inference", "unspecified")
    }
    assert found == {"training": 1, "inference": 2, "unspecified": 1}


def test_a_figure_that_is_not_available_has_no_sample() -> None:
    agent = make_agent()
    agent._looks["v100-0"] = look(faults={"0": "XID79"})
    registry = registry_of(agent)
    assert registry.get_sample_value("dovetail_device_healthy", LABELS) == 0
    assert registry.get_sample_value("dovetail_device_utilization_ratio", LABELS) is None


def test_an_unreadable_node_is_counted_and_has_no_devices() -> None:
    agent = make_agent()
    status = node_status.unreadable("no", provider="simulated", previous=None, now=NOON)
    agent._looks["v100-0"] = Look(status=status, tenants=())
    registry = registry_of(agent)
    assert registry.get_sample_value("dovetail_agent_nodes", {"readable": "false"}) == 1
    assert registry.get_sample_value("dovetail_device_healthy", LABELS) is None


def test_what_a_driver_tells_beyond_the_load_has_a_metric_of_its_own_kind() -> None:
    agent, seen = make_agent(), look()
    assert seen.sample is not None
    told = DeviceSample(
        used_mib=900,
        clocks_mhz={"sm": 1755},
        throttled_by=("power_cap",),
        ecc_errors={"uncorrected": 2},
        remapped_rows=3,
        xids={31: 4},
    )
    agent._looks["v100-0"] = replace(seen, sample=replace(seen.sample, devices=(told, DeviceSample())))
    registry = registry_of(agent)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"dovetail_device_{name}", LABELS | labels)

    assert value("clock_hertz", clock="sm") == 1755e6
    assert (value("throttled", reason="power_cap"), value("throttled", reason="temperature")) == (1, None)
    assert (value("ecc_errors_total", kind="uncorrected"), value("xid_errors_total", xid="31")) == (2, 4)
    assert (value("remapped_rows"), value("foreign_memory_bytes")) == (3, 900 * 2**20)


def test_when_the_devices_were_read_is_told_even_where_they_cannot_be_read_now() -> None:
    agent = make_agent()
    status = node_status.unreadable("no", provider="simulated", previous=look().status, now=NOON + timedelta(hours=1))
    agent._looks["v100-0"] = Look(status=status, tenants=())
    told = registry_of(agent).get_sample_value("dovetail_device_measured_timestamp_seconds", {"node": "v100-0"})
    assert told == NOON.timestamp()


def test_the_rules_are_the_configuration_s() -> None:
    idle = IdlePolicy(below=0.2)
    rules = rules_of(
        Settings(monitor_update_interval=7, heartbeat_interval=70, resource_change_threshold=0.1, idle=idle)
    )
    assert isinstance(rules, Rules)
    assert (rules.look_every.total_seconds(), rules.pace.heartbeat.total_seconds()) == (7, 70)
    assert (rules.pace.threshold, rules.turns_per_device) == (0.1, 4)
    assert (rules.pace.between_utilization.total_seconds(), rules.pace.idle_below) == (14, 0.2)


POD_LABELS = {
    "namespace": "ml",
    "pod": "a-0",
    "container": "main",
    "job": "a",
    "node": "v100-0",
    "index": "0",
    "uuid": UUID,
}


def in_containers(tenant: NodeTenant, *containers: str) -> NodeTenant:
    """The tenant, with the container that has each of its devices."""
    return with_fields(tenant, device_containers=list(containers or ["main"] * len(tenant.devices)))


def computing(seen: Look, *processes: Process) -> Look:
    """The look, with these processes on each device."""
    assert seen.sample is not None
    devices = tuple(replace(each, processes=processes) for each in seen.sample.devices)
    return replace(seen, sample=replace(seen.sample, devices=devices))


def pod_value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"dovetail_pod_gpu_{name}", {**POD_LABELS, **labels})


def test_a_pod_that_has_its_device_alone_has_the_device_s_figures() -> None:
    agent = make_agent()
    agent._looks["v100-0"] = look(in_containers(make_tenant(allocated(0, share_milli=500, memory_mib=1000))))
    registry = registry_of(agent)
    assert (pod_value(registry, "promised_share_ratio"), pod_value(registry, "promised_memory_bytes")) == (
        0.5,
        1000 * 2**20,
    )
    assert pod_value(registry, "memory_used_bytes") == int(1000 * memory_level("ml/a")) * 2**20
    assert pod_value(registry, "utilization_ratio") == registry.get_sample_value(
        "dovetail_device_utilization_ratio", LABELS
    )
    assert pod_value(registry, "power_watts") == registry.get_sample_value("dovetail_device_power_watts", LABELS)


def test_what_the_driver_cannot_attribute_to_one_of_several_pods_is_absent_and_not_zero() -> None:
    agent = make_agent()
    one = in_containers(make_tenant(allocated(0, share_milli=500, memory_mib=1000)))
    two = with_fields(one, uid="u2", name="b-0")
    agent._looks["v100-0"] = look(one, two)
    registry = registry_of(agent)
    for pod in ("a-0", "b-0"):
        assert pod_value(registry, "promised_share_ratio", pod=pod) == 0.5
        assert pod_value(registry, "memory_used_bytes", pod=pod) is not None
        assert pod_value(registry, "utilization_ratio", pod=pod) is None
        assert pod_value(registry, "power_watts", pod=pod) is None


def test_memory_of_pods_that_cannot_be_told_apart_is_absent() -> None:
    agent = make_agent()
    found = look(in_containers(make_tenant(allocated(0, share_milli=500, memory_mib=1000))))
    assert found.sample is not None
    devices = tuple(replace(each, used_by_tenant_mib=None) for each in found.sample.devices)
    agent._looks["v100-0"] = replace(found, sample=replace(found.sample, devices=devices))
    assert pod_value(registry_of(agent), "memory_used_bytes") is None


def test_a_throttled_device_names_the_pod_that_has_it_alone() -> None:
    agent = make_agent()
    found = look(in_containers(make_tenant(allocated(0, share_milli=500, memory_mib=1000))))
    assert found.sample is not None
    devices = tuple(replace(each, throttled_by=("temperature",)) for each in found.sample.devices)
    agent._looks["v100-0"] = replace(found, sample=replace(found.sample, devices=devices))
    assert pod_value(registry_of(agent), "throttled", reason="temperature") == 1


def test_the_number_of_series_is_bounded_and_what_is_left_out_is_counted() -> None:
    agent = make_agent()
    one = make_tenant(allocated(0, share_milli=1, memory_mib=1))
    agent._looks["v100-0"] = look(*(with_fields(one, uid=f"u{at}", name=f"p{at}") for at in range(MOST + 3)))
    registry = registry_of(agent)
    (shares,) = [family for family in registry.collect() if family.name == "dovetail_pod_gpu_promised_share_ratio"]
    assert len(shares.samples) == MOST
    assert registry.get_sample_value("dovetail_pod_gpu_left_out") == 3


def two_pods() -> Look:
    one = in_containers(make_tenant(allocated(0, share_milli=500, memory_mib=1000)))
    return look(one, with_fields(one, uid="u2", name="b-0"))


def test_a_shared_device_s_utilization_is_told_apart_by_its_processes() -> None:
    agent = make_agent()
    processes = (
        Process(pid=1, utilization=0.3, pod_uid="pod-uid"),
        Process(pid=2, utilization=0.3, pod_uid="pod-uid"),
        Process(pid=3, utilization=0.2, pod_uid="u2"),
    )
    agent._looks["v100-0"] = computing(two_pods(), *processes)
    registry = registry_of(agent)
    whole = registry.get_sample_value("dovetail_device_utilization_ratio", LABELS)
    assert whole
    assert pod_value(registry, "utilization_ratio") == pytest.approx(whole * 0.75)
    assert pod_value(registry, "utilization_ratio", pod="b-0") == pytest.approx(whole * 0.25)


def test_a_process_of_no_pod_such_as_mps_s_server_makes_the_shares_of_utilization_unknown() -> None:
    agent = make_agent()
    server = Process(pid=1, utilization=0.8)
    clients = [Process(pid=2, utilization=0.0, pod_uid="pod-uid"), Process(pid=3, utilization=0.0, pod_uid="u2")]
    agent._looks["v100-0"] = computing(two_pods(), server, *clients)
    assert pod_value(registry_of(agent), "utilization_ratio") is None


def test_a_driver_without_utilization_by_process_tells_no_shares_of_it() -> None:
    agent = make_agent()
    agent._looks["v100-0"] = computing(two_pods(), Process(pid=2, pod_uid="pod-uid"), Process(pid=3, pod_uid="u2"))
    assert pod_value(registry_of(agent), "utilization_ratio") is None


def test_a_shared_device_without_a_busy_process_is_idle() -> None:
    agent = make_agent()
    agent._looks["v100-0"] = computing(two_pods(), Process(pid=2, utilization=0.0, pod_uid="pod-uid"))
    assert pod_value(registry_of(agent), "utilization_ratio") == 0


def test_containers_of_a_pod_have_their_promises_and_the_pod_has_the_measurements() -> None:
    agent = make_agent()
    shares = (allocated(0, share_milli=300, memory_mib=100), allocated(0, share_milli=200, memory_mib=50))
    agent._looks["v100-0"] = look(in_containers(make_tenant(*shares), "main", "side"))
    registry = registry_of(agent)
    assert pod_value(registry, "promised_share_ratio") == 0.3
    assert pod_value(registry, "promised_share_ratio", container="side") == 0.2
    assert pod_value(registry, "utilization_ratio") is None
    assert pod_value(registry, "utilization_ratio", container="") is not None


def test_a_list_of_tenants_that_names_no_containers_gives_metrics_without_one() -> None:
    agent = make_agent()
    agent._looks["v100-0"] = look(make_tenant(allocated(0)))
    assert pod_value(registry_of(agent), "promised_share_ratio", container="") == 1


def test_pods_with_declared_work_share_it_on_a_simulated_node() -> None:
    agent = make_agent()
    pods = [
        with_fields(
            in_containers(make_tenant(allocated(0, share_milli=250, memory_mib=9))), uid=f"u{at}", name=f"p{at}"
        )
        for at in range(4)
    ]
    for running, level in ((pods[:1], 1.0), (pods[:2], 0.8), (pods, 0.4)):
        agent._looks["v100-0"] = look(*running, devices=V100S | {"demand": {"ml": 0.4}})
        of_each = [pod_value(registry_of(agent), "utilization_ratio", pod=each.name) for each in running]
        assert of_each == [pytest.approx(0.25 * level)] * len(running)
