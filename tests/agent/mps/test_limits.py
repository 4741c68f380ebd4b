"""What MPS must hold a node's tenants to."""

from msgspec.structs import replace as with_fields

from dovetail_agent.mps.limits import Limits, commands, limits_of, others_cards
from tests.agent.builders import allocated, make_tenant
from tests.agent.mps_machine import fractional

CARD, OTHER = allocated(0).uuid, allocated(1).uuid


def test_a_card_s_limit_is_the_largest_that_anybody_there_was_promised() -> None:
    tenants = [fractional(0, share_milli=500, memory_mib=8192), fractional(0, share_milli=250, memory_mib=4096)]
    assert limits_of(tenants) == Limits(percentage=50, memory_mib={CARD: 8192})


def test_the_daemons_percentage_is_the_largest_share_and_each_card_has_its_own_limit() -> None:
    tenants = [
        fractional(1, share_milli=250, memory_mib=4096),
        fractional(0, share_milli=509, memory_mib=1024),
        fractional(1, share_milli=100, memory_mib=2048),
    ]
    assert limits_of(tenants) == Limits(percentage=50, memory_mib={CARD: 1024, OTHER: 4096})
    assert limits_of(tenants).cards == {CARD, OTHER}


def test_without_shares_nothing_is_limited_and_no_other_tenant_keeps_mps_off() -> None:
    assert limits_of([]) == Limits(percentage=100, memory_mib={})
    assert others_cards([fractional(0, share_milli=500, memory_mib=1024)]) == frozenset()


def test_a_share_below_a_hundredth_is_one_hundredth() -> None:
    assert limits_of([fractional(0, share_milli=4, memory_mib=64)]).percentage == 1


def test_tenants_of_other_modes_are_not_limited_and_keep_mps_off_their_cards() -> None:
    tenants = [make_tenant(allocated(0)), with_fields(make_tenant(allocated(1)), mode="TimeShared")]
    assert limits_of(tenants) == Limits()
    assert others_cards(tenants) == {CARD, OTHER}


def test_servers_that_run_are_told_as_well_as_those_to_come() -> None:
    assert list(commands(Limits(percentage=50, memory_mib={CARD: 8192}), servers=[7])) == [
        "set_default_active_thread_percentage 50",
        f"set_default_device_pinned_mem_limit {CARD} 8192M",
        "set_active_thread_percentage 7 50",
        f"set_device_pinned_mem_limit 7 {CARD} 8192M",
    ]
