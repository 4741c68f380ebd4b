"""Processes on devices that nobody gave them: who counts as one, and what is made of it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.gpunode import GPUNode, GPUNodeStatus, Stranger
from dovetail.api.gpunodetenants import NodeTenant
from dovetail.api.meta import ObjectMeta, find_condition
from dovetail_agent.devices.model import DeviceInfo, DeviceSample, Inventory, Process, Sample
from dovetail_agent.feature.protocol import Seen
from dovetail_agent.guards.strangers_feature import GRACE, StrangersFeature, sentence, strangers_on
from dovetail_agent.report.node_status import readable
from tests.agent.builders import NOON, allocated, make_node, make_tenant
from tests.agent.devices.test_assignments import asking
from tests.agent.recorded import Recorded

CARD = DeviceInfo(index=0, uuid=allocated(0).uuid, vendor="nvidia", model="V100", memory_mib=32768)
OWNER = with_fields(make_tenant(allocated(0), uid="owner"), namespace="ml", name="train")
OTHER = with_fields(make_tenant(allocated(1), uid="other"), namespace="ml", name="other")
LOGIN = Process(pid=4242, used_mib=100)


def of(uid: str, *, pid: int = 7) -> Process:
    return Process(pid=pid, used_mib=100, pod_uid=uid)


def judged(*processes: Process, tenants: Sequence[NodeTenant] = (OWNER, OTHER), command: str = "") -> list[Stranger]:
    commands = {each.pid: command for each in processes}
    return list(strangers_on(CARD, processes=processes, tenants=tenants, commands=commands))


def test_the_pod_to_which_a_device_was_given_is_no_stranger_there() -> None:
    assert judged(of("owner")) == []


def test_a_process_of_no_pod_is_a_stranger() -> None:
    assert judged(LOGIN, command="python") == [Stranger(pid=4242, command="python")]


def test_a_pod_on_a_device_that_another_was_given_is_a_stranger_by_its_name() -> None:
    assert judged(of("other")) == [Stranger(pid=7, uid="other", pod="ml/other")]


def test_a_pod_that_is_gone_is_a_stranger_by_its_uid() -> None:
    assert judged(of("gone")) == [Stranger(pid=7, uid="gone")]


@pytest.mark.parametrize(
    ("process", "tenants", "command"),
    [
        pytest.param(
            LOGIN, [with_fields(OWNER, reservation=True)], "", id="who uses what a reservation keeps for others"
        ),
        pytest.param(of("asked"), [asking(1, uid="asked")], "", id="a pod of which kubelet has not said what it got"),
        pytest.param(LOGIN, [OWNER], "nvidia-cuda-mps", id="the server of MPS"),
    ],
)
def test_no_stranger_is(process: Process, tenants: list[NodeTenant], command: str) -> None:
    assert judged(process, tenants=tenants, command=command) == []


def test_what_a_reservation_keeps_elsewhere_excuses_nobody_here() -> None:
    assert judged(LOGIN, tenants=[OWNER, with_fields(OTHER, reservation=True)]) == [Stranger(pid=4242)]


def test_a_pod_on_several_devices_is_no_stranger_on_any_of_them() -> None:
    both = with_fields(OWNER, devices=[allocated(1), allocated(0)])
    assert judged(of("owner"), tenants=[both]) == []


def test_a_pod_of_which_kubelet_has_said_what_it_got_is_a_stranger_elsewhere() -> None:
    told = with_fields(asking(1, uid="asked"), devices=[allocated(1)], namespace="ml", name="asked")
    assert judged(of("asked"), tenants=[told]) == [Stranger(pid=7, uid="asked", pod="ml/asked")]


def test_every_stranger_on_a_device_is_named() -> None:
    found = judged(of("owner", pid=1), of("other", pid=2), LOGIN, of("gone", pid=3))
    assert [each.pid for each in found] == [2, 4242, 3]


@pytest.mark.parametrize(
    ("stranger", "tainted", "text"),
    [
        (Stranger(pid=7), False, "process 7 of no pod uses GPU 0"),
        (Stranger(pid=7, command="python"), False, "process 7 (python) of no pod uses GPU 0"),
        (
            Stranger(pid=7, uid="u", pod="ml/a"),
            False,
            "process 7 of pod ml/a uses GPU 0, which the pod was not given",
        ),
        (
            Stranger(pid=7, uid="u"),
            True,
            "process 7 of a pod that has ended or is not known (UID u) uses GPU 0; it takes no new work meanwhile",
        ),
    ],
)
def test_a_sentence_names_the_process_its_pod_and_the_device(stranger: Stranger, tainted: bool, text: str) -> None:
    assert sentence(stranger, called="GPU 0", tainted=tainted) == text


INVENTORY = Inventory(devices=(CARD,))


def seen(
    *processes: Process,
    later: timedelta = timedelta(0),
    reported: GPUNodeStatus | None = None,
    answers: int | None = None,
) -> Seen:
    uses = {each.pod_uid: each.used_mib or 0 for each in processes if each.pod_uid}
    sample = Sample(devices=(DeviceSample(used_mib=100, used_by_tenant_mib=uses, processes=processes),))
    gpunode = None if reported is None else GPUNode(metadata=ObjectMeta(name="v100-0"), status=reported)
    return Seen(
        node=make_node(),
        now=NOON + later,
        gpunode=gpunode,
        tenants=(OWNER, OTHER),
        inventory=INVENTORY,
        sample=sample,
        answers=answers,
    )


def watching(tmp_path: Path, *, policy: Any = "Taint", recorded: Recorded | None = None) -> StrangersFeature:
    return StrangersFeature(recorded or Recorded(), policy=policy, proc=tmp_path)


def amended(feature: StrangersFeature, look: Seen) -> GPUNodeStatus:
    assert look.inventory is not None
    assert look.sample is not None
    plain = readable(
        look.inventory, sample=look.sample, provider="nvml", tenants=look.tenants, previous=look.previous, now=look.now
    )
    return feature.amend(plain, seen=look)


def test_who_is_seen_but_once_is_not_told(tmp_path: Path) -> None:
    (device,) = amended(watching(tmp_path), seen(LOGIN)).devices
    assert (device.strangers, device.taint) == ([], "")


def test_who_is_seen_again_after_the_grace_is_told_and_the_device_takes_no_new_work(tmp_path: Path) -> None:
    feature = watching(tmp_path)
    amended(feature, seen(LOGIN))
    (device,) = amended(feature, seen(LOGIN, later=GRACE)).devices
    assert ([each.pid for each in device.strangers], device.taint) == ([4242], "Strangers")


def test_where_strangers_are_only_reported_the_device_goes_on_taking_work(tmp_path: Path) -> None:
    feature = watching(tmp_path, policy="Report")
    amended(feature, seen(LOGIN))
    (device,) = amended(feature, seen(LOGIN, later=GRACE)).devices
    assert ([each.pid for each in device.strangers], device.taint) == ([4242], "")


def test_the_taint_goes_with_the_stranger(tmp_path: Path) -> None:
    feature = watching(tmp_path)
    amended(feature, seen(LOGIN))
    reported = amended(feature, seen(LOGIN, later=GRACE))
    (device,) = amended(feature, seen(later=2 * GRACE, reported=reported)).devices
    assert (device.strangers, device.taint) == ([], "")


def test_an_agent_that_starts_anew_believes_the_last_report(tmp_path: Path) -> None:
    first = watching(tmp_path)
    amended(first, seen(LOGIN))
    reported = amended(first, seen(LOGIN, later=GRACE))
    (device,) = amended(watching(tmp_path), seen(LOGIN, reported=reported)).devices
    assert device.taint == "Strangers"


async def test_news_is_told_of_the_node_and_of_the_pod_and_what_is_known_is_not_told_again(tmp_path: Path) -> None:
    recorded = Recorded()
    feature = watching(tmp_path, recorded=recorded)
    amended(feature, seen(of("other")))
    look = seen(of("other"), later=GRACE)
    status = amended(feature, look)
    await feature.act(look, status=status)
    await feature.act(seen(of("other"), later=2 * GRACE, reported=status), status=status)
    sentence = (
        f"process 7 of pod ml/other uses GPU 0 ({CARD.uuid}) of v100-0, which the pod was not given; "
        "it takes no new work meanwhile"
    )
    assert recorded.about("Node") == [("v100-0", "StrangerOnGPU")]
    assert recorded.about("Pod") == [("other", "NotItsGPU")]
    assert {each.message for each in recorded.events} == {sentence}


async def test_a_second_look_is_asked_for_when_the_grace_is_over(tmp_path: Path) -> None:
    feature = StrangersFeature(Recorded(), policy="Taint", proc=tmp_path, grace=timedelta(0))
    woken = asyncio.Event()
    task = asyncio.create_task(feature.run(woken.set))
    amended(feature, seen(LOGIN))
    async with asyncio.timeout(60):
        await woken.wait()
    task.cancel()


@pytest.mark.parametrize(("uses", "status"), [({}, "True"), (None, "False")])
def test_the_report_says_whether_processes_are_told_apart(
    tmp_path: Path, uses: dict[str, int] | None, status: str
) -> None:
    look = replace(seen(), sample=Sample(devices=(DeviceSample(used_mib=5, used_by_tenant_mib=uses),)))
    told = find_condition(amended(watching(tmp_path), look).conditions, type="ProcessesSeen")
    assert told is not None
    assert told.status == status


def test_what_strangers_there_are_is_a_metric(tmp_path: Path) -> None:
    feature = watching(tmp_path)
    amended(feature, seen(LOGIN, of("gone")))
    amended(feature, seen(LOGIN, of("gone"), later=GRACE))
    values = {sample.name: sample.value for metric in feature.metrics() for sample in metric.samples}
    assert values == {"dovetail_device_strangers": 2, "dovetail_device_tainted": 1}


@pytest.mark.parametrize("process", [LOGIN, of("new"), of("other")], ids=["of no pod", "of a new pod", "of another"])
def test_nobody_is_a_stranger_while_the_operator_has_not_answered(tmp_path: Path, process: Process) -> None:
    feature, reported = watching(tmp_path), None
    for looks in range(10):
        reported = amended(feature, seen(process, later=looks * GRACE, reported=reported, answers=0))
        assert (reported.devices[0].strangers, reported.devices[0].taint) == ([], "")
    assert reported is not None
    assert reported.tenants_asked == 1


def test_who_is_no_tenant_in_the_answer_is_a_stranger_after_the_grace(tmp_path: Path) -> None:
    feature = watching(tmp_path)
    asked = amended(feature, seen(of("gone"), answers=4))
    assert asked.tenants_asked == 5
    early = amended(feature, seen(of("gone"), later=GRACE / 2, reported=asked, answers=5))
    assert early.devices[0].strangers == []
    (device,) = amended(feature, seen(of("gone"), later=GRACE, reported=early, answers=5)).devices
    assert [each.uid for each in device.strangers] == ["gone"]


def test_an_answer_to_an_earlier_question_convicts_nobody_who_came_later(tmp_path: Path) -> None:
    feature = watching(tmp_path)
    first = amended(feature, seen(LOGIN, answers=0))
    both = amended(feature, seen(LOGIN, of("new"), later=GRACE, reported=first, answers=0))
    assert (first.tenants_asked, both.tenants_asked) == (1, 2)
    answered = amended(feature, seen(LOGIN, of("new"), later=3 * GRACE, reported=both, answers=1))
    assert [each.pid for each in answered.devices[0].strangers] == [4242]
    assert answered.tenants_asked == 2


def test_a_question_is_asked_once_and_not_again_when_all_is_well(tmp_path: Path) -> None:
    feature = watching(tmp_path)
    asked = amended(feature, seen(of("new"), answers=0))
    later = amended(feature, seen(of("owner"), later=GRACE, reported=asked, answers=1))
    assert (asked.tenants_asked, later.tenants_asked) == (1, 1)


def test_a_new_agent_asks_a_new_question(tmp_path: Path) -> None:
    asked = amended(watching(tmp_path), seen(of("new"), answers=0))
    again = amended(watching(tmp_path), seen(of("new"), later=GRACE, reported=asked, answers=1))
    assert (again.tenants_asked, again.devices[0].strangers) == (2, [])
