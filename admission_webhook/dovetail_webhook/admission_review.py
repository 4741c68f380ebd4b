"""The API server's AdmissionReview: decode the request, encode the answer. No I/O.

ReviewError   the body is not a readable review
"""

import base64
import re
from collections.abc import Collection
from typing import Any, Final

import msgspec

from dovetail.api.meta import Described, MessageDetail
from dovetail.api.reasons.clause import Sentence
from dovetail.decoding import Decoder, UnreadableError

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_BAD_REQUEST = 400
# The API server writes the fields of a review in this order, so the uid precedes everything that a user wrote.
_UID: Final = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,64})"')
_UID_WITHIN: Final = 512
# Kubernetes shows the message to the user. It quotes texts of the object, which may be long.
_LONGEST_MESSAGE: Final = 2_000


class ReviewError(ValueError):
    """The body is not a readable review."""


class GroupKind(Described, frozen=True, kw_only=True):
    """The API group and kind of the object."""

    group: str = ""
    kind: str


class UserInfo(Described, frozen=True, kw_only=True):
    """The user who makes the request."""

    username: str = ""


# The value of an absent object.
NONE: Final = msgspec.Raw(b"null")


class Request(Described, frozen=True, kw_only=True):
    """One request under review; `object` and `old_object` stay encoded until they are needed."""

    uid: str
    kind: GroupKind
    operation: str = "CREATE"
    sub_resource: str = ""
    object: msgspec.Raw
    old_object: msgspec.Raw = NONE
    user_info: UserInfo = UserInfo()


class _Review(Described, frozen=True, kw_only=True):
    request: Request


_DECODER: Final = Decoder(_Review)


def read(body: bytes | bytearray, *, kinds: Collection[str]) -> Request:
    """Decode the review of an object of one of these kinds. Raises `ReviewError`."""
    try:
        request = _DECODER.decode(body).request
    except UnreadableError as error:
        raise ReviewError(f"no {KIND} of {API_VERSION}: {error}") from error
    if request.kind.kind not in kinds:
        raise ReviewError(f"kind {request.kind.kind} is not reviewed here; allowed are {', '.join(kinds)}")
    return request


def uid_of(body: bytes | bytearray) -> str:
    """The uid of a review that may be unreadable otherwise; empty if it is not near the start."""
    found = _UID.search(body[:_UID_WITHIN])
    return found[1].decode() if found else ""


def allowed(uid: str, *, patch: list[dict[str, Any]]) -> bytes:
    """Encode the answer that admits the object, changed by a JSON patch."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    return _answer(response)


def denied(uid: str, *, sentence: Sentence) -> bytes:
    """Encode the answer that denies the object; the message is truncated if it is too long.

    The causes of the status are the clauses of the sentence: each parameter with the clause's code as its reason, the
    parameter's name as its field and its value as its message.
    """
    status = {"code": _BAD_REQUEST, "reason": "BadRequest", "message": shown(sentence.message)}
    causes = [each for clause in sentence.clauses for each in _causes(clause)]
    return _answer({"uid": uid, "allowed": False, "status": status | {"details": {"causes": causes}}})


def _causes(clause: MessageDetail) -> list[dict[str, str]]:
    if not clause.parameters:
        return [{"reason": clause.code}]
    return [
        {"reason": clause.code, "field": name, "message": shown(value)} for name, value in clause.parameters.items()
    ]


def shown(message: str) -> str:
    """A text as an answer may contain it: not too long, and without lone surrogates, which UTF-8 cannot encode."""
    return message[:_LONGEST_MESSAGE].encode(errors="replace").decode()


def _answer(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
