"""Answers the API server's requests to convert objects between the versions of their kind. Pure."""

from typing import Final

from dovetail import logs
from dovetail.api.versions import ConversionError, convert_object
from dovetail_webhook import admission_review, conversion_review
from dovetail_webhook.admission_review import ReviewError
from dovetail_webhook.answer import Answer
from dovetail_webhook.weight import COPIES_TO_CONVERT, memory_of

# The API server converts a list in one review: about 5,000 quotas with one use each, or 90 with 1,024.
MAX_MEMORY: Final = 96 << 20
_KIND = conversion_review.KIND
log = logs.get_logger("dovetail.webhook")


class Converter:
    """Answers ConversionReviews. All objects of a review are converted, or none."""

    def answer(self, body: bytes | bytearray) -> Answer:
        """The answer to a review. Raises only `ReviewError`, if the body has no uid to answer to."""
        uid = admission_review.uid_of(body)
        try:
            request = conversion_review.read(body)
        except ReviewError as error:
            if not uid:
                raise
            return self.refuse(uid, problem=str(error))
        try:
            objects = [convert_object(each, to=request.desired_api_version) for each in request.objects]
            answer = conversion_review.converted(request.uid, objects=objects)
        except ConversionError as error:
            return self.refuse(request.uid, problem=str(error))
        # A bug here must not stop the answers to other reviews.
        except Exception:
            log.exception("a conversion failed", uid=request.uid)
            problem = f"the webhook has an error of its own with this object; its log names the uid {request.uid}"
            return self.refuse(request.uid, problem=problem)
        return Answer(body=answer, kind=_KIND, outcome="converted")

    def refuse(self, uid: str, *, problem: str) -> Answer:
        """The answer that nothing was converted."""
        log.warning("not converted", uid=uid, problem=problem)
        body = conversion_review.failed(uid, message=f"Dovetail cannot convert this object: {problem}")
        return Answer(body=body, kind=_KIND, outcome="failed")


def memory_to_convert(body: bytes | bytearray) -> int:
    """The most bytes that the conversion of a review takes, with its answer."""
    return memory_of(body, copies=COPIES_TO_CONVERT)


def too_heavy(body: bytes | bytearray) -> str:
    """Why a review would take too much memory to convert; empty if it would not."""
    needed = memory_to_convert(body)
    if needed <= MAX_MEMORY:
        return ""
    return f"the objects take up to {needed >> 20} MiB, and a list of at most {MAX_MEMORY >> 20} MiB is converted"
