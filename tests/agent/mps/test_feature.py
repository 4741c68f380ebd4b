"""What the agent says of MPS: whose limits bind only by its own will, and when it looks again."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import GPUNodeStatus
from dovetail_agent.mps import state_file
from dovetail_agent.mps.feature import MpsFeature
from dovetail_agent.mps.state_file import OLD_SECONDS, State
from tests import virtual_time
from tests.agent.builders import allocated, make_tenant
from tests.agent.feature.test_enforcement import LIVE, mps, seen
from tests.background import running


async def inline(act: Any, *args: Any) -> Any:
    """In place of a thread, which knows no virtual time."""
    return act(*args)


async def wakes(path: Path) -> list[int]:
    """How often a look was requested after each change of what the supervisor says."""
    found, count = [], [0]
    feature = MpsFeature(path, clock=virtual_time.clock)

    def wake() -> None:
        count[0] += 1

    def live(**change: Any) -> State:
        return with_fields(LIVE, at=virtual_time.clock(), **change)

    async with running(feature.run(wake)):
        for state in (live(), live(), live(message="refused 8192 MiB"), live(reason="Again"), live(live=False)):
            state_file.write(path, state=with_fields(state, at=virtual_time.clock()))
            await asyncio.sleep(7)
            found.append(count[0])
        await asyncio.sleep(OLD_SECONDS + 7)
        found.append(count[0])
    return found


def test_a_look_follows_each_change_of_what_the_supervisor_says_and_its_silence(tmp_path: Path) -> None:
    with patch.object(asyncio, "to_thread", inline):
        found = virtual_time.run(wakes(tmp_path / "mps.json"))
    first, *_ = found
    assert [each - first for each in found] == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(40))
def test_those_are_named_that_were_promised_less_than_another_of_their_device(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    tenants = []
    for number in range(random.randint(0, 4)):
        shares, mib = random.choice([250, 255, 500]), random.choice([4096, 8192])
        held = [allocated(index, share_milli=shares, memory_mib=mib) for index in random.choice([[0], [1], [0, 1]])]
        mode = random.choice(["Fractional", "Fractional", "TimeShared"])
        tenants.append(with_fields(make_tenant(*held, uid=f"uid-{number}"), mode=mode, name=f"p{number}"))
    shared = [tenant for tenant in tenants if tenant.mode == "Fractional"]
    # MPS has one percentage for all clients of the node, and a memory limit for each device.
    most = max((device.share_milli // 10 for tenant in shared for device in tenant.devices), default=0)
    largest = {
        uuid: max(device.memory_mib for tenant in shared for device in tenant.devices if device.uuid == uuid)
        for uuid in {device.uuid for tenant in shared for device in tenant.devices}
    }
    less = [
        tenant.name
        for tenant in shared
        if any(each.share_milli // 10 < most or each.memory_mib < largest[each.uuid] for each in tenant.devices)
    ]
    status = mps(tmp_path, LIVE).amend(GPUNodeStatus(), seen=seen(None, tenants=tuple(tenants)))
    said = status.enforcement.reasons.get("mps", "")
    named = said.rpartition(": ")[2].split(", ") if said else []
    assert sorted(each.rpartition("/")[2] for each in named) == sorted(less)
