"""A bind that takes MIG instances reads the GPUNode first: its GPU may be about to be partitioned again."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Pod
from dovetail.api.gpunode import GPUNode
from dovetail.kube.errors import DeadlineExceeded, KubeError
from dovetail_extender.bind.binder import Binder, Outcome
from dovetail_extender.protocol import BindingArgs
from tests.extender.bind.test_binder_rules import DEADLINE, Office, Pods
from tests.extender.builders import make_gpunode, make_pod
from tests.extender.desk import Desk, NoJobs

REQUESTED = {"profiles": ["3g.40gb"], "requestedTime": "2026-01-01T12:00:00Z"}


def partitioned(
    spec: dict[str, Any] | None = None, *, first: int = 0, parents: tuple[str, str] = ("GPU-a", "GPU-a")
) -> GPUNode:
    """A GPU with two instances, or two with one."""
    gpunode = make_gpunode("a", gpus=2, migProfile="1g.10gb", parent="GPU-a")
    for at, device in enumerate(gpunode["status"]["devices"], start=first):
        device |= {"uuid": f"MIG-{at}", "model": "V100 MIG 1g.10gb", "parent": parents[at - first]}
    return msgspec.convert(gpunode | {"spec": spec or {}}, GPUNode)


@dataclass(kw_only=True)
class GPUNodes:
    found: GPUNode | KubeError
    deadlines: list[float] = field(default_factory=list)

    async def read_gpunode(self, *, name: str, deadline_seconds: float) -> GPUNode:
        assert name == "a"
        self.deadlines.append(deadline_seconds)
        if isinstance(self.found, KubeError):
            raise self.found
        return self.found


class Scene:
    """The watch shows two free instances, whatever the API server has."""

    def __init__(self, found: GPUNode | KubeError, *, request: str = "1g.10gb") -> None:
        self.desk = Desk(a=2)
        if request != "1":
            self.desk.view.gpunode_changed(partitioned())
        self.gpunodes = GPUNodes(found=found)
        milli = 2000 if request.startswith("2x") else 1000
        self.pods = Pods(found=msgspec.convert(make_pod("p", request, milli=milli), Pod))
        self.binder = Binder(
            ledger=self.desk.ledger, pods=self.pods, jobs=NoJobs(), gpunodes=self.gpunodes, office=Office(),
            decisions=self.desk.decisions, deadline_seconds=DEADLINE, clock=self.desk.clock,
        )  # fmt: skip

    async def bind(self) -> Outcome:
        return await self.binder.bind(BindingArgs(pod_name="p", pod_namespace="default", pod_uid="uid-p", node="a"))


async def test_an_instance_is_bound_after_a_read_within_the_bind() -> None:
    scene = Scene(partitioned())
    assert (await scene.bind()).result == "bound"
    assert (len(scene.pods.writes), scene.gpunodes.deadlines) == (1, [DEADLINE / 2])


@pytest.mark.parametrize(
    ("found", "says"),
    [
        pytest.param(
            partitioned({"reshape": {"GPU-a": REQUESTED}}), "a GPU of node a is being partitioned again: MIG-",
            id="the watch has not brought the request",
        ),
        pytest.param(partitioned(first=2), "is being partitioned again", id="the watch is behind"),
        pytest.param(
            DeadlineExceeded("here", deadline_seconds=DEADLINE), "the node's GPUNode cannot be read", id="no answer"
        ),
    ],
)  # fmt: skip
async def test_no_instance_is_bound_that_may_be_about_to_go(found: GPUNode | KubeError, says: str) -> None:
    scene = Scene(found)
    outcome = await scene.bind()
    assert outcome.result == "failed"
    assert says in outcome.error
    assert (scene.pods.writes, scene.desk.held("uid-p")) == ([], [""])


@pytest.mark.parametrize("parents", [("GPU-a", "GPU-b"), ("GPU-b", "GPU-a")])
async def test_one_instance_that_may_be_about_to_go_is_enough(parents: tuple[str, str]) -> None:
    scene = Scene(partitioned({"reshape": {"GPU-a": REQUESTED}}, parents=parents), request="2x1g.10gb")
    outcome = await scene.bind()
    assert (outcome.result, "is being partitioned again" in outcome.error) == ("failed", True)
    assert scene.pods.writes == []


async def test_a_gpu_is_bound_without_a_read() -> None:
    scene = Scene(DeadlineExceeded("here", deadline_seconds=DEADLINE), request="1")
    assert (await scene.bind()).result == "bound"
    assert scene.gpunodes.deadlines == []


def test_the_instances_of_a_requested_gpu_take_no_new_pods() -> None:
    desk = Desk(a=2)
    desk.view.gpunode_changed(partitioned({"reshape": {"GPU-a": REQUESTED}}))
    assert desk.filter(make_pod("p", "1g.10gb"), "a") == []
    desk.view.gpunode_changed(partitioned())
    assert desk.filter(make_pod("p", "1g.10gb"), "a") == ["a"]
