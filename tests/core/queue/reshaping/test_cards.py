"""GPUs in MIG mode as their node's report and the requests say, and what people read about a change."""

from datetime import UTC, datetime

import msgspec

from dovetail.api.gpunode import GPUNode
from dovetail.queue.reshaping.cards import Instance, cards_of
from dovetail.queue.reshaping.messages import clause_of

REQUEST = {"profiles": ["3g.40gb", "1g.10gb"], "requestedTime": "2026-03-01T12:00:00Z", "job": "uid-x"}
OTHER = REQUEST | {"profiles": ["7g.80gb"], "job": "uid-y"}
SLOTS = [{"profile": "1g.10gb", "size": 1, "starts": [0, 1], "count": 7}]


def device(index: int, parent: str, **more: object) -> dict[str, object]:
    made = {"index": index, "uuid": f"MIG-{index}", "vendor": "nvidia", "model": "H100", "memoryMiB": 10240}
    return made | {"parent": parent, "migProfile": "1g.10gb"} | more


def node(name: str = "n", **reshape: object) -> GPUNode:
    """Two GPUs in MIG mode, and a third one that is not."""
    cards = [
        {"uuid": "GPU-0", "index": 0, "model": "H100", "slots": SLOTS},
        {"uuid": "GPU-1", "index": 1, "model": "H100", "slots": SLOTS, "answered": "2026-03-01T10:00:00Z",
         "finishedTime": "2026-03-01T10:01:00Z", "problem": "busy"},
    ]  # fmt: skip
    devices = [
        device(0, "GPU-0"),
        device(1, "GPU-1"),
        device(2, "GPU-1", health="Unhealthy"),
        device(3, "", migProfile="", uuid="GPU-2"),
        device(4, "GPU-1"),
    ]
    spec = {"reshape": {f"GPU-{name.removeprefix('gpu_')}": each for name, each in reshape.items()},
            "cordoned": ["MIG-4"]}  # fmt: skip
    status = {"devices": devices, "reshapable": cards}
    return msgspec.convert({"metadata": {"name": name}, "spec": spec, "status": status}, GPUNode)


def test_each_card_has_its_own_instances_and_its_own_request() -> None:
    first, second = cards_of(node(gpu_1=REQUEST))
    assert [each.uuid for each in first.instances] == ["MIG-0"]
    assert first.instances == (Instance(uuid="MIG-0", profile="1g.10gb"),)
    assert [(each.uuid, each.usable) for each in second.instances] == [
        ("MIG-1", True), ("MIG-2", False), ("MIG-4", False),
    ]  # fmt: skip
    assert first.request is None
    assert second.request is not None
    assert second.request.job == "uid-x"
    assert (first.answered, first.finished, first.problem) == ("", None, "")
    assert (second.answered, second.problem) == ("2026-03-01T10:00:00Z", "busy")
    assert second.finished == datetime(2026, 3, 1, 10, 1, tzinfo=UTC)
    assert [(slot.profile, slot.size, slot.starts, slot.count) for slot in first.slots] == [("1g.10gb", 1, (0, 1), 7)]
    assert (first.name, second.name) == ("GPU 0 of node n", "GPU 1 of node n")


def test_a_job_reads_of_the_gpus_that_change_for_it_and_of_no_others() -> None:
    cards = {name: cards_of(node(name, gpu_0=REQUEST, gpu_1=OTHER)) for name in ("n", "m")}
    change = "into 3g.40gb + 1g.10gb"
    assert clause_of("uid-x", cards=cards, problem="").message == (
        f"; reshaping GPU 0 of node n {change}; reshaping GPU 0 of node m {change}"
    )
    assert clause_of("uid-z", cards=cards, problem="").message == ""
    assert clause_of("uid-z", cards=cards, problem="GPU 0 failed: busy").message == "; GPU 0 failed: busy"
    assert clause_of("", cards={"n": cards_of(node())}, problem="").message == ""
