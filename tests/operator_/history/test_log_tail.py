"""Whose log is kept with a record, and how much of it: from a plain list of pods and of lines."""

from random import Random
from typing import Any

import pytest

from dovetail.api.builtin import Pod
from dovetail.kube.errors import Unreachable
from dovetail.names import COMPLETION_INDEX as INDEX
from dovetail_operator.history.log_tail import LIMIT_BYTES, LINES, READ_BYTES, last_lines
from tests.operator_.builders import make_pod


class Kubelet:
    """The logs of pods by name; like kubelet it counts lines from the end, and bytes from there on."""

    def __init__(self, logs: dict[str, bytes]) -> None:
        self.logs = logs
        self.asked: list[tuple[str, str]] = []

    async def log(self, name: str, *, namespace: str, tail_lines: int, limit_bytes: int, **_: Any) -> bytes:
        self.asked.append((namespace, name))
        if name not in self.logs:
            raise Unreachable("kubelet", problem="it is gone")
        return b"".join(self.logs[name].splitlines(keepends=True)[-tail_lines:])[:limit_bytes]


def drawn(random: Random) -> list[Pod]:
    pods = []
    for number in range(random.randint(0, 5)):
        phase = random.choice(["Running", "Succeeded", "Succeeded", "Failed"])
        created = -500.0 + random.sample(range(100), k=1)[0] + number / 10
        meta = {"name": f"p{number}", "uid": f"uid-{number}"}
        pods.append(
            make_pod(random.randrange(4), phase=phase, node=random.choice(["n1", "n1", ""]), created=created, meta=meta)
        )
    return pods


def kept(pods: list[Pod]) -> set[str]:
    """The names of the pods of which one's log is kept: the newest that failed, else the first worker's."""
    over = [pod for pod in pods if pod.status.phase in {"Succeeded", "Failed"} and pod.spec.node_name]
    failed = sorted(
        (pod.metadata.creation_timestamp, pod.metadata.name) for pod in over if pod.status.phase == "Failed"
    )
    if failed:
        return {name for at, name in failed if at == failed[-1][0]}
    first = min((int(pod.metadata.annotations[INDEX]) for pod in over), default=None)
    return {pod.metadata.name for pod in over if int(pod.metadata.annotations[INDEX]) == first}


@pytest.mark.parametrize("seed", range(8))
async def test_the_log_is_that_of_the_worker_that_failed_last_or_else_of_the_first(seed: int) -> None:
    random = Random(seed)
    for _ in range(20):
        pods = drawn(random)
        kubelet: Any = Kubelet({pod.metadata.name: f"of {pod.metadata.name}\n".encode() for pod in pods})
        found = await last_lines(kubelet, pods=pods)
        assert found in ({f"of {name}\n" for name in kept(pods)} or {""})
        assert {namespace for namespace, _ in kubelet.asked} <= {"team"}


@pytest.mark.parametrize("longest", [10, 3000, READ_BYTES // 20, READ_BYTES])
async def test_the_end_of_a_log_is_kept_whatever_its_lines(longest: int) -> None:
    lines = [b"x" * (longest - 1) + b"\n" for _ in range(2 * LINES[0])]
    lines[-1] = b"the end\n"
    kubelet: Any = Kubelet({"p": b"".join(lines)})
    found = await last_lines(kubelet, pods=[make_pod(phase="Failed", meta={"name": "p"})])
    assert found.endswith("the end\n")
    assert b"".join(lines).decode().endswith(found)
    readable = max(size for count in LINES if (size := sum(map(len, lines[-count:]))) < READ_BYTES)
    assert len(found) == min(LIMIT_BYTES, readable)


async def test_of_a_line_that_is_longer_than_can_be_read_its_beginning_counts() -> None:
    text = b"begins" + b"x" * READ_BYTES + b"ends\n"
    kubelet: Any = Kubelet({"p": text})
    found = await last_lines(kubelet, pods=[make_pod(phase="Failed", meta={"name": "p"})])
    assert found == "x" * LIMIT_BYTES
    assert len(kubelet.asked) == len(LINES)


async def test_without_its_kubelet_a_job_has_no_log() -> None:
    kubelet: Any = Kubelet({})
    assert await last_lines(kubelet, pods=[make_pod(phase="Failed", meta={"name": "p"})]) == ""
