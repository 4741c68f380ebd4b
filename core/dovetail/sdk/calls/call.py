"""A call: what it sends, what its answer is, and which error a refusal is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from dovetail.api.meta import MessageDetail
from dovetail.decoding import UnreadableError, decode
from dovetail.sdk.discovery import Connection
from dovetail.sdk.errors import InvalidError, RefusedError, UnexpectedAnswerError, is_later, refused

T = TypeVar("T")
IDEMPOTENCY_KEY: Final = "Idempotency-Key"
# What a second attempt cannot do twice.
_REPEATABLE: Final = frozenset({"GET", "DELETE"})
_SHOWN: Final = 200


class _Error(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of v1 (`message`), v2 (`detail`) and v3 (RFC 9457), in one."""

    message: str = ""
    detail: str = ""
    reason: str = ""
    suggestion: str = ""
    errors: list[dict[str, Any]] = []
    details: list[MessageDetail] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """A request whose answer is of type `as_type`; `body` is sent as JSON unless it is None."""

    method: str
    path: str
    as_type: type[T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    key: str = ""

    @property
    def name(self) -> str:
        """The call as errors name it."""
        return f"{self.method} {self.path}"

    @property
    def repeatable(self) -> bool:
        """Whether a second attempt changes nothing more."""
        return self.method in _REPEATABLE or bool(self.key)

    def content(self) -> bytes | None:
        """The body."""
        return None if self.body is None else msgspec.json.encode(self.body)

    def headers(self, connection: Connection) -> dict[str, str]:
        """The headers; without a token there is no authorization."""
        token = connection.token()
        sent = {"Accept": "application/json, text/plain"}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if self.body is not None:
            sent["Content-Type"] = "application/json"
        if self.key:
            sent[IDEMPOTENCY_KEY] = self.key
        return sent

    def answer(self, content: bytes, *, status: int, url: str) -> T:
        """The answer. Raises `RefusedError` and `UnexpectedAnswerError`."""
        if not 200 <= status < 300:
            raise self.refusal(content, status=status, url=url)
        try:
            return decode(content, as_type=self.as_type)
        except UnreadableError as error:
            raise UnexpectedAnswerError(url, call=self.name, problem=error.problem) from error

    def refusal(self, content: bytes, *, status: int, url: str) -> RefusedError | UnexpectedAnswerError:
        """The error of an answer that is no success."""
        try:
            error = decode(content, as_type=_Error)
        except UnreadableError:
            error = _Error()
        message = error.message or error.detail
        if not message:
            text = content[:_SHOWN].decode(errors="replace").strip()
            problem = f"status {status} {text}".strip()
            if is_later(status):
                # A proxy's page about a gateway that is away.
                return refused(status, reason="", message=f"{url} does not answer now: {self.name}: {problem}")
            return UnexpectedAnswerError(url, call=self.name, problem=problem)
        fields = [str(each.get("field", "")) for each in error.errors]
        return refused(
            status,
            reason=error.reason,
            message=message,
            suggestion=error.suggestion,
            fields=fields,
            details=error.details,
        )


def segment(name: str) -> str:
    """A name as a part of a path, in which `..` or an empty name would be another resource. Raises `InvalidError`."""
    if name in {"", ".", ".."}:
        raise InvalidError(f'"{name}" is no name of an object', status=422, reason="Invalid")
    return quote(name, safe="")


def query(**values: str | float | bool | None) -> dict[str, str]:
    """A query of those values that are not None."""
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
