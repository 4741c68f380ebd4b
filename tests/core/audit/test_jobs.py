"""What a job's pods hold, against what the job requests."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.audit.allocations import LAGGING, Rules, audit
from tests.cli.builders import make_gpunode, make_job, make_node, make_pod

WHOLE = ((0, 1000, 32768),)
BOTH = ((0, 1000, 32768), (1, 1000, 32768))


def worker(name: str, *, held: tuple[tuple[int, int, int], ...] = WHOLE, job: str = "train", **changes: Any) -> Pod:
    """A pod of the job that holds these devices of node a."""
    labels = {names.LABEL_JOB: job}
    milli = sum(share for _, share, _ in held)
    return make_pod(name, held=held, asks={names.GPU_MILLI: str(milli)}, labels=labels, **changes)


def seated(name: str, *, held: tuple[tuple[int, int, int], ...], request: str) -> Pod:
    """A guest's pod in its seat, with a request of its own."""
    pod = worker(name, held=held, request=request)
    meta = msgspec.structs.replace(
        pod.metadata, owner_references=[], annotations={**pod.metadata.annotations, names.SEAT: "uid-of-train/0"}
    )
    return msgspec.structs.replace(pod, metadata=meta)


def leaving(pod: Pod) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-11-21T12:00:00Z")
    return msgspec.structs.replace(pod, metadata=meta)


def job(*, phase: str = "Running", placement: dict[str, Any] | None = None, **spec: Any) -> GPUJob:
    plain = make_job(phase=phase)
    changed = msgspec.convert({"gpu": 1, **spec}, type(plain.spec), strict=False)
    status = msgspec.convert({"phase": phase, "placement": placement}, type(plain.status))
    return msgspec.structs.replace(plain, spec=changed, status=status)


def found(record: GPUJob, *pods: Pod) -> list[tuple[str, str]]:
    report = audit(nodes=[make_node("a")], gpunodes=[make_gpunode("a")], pods=pods, jobs=[record], rules=Rules())
    return [(each.kind, each.message) for each in report.items if each.kind in LAGGING]


@pytest.mark.parametrize(
    ("record", "pods"),
    [
        pytest.param(job(), [worker("p")], id="as requested"),
        pytest.param(job(gpu="0.5"), [worker("p", held=((0, 500, 13107),), mode="Fractional")], id="a share"),
        pytest.param(job(gpu=2, workers=3), [worker(n, held=BOTH) for n in "pqr"], id="several workers"),
        pytest.param(job(workers=2), [worker("p")], id="fewer workers, as an elastic job has"),
        pytest.param(job(), [worker("p"), leaving(worker("q"))], id="the worker's next pod, while the last one ends"),
        pytest.param(job(), [worker("p"), worker("q", phase="Failed")], id="the worker's next pod after a failure"),
        pytest.param(job(phase="Succeeded"), [worker("p"), worker("q")], id="a job that has ended"),
        pytest.param(job(), [worker("p"), worker("q", job="other")], id="pods of another job"),
        pytest.param(job(resources={"count": 2}, gpu=None), [worker("p", held=BOTH)], id="the structured form"),
        pytest.param(job(gpu="8G,0.5"), [worker("p", held=((0, 500, 8192),), mode="Fractional")], id="memory"),
        pytest.param(
            job(
                gpu="0.5",
                placement={
                    "generation": 1, "nodes": [{"name": "a", "workers": 1}],
                    "worker": {"request": "20G,0.5", "mode": "Fractional"},
                },
            ),
            [worker("p", held=((0, 500, 20480),), mode="Fractional")],
            id="memory that the queue has learned",
        ),
    ],
)  # fmt: skip
def test_a_job_that_holds_what_it_requests_is_clean(record: GPUJob, pods: list[Pod]) -> None:
    assert found(record, *pods) == []


@pytest.mark.parametrize(
    ("record", "pods", "message"),
    [
        pytest.param(
            job(gpu="0.1"),
            [seated("big", held=BOTH, request="2")],
            "its pod big holds 2 GPUs, but each of its workers requests 0.1 GPU on 1 device",
            id="a pod in a guest's seat",
        ),
        pytest.param(
            job(gpu=1), [worker("p", held=BOTH)], "its pod p holds 2 GPUs, but each of its workers requests 1 GPU",
            id="more devices",
        ),
        pytest.param(
            job(gpu="0.5"),
            [worker("p", held=((0, 600, 100),), mode="Fractional")],
            "its pod p holds 0.6 GPU on 1 device, but each of its workers requests 0.5 GPU on 1 device",
            id="a larger share",
        ),
        pytest.param(
            job(),
            [worker("p"), worker("q", held=((1, 1000, 32768),))],
            "2 pods of it hold GPUs, but the number of its workers is 1: p, q",
            id="more pods than workers",
        ),
        pytest.param(
            job(gpu=None, resources={"device": "cpu"}),
            [worker("p")],
            "its pod p holds 1 GPU, but each of its workers requests 0 GPUs",
            id="a job on the CPU",
        ),
        pytest.param(
            job(gpu="8G,0.5"),
            [worker("p", held=((0, 500, 8193),), mode="Fractional")],
            "its pod p holds 8193 MiB of device 0, but each of its workers requests 8192",
            id="more memory than requested",
        ),
        pytest.param(
            job(gpu="0.5"),
            [worker("p", held=((0, 500, 16385),), mode="Fractional")],
            "its pod p holds 16385 MiB of device 0, but each of its workers requests 16384",
            id="more memory than its share of the device",
        ),
    ],
)  # fmt: skip
def test_a_job_that_holds_more_than_it_requests_is_found(record: GPUJob, pods: list[Pod], message: str) -> None:
    assert found(record, *pods) == [("HoldsMoreThanAsked", message)]


def test_a_vendors_pod_counts_by_what_it_requests_of_the_plugin() -> None:
    pod = make_pod("p", asks={"nvidia.com/gpu": "2"}, labels={names.LABEL_JOB: "train"})
    assert found(job(gpu=2), pod) == []
    assert found(job(gpu=1), pod) == [
        ("HoldsMoreThanAsked", "its pod p holds 2 GPUs, but each of its workers requests 1 GPU")
    ]
