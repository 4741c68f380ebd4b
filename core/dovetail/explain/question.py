"""What is asked, of which cluster. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import Ask
from dovetail.engine.score.fragmentation_term import BestFit, FragmentationTerm
from dovetail.pods.node_affinity import Exclusion, exclusion

# No claim has this key: what is asked stands nowhere yet.
KEY: Final = "explained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who stands behind a claim: `job 17`, `pod default/notebook`. `ends_by` is when its time limit ends it at the
    latest (RFC 3339); empty without one."""

    name: str
    ends_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Question:
    """`workers` times `ask`, by pods with `pod_spec` (as in JSON). `holders` names who is behind the view's claims.

    The view is only looked at; what would be otherwise is tried on copies. `term` is the fragmentation term over the
    view's ledger by which devices are chosen, and nodes too unless they are `planned`: the queue plans by best fit.
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
        """The fragmentation term by which nodes are ranked."""
        return BestFit() if self.planned else self.term

    @cached_property
    def exclusions(self) -> dict[str, Exclusion]:
        """What keeps the pods off nodes whatever room there is."""
        nodes = self.view.nodes
        found = {name: exclusion(nodes[name], self.pod_spec) for name in self._known}
        return {name: each for name, each in found.items() if each is not None}

    @cached_property
    def nodes(self) -> list[str]:
        """The nodes that the pods may go to, by name."""
        return [name for name in self._known if name not in self.exclusions]

    @cached_property
    def _known(self) -> list[str]:
        return sorted(name for name in self.view.ledger.nodes() if name in self.view.nodes)
