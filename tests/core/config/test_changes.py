from dovetail.config.changes import change_of
from dovetail.config.groups import PreemptionRules
from dovetail.config.settings import Settings


def test_live_keys_are_taken_and_the_others_wait_for_a_restart() -> None:
    read = Settings(policy="Pack", preemption=PreemptionRules(priority_gap=5), history_days=7, tenants_per_device=2)
    change = change_of(Settings(), read=read)
    assert change.settings == Settings(policy="Pack", preemption=PreemptionRules(priority_gap=5))
    assert (change.taken, change.waiting) == (("policy", "preemption"), ("tenants_per_device", "history_days"))


def test_the_same_configuration_changes_nothing() -> None:
    change = change_of(Settings(policy="Pack"), read=Settings(policy="Pack"))
    assert (change.taken, change.waiting) == ((), ())
