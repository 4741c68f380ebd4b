"""What the queue's rules are by a configuration: each key arrives where it counts, in the unit that counts there."""

from dataclasses import fields
from typing import Any

import pytest

from dovetail.config.settings import Settings
from dovetail.query.audit import rules_of as audit_rules_of
from dovetail.query.growing_rules import growing_rules_of
from dovetail.query.preemption_rules import rules_of
from dovetail.queue.preemption.policy import Rules

PREEMPTION = {
    "priority_gap": 11, "min_run": 21, "grace": 31, "per_job": 4, "per_hour": 51, "reclaim_grace": 61,
    "between_quotas": "Borrowers",
}  # fmt: skip
SHAPE: dict[str, Any] = {
    "labels": {"pool": "big"}, "gpus": 4, "model": "A100", "cpu": "7500m", "memory": "64Gi", "pods": 33,
    "max_nodes": 6, "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
}  # fmt: skip


def test_each_key_of_preemption_is_a_rule() -> None:
    found = rules_of(Settings(preemption=PREEMPTION).preemption)
    assert found == Rules(gap=11, min_run_seconds=21, grace_seconds=31, per_job=4, left=51, reclaim_grace_seconds=61,
                          between_quotas=True)  # fmt: skip
    assert not [each.name for each in fields(Rules) if getattr(found, each.name) == getattr(Rules(), each.name)]
    assert not rules_of(Settings(preemption=PREEMPTION | {"between_quotas": "Never"}).preemption).between_quotas


def test_a_growing_pool_has_the_shape_of_its_nodes() -> None:
    said = {"after": 11, "give_up": 200, "back_off": 300, "pools": {"big": SHAPE}}
    found = growing_rules_of(Settings(growing=said))
    (pool,) = found.pools
    assert (found.after_seconds, found.give_up_seconds, found.back_off_seconds) == (11, 200, 300)
    assert (pool.name, pool.labels, pool.max_nodes, pool.gpus, pool.model) == ("big", {"pool": "big"}, 6, 4, "A100")
    assert (pool.cpu_milli, pool.memory_mib, pool.pods) == (7500, 65536, 33)
    assert [(each.key, each.value, each.effect) for each in pool.taints] == [("k", "v", "NoSchedule")]
    assert (pool.vendor, pool.resource, pool.provisioning_class) == ("nvidia", "", "")


@pytest.mark.parametrize(
    ("shape", "memory_mib"),
    [({"gpu_memory_mib": 1234}, 1234), ({"model": "A100-40GB"}, 40960), ({"model": "Unheard of"}, 0)],
    ids=["as it is said", "as the model's name says", "not known"],
)
def test_the_memory_of_a_pool_s_gpus_is_what_is_said_or_what_the_model_has(
    shape: dict[str, Any], memory_mib: int
) -> None:
    (pool,) = growing_rules_of(Settings(growing={"pools": {"big": SHAPE | shape}})).pools
    assert pool.gpu_memory_mib == memory_mib


def test_a_vendor_s_resource_names_the_vendor_and_a_class_asks_the_autoscaler() -> None:
    shape = SHAPE | {"resource": "amd.com/gpu", "provisioning": "ProvisioningRequest", "class_name": "best-effort"}
    (pool,) = growing_rules_of(Settings(growing={"pools": {"big": shape}})).pools
    assert (pool.vendor, pool.resource, pool.provisioning_class) == ("amd", "amd.com/gpu", "best-effort")


def test_the_audit_allows_what_the_configuration_does() -> None:
    said = Settings(memory_guard="Aggressive", tenants_per_device=7, gpu_memory_specs={"A100": 17})
    found = audit_rules_of(said)
    assert (found.guard_fraction, found.turns_per_device) == (0.95, 7)
    assert found.vendor_resources == said.vendors.resources
    assert found.memory_specs == said.limits.memory_specs
