"""Errors as callers get them: a status and one sentence, in the shape of each API version. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import msgspec

from dovetail.api.meta import MessageDetail
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import SaidError, Sentence
from dovetail.kube.errors import KubeError, StatusCause, StatusError


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One field that is wrong."""

    field: str
    message: str


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error by RFC 9457.

    `reason` is one word for programs, `errors` names the fields that the API server objects to. `details` are the
    clauses of `detail` as codes and parameters, from which a program can say it in another language.
    """

    title: str
    status: int
    detail: str
    type: str = "about:blank"
    reason: str = ""
    errors: list[FieldProblem] = []
    details: list[MessageDetail] = []


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """An error of v1."""

    success: bool = False
    reason: str
    message: str


class RequestFailedError(SaidError):
    """A request that cannot be served: a status, one word and one sentence."""

    def __init__(
        self,
        status: int,
        *,
        reason: str,
        sentence: Sentence,
        errors: tuple[FieldProblem, ...] = (),
        headers: dict[str, str] | None = None,
        closes: bool = False,
    ) -> None:
        """`closes` says that the connection ends with the answer."""
        self.status = status
        self.reason = reason
        self.errors = errors
        self.headers = headers or {}
        self.closes = closes
        super().__init__(sentence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShape:
    """How an API version writes its errors."""

    as_type: type[msgspec.Struct]
    content_type: str
    write: Callable[[RequestFailedError], Any]


def _problem(error: RequestFailedError) -> Problem:
    return Problem(
        title=HTTPStatus(error.status).phrase,
        status=error.status,
        detail=error.sentence.message,
        reason=error.reason,
        details=list(error.sentence.clauses),
        errors=list(error.errors),
    )


PROBLEM: Final = ErrorShape(as_type=Problem, content_type="application/problem+json", write=_problem)
REFUSED: Final = ErrorShape(
    as_type=Refused,
    content_type="application/json",
    write=lambda error: Refused(reason=error.reason, message=error.sentence.message),
)
_PASSED_ON: Final = frozenset({400, 401, 403, 404, 409, 410, 413, 422, 429})


def unauthorized(sentence: Sentence) -> RequestFailedError:
    """401: no token, or one that the API server does not know."""
    return RequestFailedError(401, reason="Unauthorized", sentence=sentence, headers={"WWW-Authenticate": "Bearer"})


def too_many(sentence: Sentence, *, wait_seconds: float, closes: bool = False) -> RequestFailedError:
    """429: the caller may ask again after a while."""
    wait = max(1, round(wait_seconds))
    sentence += says.AGAIN_IN(seconds=wait)
    headers = {"Retry-After": str(wait)}
    return RequestFailedError(429, reason="TooManyRequests", sentence=sentence, headers=headers, closes=closes)


def of_kube(error: KubeError) -> RequestFailedError:
    """The API server's refusal with its own status; 502 where it is away or fails."""
    if not isinstance(error, StatusError) or error.code not in _PASSED_ON:
        return RequestFailedError(502, reason="APIServer", sentence=says.API_SERVER_AWAY(problem=str(error)))
    if error.code == HTTPStatus.UNAUTHORIZED:
        return unauthorized(says.TOKEN_NOT_ACCEPTED())
    wait, message = error.retry_after_seconds, error.message or str(error)
    causes = error.details.causes or ()
    clauses = clauses_of_webhook(causes)
    return RequestFailedError(
        error.code,
        reason=error.reason or HTTPStatus(error.code).phrase,
        sentence=Sentence(message=message, clauses=clauses) if clauses else says.SAID_BY_API_SERVER(message=message),
        errors=() if clauses else tuple(FieldProblem(field=each.field, message=each.message) for each in causes),
        headers={} if wait is None else {"Retry-After": str(max(1, round(wait)))},
    )


def clauses_of_webhook(causes: Sequence[StatusCause]) -> tuple[MessageDetail, ...]:
    """The clauses of a refusal by Dovetail's webhook, which has each parameter as a cause; none of another refusal."""
    from dovetail.api.reasons.catalog import every_clause  # noqa: PLC0415 - loads the whole table

    known = every_clause() if causes else {}
    if not causes or any(each.reason not in known for each in causes):
        return ()
    found: list[MessageDetail] = []
    for each in causes:
        parameter = {each.field: each.message} if each.field else {}
        if found and found[-1].code == each.reason and parameter.keys().isdisjoint(found[-1].parameters):
            parameter = {**found.pop().parameters, **parameter}
        found.append(MessageDetail(code=each.reason, parameters=parameter))
    return tuple(found)
