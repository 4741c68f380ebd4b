"""Questions on small clusters: a test names only what matters to it."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dovetail.answers.explain.question import Holder, Question
from dovetail.answers.explain.remedies import changes
from dovetail.answers.questions import ExplainedChange
from dovetail.api.builtin import Node
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.claims import Ask
from tests.core.engine.builders import make_device

TAINT = {"key": "team", "value": "vision", "effect": "NoSchedule"}


def make_node(
    name: str, *, cordoned: bool = False, ready: bool = True, cpu: str = "64", taint: bool = False, **labels: str
) -> Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {"dovetail.dev/managed": "true", **labels}},
            "spec": {"unschedulable": cordoned, "taints": [TAINT] if taint else []},
            "status": {
                "allocatable": {"cpu": cpu, "memory": "256Gi"},
                "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            },
        },
        Node,
    )


class Cluster:
    """A view that is built up node by node."""

    def __init__(self) -> None:
        self.view = ClusterView(ledger=Ledger())

    @property
    def ledger(self) -> Ledger:
        return self.view.ledger

    def add(self, node: Node, *, gpus: int = 2, model: str = "V100", **device: Any) -> "Cluster":
        name = node.metadata.name
        self.view.node_changed(node)
        devices = [make_device(name, index, model=model, **device) for index in range(gpus)]
        self.ledger.set_devices(name, devices=devices)
        return self

    def question(
        self, ask: Ask, *, workers: int = 1, holders: Mapping[str, Holder] | None = None, **pod_spec: Any
    ) -> Question:
        return Question(view=self.view, ask=ask, workers=workers, pod_spec=pod_spec, holders=holders or {})


def texts(question: Question) -> list[str]:
    return [change.text for change in changes(question)]


def kinds(question: Question) -> list[str]:
    return [change.kind for change in changes(question)]


def the_one(question: Question, kind: str) -> ExplainedChange:
    (found,) = [change for change in changes(question) if change.kind == kind]
    return found
