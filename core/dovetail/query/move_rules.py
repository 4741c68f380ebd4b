"""The rules of moves as a configuration states them. Pure."""

from dovetail.config.groups import MoveRules as Said
from dovetail.queue.moves.consent import MoveRules


def move_rules_of(said: Said) -> MoveRules:
    """The rules that a configuration states."""
    return MoveRules(
        mode=said.mode,
        default=said.default,
        by_namespace=said.namespaces,
        after_seconds=said.after,
        rest_seconds=said.rest,
        per_hour=said.per_hour,
    )
