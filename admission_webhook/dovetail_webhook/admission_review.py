"""What the API server asks of an admission webhook, and the answer. Data and text; no I/O.

ReviewError   a body that is no review of an admission
"""

import base64
import re
from collections.abc import Collection
from typing import Any, Final

import msgspec

from dovetail.api.meta import Described
from dovetail.decoding import Decoder, UnreadableError

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_BAD_REQUEST = 400
# The API server writes the fields of a review in this order, so the uid comes before everything that a user wrote.
_UID: Final = re.compile(rb'"request"\s*:\s*\{\s*"uid"\s*:\s*"([0-9A-Za-z-]{1,64})"')
_UID_WITHIN: Final = 512
# Kubernetes shows the sentence to a person; an object's texts are in it.
_LONGEST_MESSAGE: Final = 2_000


class ReviewError(ValueError):
    """A body that is no review of an admission."""


class GroupKind(Described, frozen=True, kw_only=True):
    """What the object is."""

    group: str = ""
    kind: str


class UserInfo(Described, frozen=True, kw_only=True):
    """Who makes the request."""

    username: str = ""


# What stands in the place of an object that is not there.
NONE: Final = msgspec.Raw(b"null")


class Request(Described, frozen=True, kw_only=True):
    """One object on its way into the API server; `object` stays JSON until something of it is needed."""

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
    """The request in a review of an object of one of these kinds. Raises `ReviewError`."""
    try:
        request = _DECODER.decode(body).request
    except UnreadableError as error:
        raise ReviewError(f"no {KIND} of {API_VERSION}: {error}") from error
    if request.kind.kind not in kinds:
        raise ReviewError(f"kind {request.kind.kind} is not reviewed here; allowed are {', '.join(kinds)}")
    return request


def uid_of(body: bytes | bytearray) -> str:
    """The uid of a review that need not be readable as a whole; empty where the API server would not have put it."""
    found = _UID.search(body[:_UID_WITHIN])
    return found[1].decode() if found else ""


def allowed(uid: str, *, patch: list[dict[str, Any]]) -> bytes:
    """The object may come in, changed by a JSON patch."""
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    return _answer(response)


def denied(uid: str, *, message: str) -> bytes:
    """The object may not come in, and the sentence why."""
    # A lone half of a surrogate pair is a Python text, but no UTF-8.
    sentence = message[:_LONGEST_MESSAGE].encode(errors="replace").decode()
    status = {"code": _BAD_REQUEST, "reason": "BadRequest", "message": sentence}
    return _answer({"uid": uid, "allowed": False, "status": status})


def _answer(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
