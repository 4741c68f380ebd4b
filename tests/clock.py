"""A clock for tests."""


class Clock:
    """Seconds that pass only when the test says so: set `now`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
