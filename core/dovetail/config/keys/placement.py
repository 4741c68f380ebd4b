"""Placement: which nodes and devices are preferred, and how long a decision holds them."""

from typing import Annotated, Final

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from dovetail.config.groups import (
    LIVE,
    NamespaceWeights,
    PolicyWord,
    ScoreWeights,
    WeightRange,
    WholeNumber,
    choice,
    number,
)
from dovetail.engine.model.ranking import Range, Ranking, Rankings
from dovetail.engine.model.settings import FragmentationPolicy, Weights
from dovetail.engine.model.topology import DEFAULT_LEVELS, Level

_LEVEL: Final = (
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?=([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)


class PlacementKeys(BaseModel):
    """The keys about placement."""

    policy: PolicyWord = choice(
        "Balanced",
        "Spread",
        "Pack",
        "Balanced",
        description="Which nodes and devices are preferred by default.",
        live=True,
    )
    namespace_policies: dict[str, PolicyWord] = Field(
        default_factory=dict,
        description="The policy by namespace, for pods and jobs without one; policy applies to all other namespaces.",
        json_schema_extra={
            LIVE: True,
            "unit": "policy",
            "allowed": "a map of namespaces to policies",
            "entry": "Spread, Pack or Balanced",
        },
    )
    fragmentation_policy: FragmentationPolicy = choice(
        "ph",
        "ph",
        "fgd",
        "bestfit",
        description="How the cost of a placement for later pods is computed: priced headroom, fragmentation gradient "
        "descent, or best fit.",
    )
    topology_levels: list[Annotated[str, Field(pattern=_LEVEL)]] = Field(
        default_factory=lambda: [f"{level.name}={level.label}" for level in DEFAULT_LEVELS],
        description="The levels of the network from wide to narrow (level=label), each with the node label that names "
        "its domains; spec.topology of a GPUJob names levels.",
        max_length=16,
        json_schema_extra={
            LIVE: True,
            "unit": "level=label",
            "allowed": "a list of at most 16 levels, each with a name and a label of its own",
            "entry": "a level and a node label, such as rack=example.com/rack",
        },
    )
    utilization_smoothing: WholeNumber = number(
        120,
        low=1,
        high=3600,
        unit="seconds",
        description="How long a change of utilization must last before most of it counts in the ranking.",
    )
    score_weights: ScoreWeights = Field(
        default=ScoreWeights(),
        description="The weight of each term in the ranking of nodes; the weights need not sum to one.",
        json_schema_extra={
            LIVE: True,
            "unit": "weights",
            "allowed": "a map with utilization, memory, cpu and fragmentation, one of them above 0 at least",
        },
    )
    namespace_score_weights: dict[str, NamespaceWeights] = Field(
        default_factory=dict,
        description="The same by namespace, with the range from which a job (spec.scoreWeights) or pod may choose; "
        "score_weights, and any choice from 0 to 100, in all other namespaces and for terms that are left out.",
        json_schema_extra={
            LIVE: True,
            "unit": "weights",
            "allowed": "a map of namespaces to weights",
            "entry": "a map with utilization, memory, cpu and fragmentation: a number from 0 to 100 that jobs cannot "
            "change, or a map with min, max and default",
        },
    )
    hold_ttl_seconds: WholeNumber = number(
        30,
        low=1,
        high=3600,
        unit="seconds",
        description="How long devices stay promised to a pod that is not bound; more than bind_deadline_seconds.",
    )
    bind_deadline_seconds: WholeNumber = number(
        4, low=1, high=60, unit="seconds", description="How long binding a pod may take; below the scheduler's timeout."
    )

    @property
    def levels(self) -> tuple[Level, ...]:
        """The levels of the network, from wide to narrow."""
        parts = (level.split("=", 1) for level in self.topology_levels)
        return tuple(Level(name=name, label=label) for name, label in parts)

    @property
    def rankings(self) -> Rankings:
        """How pods and jobs rank nodes and devices, by namespace."""
        named = {*self.namespace_policies, *self.namespace_score_weights}
        return Rankings(usual=self._ranking(""), by_namespace={name: self._ranking(name) for name in named})

    def _ranking(self, namespace: str) -> Ranking:
        policy, weights = self.namespace_policies.get(namespace, self.policy), self.score_weights.model_dump()
        bounds = self.namespace_score_weights.get(namespace)
        if bounds is None:
            return Ranking(policy=policy, weights=Weights(**weights))
        by_term: dict[str, WeightRange] = {term: getattr(bounds, term) for term in weights}
        return Ranking(
            policy=policy,
            weights=Weights(**{term: each.default_or(weights[term]) for term, each in by_term.items()}),
            allowed={term: Range(low=each.min, high=each.max) for term, each in by_term.items()},
            namespace=namespace,
        )

    @field_validator("topology_levels")
    @classmethod
    def _each_level_once(cls, levels: list[str]) -> list[str]:
        for part in zip(*(level.split("=", 1) for level in levels), strict=True):
            if len(set(part)) < len(part):
                raise ValueError("a name or a label comes twice")
        return levels

    @field_validator("score_weights")
    @classmethod
    def _weigh_something(cls, weights: ScoreWeights) -> ScoreWeights:
        if not any(weights.model_dump().values()):
            raise ValueError("all nodes would be equal")
        return weights

    @field_validator("bind_deadline_seconds")
    @classmethod
    def _below_the_hold(cls, seconds: int, info: ValidationInfo) -> int:
        if seconds >= (hold := info.data.get("hold_ttl_seconds", seconds + 1)):
            raise ValueError(f"less than hold_ttl_seconds, which is {hold} (seconds)")
        return seconds
