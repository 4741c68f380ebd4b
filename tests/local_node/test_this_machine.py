"""What the local node finds on its machine."""

import os

from dovetail_local_node.machine import this_machine


def test_cpus_are_those_that_this_process_may_use() -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert this_machine().cpus == 1
    finally:
        os.sched_setaffinity(0, before)
    assert this_machine().cpus == len(before)


def test_memory_is_that_of_the_whole_machine() -> None:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert this_machine().memory_mib == pages // (1 << 20)
