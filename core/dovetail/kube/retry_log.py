"""Failures of one piece of work that is tried again, in the log."""

from dovetail.kube.errors import KubeError
from dovetail.logs import get_logger

log = get_logger("dovetail.operator")


def log_failure(event: str, error: Exception, wait: float, **what: str) -> None:
    """Tell what failed, and when it is tried again."""
    # What the API server says is one line; anything else is a fault of ours and needs its trace.
    trace = None if isinstance(error, KubeError) else error
    log.warning(event, error=str(error), wait_seconds=round(wait, 1), exc_info=trace, **what)
