"""Access reviews: what the API server's authorizer is asked, and what it answers. Data only."""

from dataclasses import dataclass

from dovetail.api.meta import Described
from dovetail.names import GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """A verb on a resource, by default of Dovetail's group; an empty namespace means all of them."""

    verb: str
    resource: str = "gpujobs"
    namespace: str = ""
    group: str = GROUP
    subresource: str = ""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f"/{self.subresource}" if self.subresource else "")

    @property
    def attributes(self) -> dict[str, str]:
        """The `resourceAttributes` of a review."""
        named = {
            "verb": self.verb,
            "group": self.group,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace,
        }
        return {name: value for name, value in named.items() if value}


class ReviewStatus(Described, frozen=True, kw_only=True):
    """The answer of a review."""

    allowed: bool = False


class Review(Described, frozen=True, kw_only=True):
    """A SubjectAccessReview or a SelfSubjectAccessReview as it comes back."""

    status: ReviewStatus = ReviewStatus()
