"""What every API object shares: metadata and conditions, as apimachinery's metav1 has them."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from dovetail.formats.notebook import view

# What a watch reports of an object.
EventType = Literal["ADDED", "MODIFIED", "DELETED"]

_SPELT: Final = {"mib": "MiB", "gb": "GB", "gpu": "GPU"}


def wire_name(name: str) -> str:
    """The JSON name of a field: camelCase, with MiB, GB and GPU spelt as people do."""
    first, *rest = name.split("_")
    return first + "".join(_SPELT.get(word, word.capitalize()) for word in rest)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A value whose fields are attributes and keys: `job.started_at` and `job["started_at"]`.

    A notebook shows it as a table.
    """

    def __getitem__(self, field: str) -> Any:
        """The field by its name. Raises `KeyError`."""
        if field not in self.__struct_fields__:
            raise KeyError(field)
        return getattr(self, field)

    def _repr_html_(self) -> str:
        fields = msgspec.structs.asdict(self)
        return view(type(self).__name__, rows=((name, str(value)) for name, value in fields.items()))


class Described(Record, frozen=True, kw_only=True, rename=wire_name, omit_defaults=True):
    """The common shape: frozen, camelCase on the wire, unknown fields dropped, defaults left out when written."""


class OwnerReference(Described, frozen=True, kw_only=True):
    """The owner of an object; it goes when its owner goes."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False


class ObjectMeta(Described, frozen=True, kw_only=True):
    """The fields of metav1.ObjectMeta that Dovetail reads."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()


Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class Condition(Described, frozen=True, kw_only=True, omit_defaults=False):
    """A metav1.Condition."""

    type: Annotated[str, Meta(description="Name of the condition, such as Admitted or Complete.")]
    status: Annotated[Literal["True", "False", "Unknown"], Meta(description="Whether the condition holds.")]
    reason: Annotated[str, Meta(description="One word for why, from the closed set of reasons.")]
    message: Annotated[str, Meta(description="One sentence for people, with numbers.")]
    last_transition_time: Annotated[Timestamp, Meta(description="When `status` last changed (RFC 3339).")]
    observed_generation: Annotated[int, Meta(description="metadata.generation that this condition is about.")] = 0


# The most clauses of a message that a status has.
MOST_DETAILS: Final = 32


class MessageDetail(Described, frozen=True, kw_only=True, omit_defaults=False):
    """One clause of a message, as code and parameters: what a program needs to say it in another language."""

    code: Annotated[str, Meta(description="Code of the clause in the table of reasons.", max_length=64)]
    parameters: Annotated[dict[str, str], Meta(description="What the clause's template names, as texts.")] = {}


MessageDetails = Annotated[
    list[MessageDetail],
    Meta(
        description="The clauses of the message in their order, as codes and parameters; empty for a message that no "
        "table has.",
        max_length=MOST_DETAILS,
    ),
]


def find_condition(conditions: list[Condition], *, type: str) -> Condition | None:  # noqa: A002 - metav1's word
    """The condition of that type, or None."""
    return next((condition for condition in conditions if condition.type == type), None)


def key_of(meta: ObjectMeta) -> str:
    """`namespace/name`, or just the name of an object that has no namespace."""
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
