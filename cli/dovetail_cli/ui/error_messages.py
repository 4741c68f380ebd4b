"""Errors of libraries as a command's errors: a sentence that says what to do, an exit code."""

from dovetail.kube.errors import (
    Forbidden,
    Invalid,
    KubeconfigError,
    NotFound,
    StatusError,
    Unauthorized,
    Undecodable,
    Unreachable,
)
from dovetail.query.errors import InvalidQueryError, NotFoundError
from dovetail_cli.ui.errors import CommandError, MissingError, NoConnectionError, UsageError


def explain(error: Exception) -> CommandError:
    """Convert an exception to a command's error; an unexpected one asks for a bug report.

    The notes of an error of the connection say what was tried.
    """
    if isinstance(error, CommandError):
        return error
    if isinstance(error, StatusError):
        return _refusal(error)
    match error:
        # What cannot be read is no API server's, such as the login page of a proxy.
        case KubeconfigError() | Unreachable() | Undecodable():
            return NoConnectionError("; ".join([str(error), *getattr(error, "__notes__", ())]))
        case InvalidQueryError():
            return UsageError(str(error))
        case NotFoundError():
            return MissingError(str(error))
        case OSError() | ValueError():
            return CommandError(_plain(error))
        # The end of the input, or Ctrl-C, at a question of typer's, whose import takes time.
        case _ if type(error).__name__ == "Abort":
            return CommandError("the question has no answer, so nothing is changed: --yes answers it")
        case _:
            name = type(error).__name__
            return CommandError(f"{name}: {error} (this should not happen; DOVETAIL_DEBUG=1 shows where it came from)")


def _plain(error: OSError | ValueError) -> str:
    """The error's own words in one line, without the number of the system's error."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split())


def _refusal(error: StatusError) -> CommandError:
    """What the API server's answer means."""
    match error:
        case Unauthorized():
            return NoConnectionError(f"the API server does not know you: {error.message or error.reason}")
        case Forbidden():
            return CommandError(f"not allowed: {error.message}")
        case Invalid():
            return CommandError(f"refused: {sentence(error)}")
        case NotFound() if not error.details.name:
            return MissingError("this cluster has no GPUJobs: install Dovetail's chart, or name another cluster")
        case NotFound():
            return MissingError(error.message)
        case _:
            return CommandError(error.message or str(error))


def sentence(error: StatusError) -> str:
    """What the API server objects to, field by field, without the object's name around it."""
    causes = [
        cause.message if cause.field in {"", "<nil>"} else f"{cause.field}: {cause.message}"
        for cause in error.details.causes or ()
    ]
    return "; ".join(causes) or error.message
