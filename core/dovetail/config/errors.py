"""The error of a configuration.

ConfigError   one sentence: the key, its value, its source, what is allowed; programs print it and exit with 2
"""


class ConfigError(ValueError):
    """A configuration that cannot be used.

    `origin` is a file, an environment variable or the command line.
    """

    def __init__(self, origin: str, *, problem: str) -> None:
        self.origin = origin
        self.problem = problem
        super().__init__(f"{origin}: {problem}")
