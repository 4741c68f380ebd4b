"""Why a node or a GPU takes no new work."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dovetail.api.gpunode import Cause
from dovetail.api.reasons.clause import Clause, clause
from dovetail.api.reasons.codes import NODE_UNHEALTHY


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseClauses:
    """The sentence of one cause, with what is known of it: of a node, of one of its GPUs, and of any.

    - `on_node`: names the node
    - `on_device`: names the GPU of the node too; None for a cause of the node
    - `anywhere`: what all nodes and GPUs with this cause share
    """

    on_node: Clause
    on_device: Clause | None
    anywhere: Clause


def _node(code: str, *, words: str) -> CauseClauses:
    return CauseClauses(
        on_node=clause(code, f"node {{node}} is {words}", reason=NODE_UNHEALTHY),
        on_device=None,
        anywhere=clause(f"Any{code}", f"node is {words}", reason=NODE_UNHEALTHY),
    )


def _device(code: str, *, words: str) -> CauseClauses:
    return CauseClauses(
        on_node=clause(f"Some{code}", f"a GPU on node {{node}} is {words}", reason=NODE_UNHEALTHY),
        on_device=clause(code, f"GPU {{index}} on node {{node}} is {words}", reason=NODE_UNHEALTHY),
        anywhere=clause(f"Any{code}", f"GPU is {words}", reason=NODE_UNHEALTHY),
    )


CAUSES: Final[Mapping[Cause, CauseClauses]] = {
    "NodeGone": _node("NodeGone", words="gone"),
    "NodeNotReady": _node("NodeNotReady", words="not ready"),
    "NotManaged": _node("NodeNotManaged", words="not managed by Dovetail"),
    "NodeCordoned": _node("NodeCordoned", words="cordoned"),
    "NodeDrained": _node("NodeDrained", words="being drained"),
    "Unhealthy": _device("GPUUnhealthy", words="unhealthy"),
    "Reshaping": _device("GPUReshaping", words="being partitioned again"),
    "Cordoned": _device("GPUCordoned", words="cordoned"),
    "Strangers": _device("GPUInUse", words="used by processes without an allocation"),
}
DETAIL: Final = clause("Detail", ": {detail}")
SERVED_TWICE: Final = clause("ServedTwice", "node {node}: {conflict}", reason=NODE_UNHEALTHY)
DRIVER_UNREADABLE: Final = clause("DriverUnreadable", "{problem} on node {node}", reason=NODE_UNHEALTHY)
HINT: Final = clause("Hint", ";{hint}")
AS_SAID: Final = clause("AsSaid", "{detail}", reason=NODE_UNHEALTHY)
