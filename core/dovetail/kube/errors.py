# ruff: noqa: N818 - named after apimachinery's own reasons
"""What can go wrong between Dovetail and the API server.

KubeError
├── KubeconfigError        the connection's configuration cannot be used: which file, which field
├── Unreachable            no answer: refused, broken, certificate; a write may or may not have happened
│   └── DeadlineExceeded   no answer within the caller's deadline
├── Undecodable            an answer that does not have the shape of the requested type
├── TooLarge               an answer with more bytes than the caller accepts
└── StatusError            the API server refused: code, reason, message, details
    ├── Unauthorized       401
    ├── Forbidden          403
    ├── NotFound           404
    ├── AlreadyExists      409 on create
    ├── Conflict           409 otherwise: another client wrote first
    ├── Gone               410: that resourceVersion or list continuation has expired
    ├── Invalid            422
    ├── TooManyRequests    429, also an eviction that a disruption budget refuses
    └── ServerFault        500 and above
"""

from typing import Final

import msgspec


class StatusCause(msgspec.Struct, frozen=True, kw_only=True):
    """One field that the API server objects to."""

    field: str = ""
    message: str = ""
    reason: str = ""


class StatusDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The structured part of a Status."""

    name: str = ""
    kind: str = ""
    causes: list[StatusCause] | None = None
    retry_after_seconds: int | None = None


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A metav1.Status."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None


class KubeError(Exception):
    """Any failure between Dovetail and the API server."""


class KubeconfigError(KubeError):
    """The connection's configuration cannot be used."""

    def __init__(self, source: object, *, problem: str) -> None:
        self.source = str(source)
        super().__init__(f"{source}: {problem}")


class Unreachable(KubeError):
    """No answer. A write may or may not have happened."""

    def __init__(self, server: str, *, problem: str) -> None:
        self.server = server
        super().__init__(f"cannot reach the API server at {server}: {problem}")


class DeadlineExceeded(Unreachable):
    """No answer within the caller's deadline. A write may or may not have happened."""

    def __init__(self, server: str, *, deadline_seconds: float) -> None:
        super().__init__(server, problem=f"no answer within {deadline_seconds:g} s")


class Undecodable(KubeError):
    """An answer that does not have the shape of the requested type."""

    def __init__(self, path: str, *, problem: str) -> None:
        self.path = path
        super().__init__(f"the API server's answer to {path} cannot be read: {problem}")


class TooLarge(KubeError):
    """An answer with more bytes than the caller accepts. The rest of it was not read."""

    def __init__(self, path: str, *, most_bytes: int) -> None:
        self.path = path
        super().__init__(f"the API server's answer to {path} has more than {most_bytes:,} bytes")


class StatusError(KubeError):
    """The API server refused the request."""

    def __init__(self, status: Status, *, request: str = "", retry_after_seconds: float | None = None) -> None:
        self.code = status.code
        self.reason = status.reason
        self.message = status.message
        self.details = status.details or StatusDetails()
        self.retry_after_seconds = retry_after_seconds
        said = status.message or status.reason or "no reason given"
        super().__init__(f"{request}: {said} ({status.code})" if request else f"{said} ({status.code})")


class Unauthorized(StatusError):
    """401: the API server does not recognize our credentials."""


class Forbidden(StatusError):
    """403: our identity lacks the permission."""


class NotFound(StatusError):
    """404: no such object, or no such kind."""


class AlreadyExists(StatusError):
    """409 on create: an object with that name exists."""


class Conflict(StatusError):
    """409: another client wrote first, or a precondition failed."""


class Gone(StatusError):
    """410: that resourceVersion or list continuation has expired."""


class Invalid(StatusError):
    """422: the object violates its schema; `details.causes` names the fields."""


class TooManyRequests(StatusError):
    """429: the API server refuses for now. The request had no effect."""


class ServerFault(StatusError):
    """500 and above."""


_BY_CODE: Final[dict[int, type[StatusError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def status_error(status: Status, *, request: str = "", retry_after_seconds: float | None = None) -> StatusError:
    """The error class for a Status: by its reason where that decides, otherwise by its code."""
    kind = _BY_CODE.get(status.code, ServerFault if status.code >= 500 else StatusError)
    if status.reason == "AlreadyExists":
        kind = AlreadyExists
    elif status.reason == "Expired":
        kind = Gone
    if retry_after_seconds is None and status.details is not None:
        retry_after_seconds = status.details.retry_after_seconds
    return kind(status, request=request, retry_after_seconds=retry_after_seconds)
