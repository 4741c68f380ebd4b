"""What a caller may see: all namespaces, or some of them. Values only."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Visibility:
    """The namespaces whose jobs and pods a caller may list; None means all of them."""

    namespaces: frozenset[str] | None

    def sees(self, namespace: str) -> bool:
        """Whether objects of the namespace may be shown."""
        return self.namespaces is None or namespace in self.namespaces

    def including(self, namespace: str) -> "Visibility":
        """The same and one more namespace."""
        return self if self.namespaces is None else Visibility(self.namespaces | {namespace})

    @property
    def everything(self) -> bool:
        """Whether nothing is hidden."""
        return self.namespaces is None


EVERYTHING = Visibility(None)
