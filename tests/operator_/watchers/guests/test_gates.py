"""The gates of the pods of a group, however many name it."""

from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.api.builtin import Pod
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import job_of
from dovetail.api.meta import key_of
from dovetail.decoding import convert
from dovetail.jobs.guests.pod_group import POD_GROUPS, PodGroup, group_of
from dovetail.jobs.guests.record import record_of
from dovetail_operator.watchers.guests.directory import Known
from dovetail_operator.watchers.guests.gates import Gates
from tests.core.jobs.guests.test_pod_group import pod


def test_which_pods_are_a_group_s_own_is_asked_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked for each pod: thousands of surplus ones kept the operator busy at each event."""
    asked = list[PodGroup]()

    def member_uids(group: PodGroup) -> frozenset[str]:
        asked.append(group)
        return frozenset(each.uid for each in group.members)

    monkeypatch.setattr(PodGroup, "member_uids", property(member_uids))
    named = [pod(f"a-{index}") for index in range(6)]
    group = group_of(named)
    assert group is not None
    pods = {key_of(each.metadata): convert(values_of(each), as_type=Pod) for each in named}
    state: Any = SimpleNamespace()
    client: Any = SimpleNamespace()
    gates, found = Gates(client, state=state, pods=pods), Known(guest=group, kind=POD_GROUPS)
    for each in pods.values():
        gates.pod_event("ADDED", each, key=found.key)
    asked.clear()
    unseated = gates.unseated(found, record=job_of(record_of(group, kind=POD_GROUPS)))
    assert [each.metadata.name for each in unseated] == ["a-0", "a-1"]
    assert len(asked) == 1
