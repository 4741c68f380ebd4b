"""GPUs that the operator asks an agent to partition again: done once, reported with the new instances, and survived."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace as with_fields

from dovetail.api.resources import GPUNODES
from dovetail.cluster.node_tenants import tenant_of_pod
from dovetail_agent.devices.simulated.provider import SimulatedProvider, device_uuid
from dovetail_agent.reshape.feature import ReshapeFeature
from tests import virtual_time
from tests.agent.builders import allocated, make_node, make_pod
from tests.agent.cluster import NODE, Cluster
from tests.faults import Effects, Killed, at_each_effect

GPUS = {"model": "A100", "count": 2, "memoryMiB": 40960, "mig": ["7x1g.5gb", "7x1g.5gb"]}
FIRST, SECOND = (device_uuid(NODE, index=index) for index in (0, 1))
NOON, LATER = "2026-11-21T12:00:00Z", "2026-11-21T13:00:00Z"


class Cards(SimulatedProvider):
    """GPUs that outlive the agent; each time one is partitioned is an effect."""

    def __init__(self, effects: Effects) -> None:
        super().__init__()
        self.effects = effects
        self.done: list[str] = []

    async def reshape(self, node: Any, *, card: str, profiles: Any) -> str:
        def change() -> str:
            self.done.append(card)
            try:
                SimulatedProvider.reshape(self, node, card=card, profiles=profiles).send(None)
            except StopIteration as end:
                return str(end.value)
            raise AssertionError

        return str(self.effects.around("reshape", change)())


class Scene:
    """A node with two GPUs in MIG mode, their driver, and an agent after the other."""

    def __init__(self, effects: Effects | None = None) -> None:
        self.effects = effects or Effects()
        self.cluster, self.cards = Cluster(self.effects), Cards(self.effects)
        self.cluster.node(devices=GPUS)
        self.cluster.tenants()

    def request(self, *cards: str, drained: bool = True, at: str = NOON, profile: str = "3g.20gb") -> None:
        """What the operator asks."""
        asked = {"profiles": [profile] * 2, "requestedTime": at, "job": "u", "drained": drained}
        self.cluster.put(GPUNODES, NODE, spec={"reshape": dict.fromkeys(cards, asked)})

    def serve(self) -> None:
        """One agent for some seconds."""

        async def play() -> None:
            async with asyncio.TaskGroup() as group:
                agent = self.cluster.agent(ReshapeFeature(self.cards), provider=self.cards)
                serving = group.create_task(agent.run())
                await asyncio.sleep(5)
                serving.cancel()

        try:
            virtual_time.run(play())
        except* Killed as errors:
            raise Killed from errors

    def answers(self) -> dict[str, tuple[str | None, str]]:
        cards = self.cluster.of(GPUNODES)["status"]["reshapable"]
        return {card["uuid"]: (card.get("answered"), card["problem"]) for card in cards}

    def profiles(self, card: str = FIRST) -> list[str]:
        devices = self.cluster.of(GPUNODES)["status"]["devices"]
        return [device["migProfile"] for device in devices if device["parent"] == card]


def test_a_drained_request_is_carried_out_once_and_answered_with_the_new_instances() -> None:
    scene = Scene()
    scene.request(FIRST)
    for _ in range(2):  # a second agent finds it answered
        scene.serve()
        assert scene.cards.done == [FIRST]
        assert scene.answers() == {FIRST: (NOON, ""), SECOND: (None, "")}
        assert (scene.profiles(), len(scene.profiles(SECOND))) == (["3g.20gb"] * 2, 7)
    scene.request(FIRST, at=LATER, profile="2g.10gb")
    scene.serve()
    assert (scene.cards.done, scene.answers()[FIRST]) == ([FIRST, FIRST], (LATER, ""))


def test_a_request_that_is_not_drained_is_left_alone() -> None:
    scene = Scene()
    scene.request(FIRST, drained=False)
    scene.serve()
    assert (scene.cards.done, scene.answers()[FIRST]) == ([], (None, ""))


@pytest.mark.parametrize(("on", "refused"), [(FIRST, True), (SECOND, False)])
def test_a_gpu_with_a_pod_on_an_instance_is_not_touched(on: str, *, refused: bool) -> None:
    scene = Scene()
    devices = scene.cards.inventory(make_node(devices=GPUS)).devices
    instance = next(device for device in devices if device.parent == on)
    promised = with_fields(allocated(instance.index), uuid=instance.uuid)
    scene.cluster.tenants(tenant_of_pod(make_pod(promised)))
    scene.request(FIRST)
    scene.serve()
    assert scene.cards.done == ([] if refused else [FIRST])
    assert scene.answers()[FIRST] == (NOON, "a pod has an instance of the GPU" if refused else "")


def test_what_cannot_be_done_is_answered_with_the_problem_and_not_tried_again() -> None:
    scene = Scene()
    scene.request(FIRST, profile="7g.40gb")
    scene.serve()
    scene.serve()
    assert scene.cards.done == [FIRST]
    assert scene.answers()[FIRST] == (NOON, "2 x 7g.40gb do not fit on the GPU together")


def test_an_agent_that_is_killed_at_any_effect_leaves_the_request_to_the_next_one() -> None:
    def make(effects: Effects) -> Scene:
        scene = Scene(effects)
        scene.request(FIRST, SECOND)
        return scene

    def safe(scene: Scene) -> None:
        status = scene.cluster.of(GPUNODES).get("status")
        for uuid, (answered, _) in scene.answers().items() if status else ():
            assert not answered or scene.profiles(uuid) == ["3g.20gb"] * 2, "answered with the instances from before"

    def end(scene: Scene) -> object:
        return scene.answers(), scene.profiles(FIRST), scene.profiles(SECOND)

    assert at_each_effect(make, journey=Scene.serve, end=end, restart=lambda scene: scene, safe=safe) > 4
