"""The tree of devices that the gateway prints at its start."""

import json

from dovetail.api.gpujob import GPUJob
from dovetail.decoding import decode
from dovetail_gateway.v2.device_tree import MOST_NODES, device_tree
from tests.gateway.builders import make_job
from tests.gateway.test_v1 import use_of


def running_on(index: int, *, workload: str) -> GPUJob:
    device = {"worker": 0, "node": "a", "index": index, "uuid": f"a-{index}", "shareMilli": 500, "memoryMiB": 1024}
    job = make_job(f"j{index}", namespace="red", workload=workload, status={"phase": "Running", "devices": [device]})
    return decode(json.dumps(job), as_type=GPUJob)


def test_each_device_shows_what_it_is_and_does() -> None:
    node = use_of("a", gpus=2)
    printed = device_tree([node], jobs=[running_on(1, workload="Training"), running_on(1, workload="Inference")])
    assert printed.splitlines() == [
        "a",
        "├── 0: V100",
        "│   ├── memory 32768 MiB: used 0 MiB (0.0%), free 32768 MiB (100.0%)",
        "│   ├── temperature not reported, power not reported, utilization 0%",
        "│   └── tasks: 0 training, 0 inference",
        "└── 1: V100",
        "    ├── memory 32768 MiB: used 0 MiB (0.0%), free 32768 MiB (100.0%)",
        "    ├── temperature not reported, power not reported, utilization 0%",
        "    └── tasks: 1 training, 1 inference",
    ]


def test_a_large_cluster_shows_its_first_nodes() -> None:
    nodes = [use_of(f"n{at}", gpus=1) for at in range(MOST_NODES + 2)]
    assert device_tree(nodes, jobs=[]).splitlines()[-1] == "… and 2 more nodes: GET /api/v2/resources/gpu"


def test_a_cluster_without_gpus_says_so() -> None:
    assert device_tree([use_of("a", gpus=0)], jobs=[]) == "this cluster has no GPUs"
