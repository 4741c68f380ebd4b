"""How the pods and jobs of a namespace rank nodes and devices: what they get, and what they may choose. Values only."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from dovetail.api.gpujob import Policy
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import NOTHING
from dovetail.engine.model.settings import DEFAULT_WEIGHTS, Weights
from dovetail.gpu.request import RequestError

MAX_WEIGHT: Final = 100.0
TERMS: Final = tuple(asdict(DEFAULT_WEIGHTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The weights that a pod or job may choose for one term, both ends included."""

    low: float = 0.0
    high: float = MAX_WEIGHT


ANY_WEIGHT: Final = Range()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The ranking of one namespace.

    policy     of pods and jobs that name none
    weights    of the score's terms, for those that choose none
    allowed    what they may choose, by term; any weight for a term that is not there
    namespace  which namespace has these bounds; empty without bounds
    """

    policy: Policy = "Balanced"
    weights: Weights = DEFAULT_WEIGHTS
    allowed: Mapping[str, Range] = field(default_factory=dict)
    namespace: str = ""

    def weights_with(self, chosen: Mapping[str, float]) -> Weights:
        """The weights of a pod or job that chooses some, each moved into its range."""
        if not chosen:
            return self.weights
        moved = {
            term: min(max(weight, self._range(term).low), self._range(term).high) for term, weight in chosen.items()
        }
        return Weights(**{**asdict(self.weights), **moved})

    def check(self, chosen: Mapping[str, float], *, field: str) -> None:
        """Raise `RequestError` if a pod or job may not choose these weights; `field` has them."""
        where = says.OF_NAMESPACE(namespace=self.namespace) if self.namespace else NOTHING
        for term, weight in chosen.items():
            allowed = self._range(term)
            if not allowed.low <= weight <= allowed.high:
                fixed = allowed.low == allowed.high
                must = says.MUST_BE(value=allowed.low) if fixed else says.FROM_TO(low=allowed.low, high=allowed.high)
                raise RequestError(
                    f"{weight:g}",
                    field=f"{field}.{term}",
                    problem=must + where,
                    example=f"{allowed.high:g}",
                )
        if chosen and not any(asdict(self.weights_with(chosen)).values()):
            raise RequestError(
                ", ".join(f"{term}: {weight:g}" for term, weight in chosen.items()), field=field,
                problem=says.WITH_OTHERS() + where + says.ALL_ZERO(),
                example="fragmentation: 0.5",
            )  # fmt: skip

    def _range(self, term: str) -> Range:
        return self.allowed.get(term, ANY_WEIGHT)


DEFAULT_RANKING: Final = Ranking()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rankings:
    """The rankings of all namespaces: that of most, and the others by name."""

    usual: Ranking = DEFAULT_RANKING
    by_namespace: Mapping[str, Ranking] = field(default_factory=dict)

    def of(self, namespace: str) -> Ranking:
        """The ranking of a namespace."""
        return self.by_namespace.get(namespace, self.usual)


DEFAULT_RANKINGS: Final = Rankings()
