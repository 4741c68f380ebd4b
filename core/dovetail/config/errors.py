"""What can be wrong with a configuration.

ConfigError   one sentence: which key, its value, where it stands, what is allowed; programs print it and exit with 2
"""

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A configuration that cannot be used. `origin` is a file, an environment variable or the command line."""

    def __init__(self, origin: str, *, problem: str) -> None:
        self.origin = origin
        self.problem = problem
        super().__init__(f"{origin}: {problem}")


def suggestion(word: str, *, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`; did you mean "x"?` for a near miss in any case, else nothing."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return f'; did you mean "{by_lower[near[0]]}"?' if near else ""
