"""Logs failures of work that is retried."""

from dovetail.kube.errors import KubeError
from dovetail.logs import get_logger

log = get_logger("dovetail.operator")


def log_failure(event: str, *, error: Exception, wait: float, **what: str) -> None:
    """Log what failed, and after how many seconds the retry comes."""
    # The API server's errors are one line. Any other error is a bug in Dovetail and needs its traceback.
    trace = None if isinstance(error, KubeError) else error
    log.warning(event, error=str(error), wait_seconds=round(wait, 1), exc_info=trace, **what)
