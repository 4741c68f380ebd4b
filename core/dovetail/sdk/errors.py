"""What can go wrong between a script and the gateway.

DovetailError
├── SettingsError          a URL or token that is missing or cannot be used
├── UnreachableError       the gateway does not answer
├── UnexpectedAnswerError  something answers that is not a gateway, or one of another version
├── RefusedError           the gateway says no: status, reason, message, and a suggestion where it has one
│   ├── UnauthorizedError      401: no token, or one that is not accepted
│   ├── ForbiddenError         403: the right is missing
│   ├── NotFoundError          404
│   ├── ConflictError          409: no room, or another object or change came first
│   ├── InvalidError           400, 415, 422: the request cannot be used; the message names field and value
│   └── BusyError              429, 502, 503, 504: later
├── WaitTimeoutError       what was waited for has not happened in time
├── FunctionFailedError    a function has no value: the job ended without one, or its error cannot be read here
├── AllocationLostError    an allocation ended before it was released
└── MissingExtraError      a package is not installed; the message has the command
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dovetail.api.meta import MessageDetail


class DovetailError(Exception):
    """The root: every error of this package is one."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the sentence, without the frames of this package."""
        return [f"{type(self).__name__}: {self}"]

    def __reduce__(self) -> tuple[Any, ...]:
        """What pickles it, as a pool of processes does: `args` are the sentence, and no arguments of the class."""
        return partial(_remade, args=self.args, attributes=self.__dict__), (type(self),)


class SettingsError(DovetailError, ValueError):
    """A URL or token that is missing or cannot be used."""


class UnreachableError(DovetailError, ConnectionError):
    """The gateway does not answer; `problem` is that of the last attempt."""

    def __init__(self, url: str, *, call: str, problem: str, attempts: int) -> None:
        self.url = url
        self.problem = problem
        self.attempts = attempts
        times = "once" if attempts == 1 else f"{attempts} times"
        super().__init__(f"the gateway at {url} does not answer: {problem} (tried {call} {times})")


class UnexpectedAnswerError(DovetailError):
    """An answer that cannot be read."""

    def __init__(self, url: str, *, call: str, problem: str) -> None:
        self.url = url
        self.problem = problem
        super().__init__(f"{url} does not answer as a Dovetail gateway does: {call}: {problem}")


class RefusedError(DovetailError):
    """The gateway says no; `fields` names what it objects to.

    `details` are the clauses of `message` as codes and parameters (REST v3), to say it in another language.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        reason: str = "",
        suggestion: str = "",
        fields: Sequence[str] = (),
        details: "Sequence[MessageDetail]" = (),
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.suggestion = suggestion
        self.fields = tuple(fields)
        self.details = tuple(details)
        super().__init__(f"{message}; {suggestion}" if suggestion else message)


class UnauthorizedError(RefusedError):
    """401: no token, or one that is not accepted."""


class ForbiddenError(RefusedError):
    """403: the right is missing."""


class NotFoundError(RefusedError):
    """404: there is no such object, or you may not list it."""


class ConflictError(RefusedError):
    """409: there is no room, the object exists, or it has changed since you read it."""


class InvalidError(RefusedError, ValueError):
    """400, 415 and 422: the request cannot be used."""


class BusyError(RefusedError):
    """429, 502, 503 and 504: the gateway cannot answer now."""


class WaitTimeoutError(DovetailError, TimeoutError):
    """What was waited for has not happened in time; `seconds` is how long that was."""

    def __init__(self, what: str, *, seconds: float, last: str) -> None:
        self.seconds = seconds
        super().__init__(f"{what} within {seconds:g} s: {last}" if last else f"{what} within {seconds:g} s")


class FunctionFailedError(DovetailError):
    """A function has no value; `traceback` is that of the job, empty without one."""

    def __init__(self, job: str, *, problem: str, traceback: str = "") -> None:
        self.problem = problem
        self.traceback = traceback
        super().__init__(f"{job}: {problem}\n\n{traceback}".rstrip())


class AllocationLostError(DovetailError):
    """An allocation ended before it was released."""

    def __init__(self, name: str, *, problem: str) -> None:
        super().__init__(f"allocation {name} no longer holds its GPUs: {problem}")


class MissingExtraError(DovetailError, ImportError):
    """A package is not installed."""

    def __init__(self, package: str, *, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{package} is not installed: pip install 'dovetail-gpu[{extra}]'")


def _remade(kind: type[DovetailError], *, args: tuple[Any, ...], attributes: Mapping[str, Any]) -> DovetailError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


_BY_STATUS: dict[int, type[RefusedError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    415: InvalidError,
    422: InvalidError,
    429: BusyError,
    502: BusyError,
    503: BusyError,
    504: BusyError,
}


def is_later(status: int) -> bool:
    """Whether this status says, also from a proxy, that the gateway cannot answer now."""
    return _BY_STATUS.get(status) is BusyError


def refused(
    status: int,
    *,
    reason: str,
    message: str,
    suggestion: str = "",
    fields: Sequence[str] = (),
    details: "Sequence[MessageDetail]" = (),
) -> RefusedError:
    """The error of a status."""
    kind = _BY_STATUS.get(status, RefusedError)
    return kind(message, status=status, reason=reason, suggestion=suggestion, fields=fields, details=details)
