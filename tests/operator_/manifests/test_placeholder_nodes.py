"""A placeholder may go exactly to the new nodes of its pool to which its worker may go, whatever the pod spec says."""

from dataclasses import replace
from itertools import product
from random import Random
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Node
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.pods.demand import ask_of_job
from dovetail.pods.node_affinity import admits
from dovetail.queue.growing.pools import GrowingPool
from dovetail_operator.manifests.placeholder import pod_template
from tests.operator_.builders import make_job
from tests.seeds import seeds

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
LABELS: Final = {"zone": ("y", "z", None), "disk": ("ssd", None), "pool": ("v100", "a100")}
TAINTS: Final = (None, {"key": "gpu", "value": "yes", "effect": "NoSchedule"})
OLD: Final = ("n0", "n7")


def nodes() -> list[Node]:
    """One of each combination of labels and taints."""
    found = []
    for number, (taint, *values) in enumerate(product(TAINTS, *LABELS.values())):
        labels = {label: value for label, value in zip(LABELS, values, strict=True) if value is not None}
        metadata = {"name": f"n{number}", "labels": labels | {"kubernetes.io/hostname": f"n{number}"}}
        found.append(msgspec.convert({"metadata": metadata, "spec": {"taints": [taint] if taint else []}}, Node))
    return found


def draw_spec(random: Random) -> dict[str, Any]:
    """A pod spec with any of the constraints."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "image": "train:1"}]}
    affinity: dict[str, Any] = {}
    if random.random() < 0.5:
        spec["nodeSelector"] = {"zone": random.choice(["y", "z"])}
    if random.random() < 0.5:
        spec["tolerations"] = [{"key": random.choice(["gpu", "other"]), "operator": "Exists"}]
    of_nodes: dict[str, Any] = {}
    if random.random() < 0.7:
        of_nodes[REQUIRED] = {"nodeSelectorTerms": [_term(random) for _ in range(random.randint(1, 2))]}
    if random.random() < 0.3:
        of_nodes[PREFERRED] = [{"weight": 1, "preference": _term(random)}]
    if of_nodes:
        affinity["nodeAffinity"] = of_nodes
    if random.random() < 0.3:
        affinity["podAffinity"] = {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}]}
    return spec | ({"affinity": affinity} if affinity else {})


def _term(random: Random) -> dict[str, Any]:
    label = random.choice(["zone", "disk"])
    expression = random.choice(
        [
            {"key": label, "operator": "In", "values": ["z", "ssd"]},
            {"key": label, "operator": "NotIn", "values": ["z", "ssd"]},
            {"key": label, "operator": random.choice(["Exists", "DoesNotExist"])},
        ]
    )
    if random.random() < 0.2:
        return {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["n1", "n2"]}]}
    return {"matchExpressions": [expression]}


@seeds(120)
def test_a_placeholder_goes_where_its_worker_may_go(seed: int) -> None:
    random = Random(seed)
    spec, apart, besides = draw_spec(random), random.random() < 0.5, random.choice([(), OLD])
    pool = GrowingPool(
        name="v100", labels={"pool": "v100"}, max_nodes=4, gpus=8, model="V100", gpu_memory_mib=32768,
        cpu_milli=64_000, memory_mib=262_144,
    )  # fmt: skip
    job = make_job(gpu=2, workers=2, template={"spec": spec})
    ask = replace(ask_of_job(job, ranking=DEFAULT_RANKING), apart=apart)
    before = msgspec.json.encode(spec)
    made = pod_template(job, ask=ask, pool=pool, spec=spec, besides=besides)
    assert msgspec.json.encode(spec) == before, "what others read stays as it is"
    want = {
        node.metadata.name
        for node in nodes()
        if admits(node, pod_spec=spec) and node.metadata.labels["pool"] == "v100" and node.metadata.name not in besides
    }
    assert {node.metadata.name for node in nodes() if admits(node, pod_spec=made["spec"])} == want
    rules = made["spec"].get("affinity", {}).get("podAntiAffinity", {}).get(REQUIRED, [])
    assert [rule["topologyKey"] for rule in rules] == (["kubernetes.io/hostname"] if apart else [])
    assert all(rule["labelSelector"]["matchLabels"] == made["metadata"]["labels"] for rule in rules)
