"""The narrowest level of the network at which a gang would start now, where its own level has no room."""

from collections.abc import Iterator
from dataclasses import replace

from dovetail.answers.explain.question import KEY, Question
from dovetail.answers.questions import ExplainedChange
from dovetail.engine.gang.placement import place
from dovetail.engine.gang.shortage import Shortage


def wider_topology(question: Question) -> Iterator[ExplainedChange]:
    """The first wider level with room for all workers, or that they fit without a required level."""
    topology = question.ask.topology
    if topology is None or not topology.required:
        return
    required = topology.required
    names = [level.name for level in topology.levels]
    for level in (*reversed(names[: names.index(required)]), ""):
        wider = replace(question.ask, topology=replace(topology, required=level))
        found = place(question.view.ledger, ask=wider, workers=question.workers, key=KEY, nodes=question.nodes)
        if isinstance(found, Shortage):
            continue
        nodes = ",".join(sorted({claim.node for claim in found}))
        instead = f"require {level} instead of {required}" if level else f"prefer {required} instead of requiring it"
        yield ExplainedChange(kind="WiderTopology", node=nodes, text=f"{instead}: starts now on {nodes}")
        return
