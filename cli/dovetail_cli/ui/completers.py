"""What a shell completes as an option's value. The functions are found and imported on use.

Each takes the word that is not finished, and what the command line names so far.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_VALUES: Final = "dovetail_cli.completion.values"

Completer = Callable[..., list[tuple[str, str]]]


def _completer(name: str) -> Completer:
    def complete(ctx: Any, *, incomplete: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = getattr(import_module(_VALUES), name)(incomplete, given=ctx.params)
        return found

    return complete


JOBS: Final = _completer("jobs")
UNFINISHED_JOBS: Final = _completer("unfinished_jobs")
DEVICES: Final = _completer("devices")
NAMESPACES: Final = _completer("namespaces")
AFTER_QUOTA: Final = _completer("after_quota")
AFTER_LIMITS: Final = _completer("after_limits")
LIVE_KEYS: Final = _completer("live_keys")
