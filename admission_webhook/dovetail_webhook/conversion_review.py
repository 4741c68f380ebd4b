"""The API server's ConversionReview: decode the request, encode the answer. No I/O."""

from typing import Any, Final

import msgspec

from dovetail.api.meta import Described
from dovetail.decoding import Decoder, UnreadableError
from dovetail_webhook.admission_review import ReviewError, sentence

API_VERSION: Final = "apiextensions.k8s.io/v1"
KIND: Final = "ConversionReview"


class Request(Described, frozen=True, kw_only=True):
    """The objects to convert, and the version to convert them to, such as `dovetail.dev/v1beta1`."""

    uid: str
    desired_api_version: str = msgspec.field(name="desiredAPIVersion")
    objects: list[dict[str, Any]]


class _Review(Described, frozen=True, kw_only=True):
    api_version: str
    kind: str
    request: Request


_DECODER: Final = Decoder(_Review)


def read(body: bytes | bytearray) -> Request:
    """Decode a review. Raises `ReviewError`."""
    try:
        review = _DECODER.decode(body)
    except UnreadableError as error:
        raise ReviewError(f"no {KIND} of {API_VERSION}: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        found = f"{review.kind} of {review.api_version}"[:100]
        raise ReviewError(f"{found} is not answered here; expected a {KIND} of {API_VERSION}")
    return review.request


def converted(uid: str, *, objects: list[dict[str, Any]]) -> bytes:
    """Encode the answer with the converted objects, in the order of the request."""
    return _answer({"uid": uid, "convertedObjects": objects, "result": {"status": "Success"}})


def failed(uid: str, *, message: str) -> bytes:
    """Encode the answer that nothing was converted; the message is truncated if it is too long."""
    return _answer({"uid": uid, "convertedObjects": [], "result": {"status": "Failure", "message": sentence(message)}})


def _answer(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})
