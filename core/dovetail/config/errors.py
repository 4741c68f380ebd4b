"""What can be wrong with a configuration.

ConfigError   one sentence: which key, its value, where it stands, what is allowed; programs print it and exit with 2
"""


class ConfigError(ValueError):
    """A configuration that cannot be used. `origin` is a file, an environment variable or the command line."""

    def __init__(self, origin: str, *, problem: str) -> None:
        self.origin = origin
        self.problem = problem
        super().__init__(f"{origin}: {problem}")
