"""What the API server asks of an admission webhook, and the answer. Data and text; no I/O.

ReviewError   a body that is no review of an admission
"""

import base64
from collections.abc import Collection
from typing import Any

import msgspec

from dovetail.api.meta import Described

API_VERSION = "admission.k8s.io/v1"
KIND = "AdmissionReview"
_BAD_REQUEST = 400


class ReviewError(ValueError):
    """A body that is no review of an admission."""


class GroupKind(Described, frozen=True, kw_only=True):
    """What the object is."""

    group: str = ""
    kind: str


class UserInfo(Described, frozen=True, kw_only=True):
    """Who makes the request."""

    username: str = ""


class Request(Described, frozen=True, kw_only=True):
    """One object on its way into the API server."""

    uid: str
    kind: GroupKind
    operation: str = "CREATE"
    sub_resource: str = ""
    object: dict[str, Any]
    user_info: UserInfo = UserInfo()


class _Review(Described, frozen=True, kw_only=True):
    request: Request


_DECODER = msgspec.json.Decoder(_Review)


def read(body: bytes, *, kinds: Collection[str]) -> Request:
    """The request in a review of an object of one of these kinds. Raises `ReviewError`."""
    try:
        request = _DECODER.decode(body).request
    except msgspec.DecodeError as error:
        raise ReviewError(f"no {KIND} of {API_VERSION}: {error}") from error
    if request.kind.kind not in kinds:
        raise ReviewError(f"kind {request.kind.kind} is not reviewed here; allowed are {', '.join(kinds)}")
    return request


def allowed(request: Request, *, patch: list[dict[str, Any]]) -> bytes:
    """The object may come in, changed by a JSON patch."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if patch:
        response |= {"patchType": "JSONPatch", "patch": base64.b64encode(msgspec.json.encode(patch)).decode()}
    return _answer(response)


def denied(request: Request, *, message: str) -> bytes:
    """The object may not come in, and the sentence why."""
    status = {"code": _BAD_REQUEST, "reason": "BadRequest", "message": message}
    return _answer({"uid": request.uid, "allowed": False, "status": status})


def _answer(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
