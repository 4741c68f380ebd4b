"""The request in question, and the cluster. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from dovetail.api.reasons.clause import Sentence
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import Ask
from dovetail.engine.score.fragmentation_term import BestFit, FragmentationTerm
from dovetail.engine.score.live_fragmentation import term_of
from dovetail.pods.node_affinity import Exclusion, exclusion

# No claim has this key: the pod in question is not placed yet.
KEY: Final = "explained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The owner of a claim, called such as `job 17` or `pod default/notebook`.

    `ends_by` is when its time limit ends it at the latest (RFC 3339); empty without a limit.
    """

    called: Sentence
    ends_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """`workers` times `ask`, by pods with `pod_spec` (as in JSON).

    `holders` are the owners of the view's claims.

    The view is read only; trials use copies. `term` is the fragmentation term over the view's ledger that chooses
    devices, and also nodes unless they are `planned`: the queue plans by the ledger's own prices.
    """

    view: ClusterView
    ask: Ask
    workers: int = 1
    pod_spec: Mapping[str, Any] = field(default_factory=dict)
    holders: Mapping[str, Holder] = field(default_factory=dict)
    term: FragmentationTerm = field(default_factory=BestFit)
    planned: bool = False

    @property
    def ranking(self) -> FragmentationTerm:
        """The fragmentation term that ranks nodes."""
        if self.ask.profile:
            # Prices are of GPUs.
            return BestFit()
        return term_of(self.view.ledger) if self.planned else self.term

    @cached_property
    def exclusions(self) -> dict[str, Exclusion]:
        """Why nodes are closed to the pods regardless of room."""
        nodes = self.view.nodes
        found = {name: exclusion(nodes[name], pod_spec=self.pod_spec) for name in self._known}
        return {name: each for name, each in found.items() if each is not None}

    @cached_property
    def nodes(self) -> list[str]:
        """The nodes that the pods may use, by name."""
        return [name for name in self._known if name not in self.exclusions]

    @cached_property
    def _known(self) -> list[str]:
        return sorted(name for name in self.view.ledger.nodes() if name in self.view.nodes)
