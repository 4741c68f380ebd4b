"""Names of jobs: generated ones, such as `brave-river-1234`, and checks of given ones. Pure."""

import random
import re
from typing import Final

from dovetail.jobs import display_name
from dovetail.jobs.display_name import MAX_OBJECT_LENGTH
from dovetail_cli.ui.errors import UsageError

MAX_NAMESPACE_LENGTH: Final = 63
_ALLOWED: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")

_ADJECTIVES: Final = (
    "amber", "bold", "brave", "bright", "brisk", "calm", "clear", "clever", "cosy", "crisp", "deep", "eager", "early",
    "fair", "fleet", "fresh", "gentle", "glad", "golden", "grand", "green", "happy", "hardy", "honest", "keen", "kind",
    "late", "light", "lively", "lucky", "mellow", "merry", "mild", "neat", "nimble", "noble", "patient", "plain",
    "proud", "quick", "quiet", "rapid", "ready", "royal", "shiny", "silent", "silver", "smart", "smooth", "snug",
    "solid", "spry", "steady", "still", "sturdy", "sunny", "swift", "tidy", "vivid", "warm", "wild", "wise",
)  # fmt: skip
_NOUNS: Final = (
    "acorn", "anchor", "arch", "aspen", "badger", "bay", "beacon", "birch", "bridge", "brook", "canyon", "cedar",
    "cliff", "cloud", "comet", "coral", "creek", "dawn", "delta", "dune", "eagle", "elm", "ember", "falcon", "fern",
    "field", "fjord", "forest", "fox", "garden", "glade", "grove", "harbor", "hawk", "hazel", "heron", "hill", "island",
    "lake", "lark", "leaf", "maple", "marsh", "meadow", "mesa", "moon", "moss", "oak", "ocean", "otter", "peak", "pine",
    "plain", "pond", "prairie", "reef", "ridge", "river", "robin", "shore", "spring", "stone", "stream", "summit",
    "swan", "thicket", "tide", "valley", "wave", "willow", "wind", "wren",
)  # fmt: skip


def random_name(rng: random.Random | None = None) -> str:
    """Two words and a number from 1000 to 9999."""
    rng = rng or random.Random()  # noqa: S311 - it names a job and guards nothing
    return f"{rng.choice(_ADJECTIVES)}-{rng.choice(_NOUNS)}-{rng.randrange(1000, 10000)}"


def check_name(name: str) -> str:
    """The name of a job as a user gave it. Raises `UsageError` for one that no job can have."""
    if problem := display_name.problem_of(name):
        raise UsageError(f'--name "{name}": {problem}')
    return name


def check_object_name(name: str, *, field: str) -> str:
    """The name of a job's object. Raises `UsageError` for one that Kubernetes would refuse."""
    if not display_name.is_object_name(name):
        raise UsageError(
            f'{field} "{name}": write up to {MAX_OBJECT_LENGTH} lower-case letters, digits and hyphens, '
            "with a letter or digit at both ends"
        )
    return name


def check_namespace(name: str) -> str:
    """The name of a namespace as a user gave it.

    Raises `UsageError` if Kubernetes would refuse it.
    """
    if len(name) > MAX_NAMESPACE_LENGTH or not _ALLOWED.fullmatch(name):
        raise UsageError(
            f'--namespace "{name}": write up to {MAX_NAMESPACE_LENGTH} lower-case letters, digits and hyphens, '
            "with a letter or digit at both ends"
        )
    return name
