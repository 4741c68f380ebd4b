from dovetail.config.changes import change_of
from dovetail.config.groups import PreemptionRules
from dovetail.config.settings import Settings, live_keys


def test_live_keys_are_taken_and_the_others_wait_for_a_restart() -> None:
    read = Settings(policy="Pack", preemption=PreemptionRules(priority_gap=5), history_days=7, tenants_per_device=2)
    change = change_of(Settings(), read=read)
    assert change.settings == Settings(policy="Pack", preemption=PreemptionRules(priority_gap=5))
    assert (change.taken, change.waiting) == (("policy", "preemption"), ("tenants_per_device", "history_days"))


def test_the_same_configuration_changes_nothing() -> None:
    change = change_of(Settings(policy="Pack"), read=Settings(policy="Pack"))
    assert (change.taken, change.waiting) == ((), ())


def test_every_live_key_is_one_that_programs_apply() -> None:
    assert set(live_keys()) == {
        "policy", "namespace_policies", "score_weights", "namespace_score_weights", "training_per_device",
        "inference_per_device", "default_time_limit", "namespace_time_limits",
        "namespace_cpu_fallback", "preemption", "drain", "growing", "log_level", "topology_levels", "mig_reshape",
    }  # fmt: skip
