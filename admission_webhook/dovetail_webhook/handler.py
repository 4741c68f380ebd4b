"""One review, from its text to its answer, whatever the text is. Pure except for logging.

The pod templates of a new guest are checked as the pods that its controller makes of them: a pod that is refused later
would be named only in an event of the controller, after the guest has waited for its turn.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from dovetail import logs
from dovetail.api.gpujob import KIND, Policy
from dovetail.api.reasons import start as says
from dovetail.api.reasons.clause import SaidError, Sentence
from dovetail.decoding import UnreadableError, decode
from dovetail.gpu.device_plugins import Delivery, Vendors
from dovetail.gpu.request import RequestError
from dovetail.jobs.array_tasks import TasksError
from dovetail.jobs.guests.kind import Guest, GuestError, Path, PodSet
from dovetail.jobs.guests.pod_admission import patch_of_queued_pod
from dovetail.jobs.guests.registry import KINDS as GUESTS
from dovetail.jobs.guests.registry import admission_patch, kind_of, pods_in_queue
from dovetail.jobs.guests.replicas import REPLICATED, patch_of_replicated, replicated_of
from dovetail.jobs.size_limits import JobLimitError, JobLimits
from dovetail.pods.errors import sentence_of
from dovetail_webhook import admission_review, mutation
from dovetail_webhook.admission_review import Request, ReviewError
from dovetail_webhook.weight import memory_of


def refuse_impossible_pods(sets: Iterable[PodSet], *, policy: Policy, vendors: Vendors, delivery: Delivery) -> None:
    """Check that the webhook admits the pods of these templates. Raises `GuestError`."""
    for each in sets:
        where = _written(each.path)
        if each.template.spec.get("nodeName"):
            # The API server refuses a pod with a node and a gate.
            raise GuestError(says.NODE_NAMED(path=f"{where}.spec"))
        metadata = {"labels": each.template.labels, "annotations": each.template.annotations}
        try:
            pod = mutation.pod_with(metadata, spec=each.template.spec)
            mutation.patch_of_pod(pod, subresource="", policy=policy, vendors=vendors, delivery=delivery)
        except (RequestError, UnreadableError) as error:
            raise GuestError(says.PODS_WOULD_BE_REFUSED(path=where, problem=str(error))) from error


def _written(path: Path) -> str:
    return "spec" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)


KINDS: Final = ("Pod", KIND, *(each.resource.kind for each in GUESTS), *(each.resource.kind for each in REPLICATED))
# 1.5 MiB of `"a",` take 28 MiB: etcd's limit, filled with the smallest values that occur in a pod.
MAX_MEMORY: Final = 48 << 20
Outcome = Literal["patched", "unchanged", "denied", "failed"]
log = logs.get_logger("dovetail.webhook")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The answer to the API server, with the object's kind and the outcome for metrics."""

    body: bytes
    kind: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewer:
    """Answers reviews; `mps_directory` is the path of MPS on nodes, or empty without MPS.

    `delivery` is how containers get devices. One that `translates` only makes pods that ask a vendor's whole GPUs ask
    Dovetail; a review that completes them follows.
    """

    policy: Policy
    vendors: Vendors
    mps_directory: str = ""
    delivery: Delivery = "RuntimeClass"
    limits: JobLimits = field(default_factory=JobLimits)
    translates: bool = False

    def answer(self, body: bytes | bytearray) -> Answer:
        """The answer to a review. Raises only `ReviewError`, if the body has no uid to answer to."""
        uid = admission_review.uid_of(body)
        try:
            request = admission_review.read(body, kinds=KINDS)
        except ReviewError as error:
            if not uid:
                raise
            log.warning("a review that cannot be read is denied", error=str(error))
            return refused(uid, sentence=says.OBJECT_UNREADABLE(kind="object", problem=str(error)))
        return self._answer(request)

    def refuse(self, uid: str, *, problem: str) -> Answer:
        """Deny an object that is not reviewed."""
        log.warning("denied without a review", uid=uid, problem=problem)
        return refused(uid, sentence=says.NOT_REVIEWED(problem=problem))

    def _answer(self, request: Request) -> Answer:
        kind = request.kind.kind
        try:
            patch = self._patch(request)
            outcome: Outcome = "patched" if patch else "unchanged"
            return Answer(body=admission_review.allowed(request.uid, patch=patch), kind=kind, outcome=outcome)
        except (RequestError, TasksError, JobLimitError, GuestError) as error:
            log.info("denied", kind=kind, error=str(error))
            body = admission_review.denied(request.uid, sentence=_sentence_of(error))
            return Answer(body=body, kind=kind, outcome="denied")
        except UnreadableError as error:
            log.info("denied", kind=kind, error=str(error))
            return refused(request.uid, sentence=says.OBJECT_UNREADABLE(kind=kind, problem=str(error)), kind=kind)
        # A bug here must neither admit an unchecked object nor stop the answers to other reviews.
        except Exception:
            log.exception("a review failed", kind=kind, uid=request.uid)
            body = admission_review.denied(request.uid, sentence=says.WEBHOOK_FAULT(kind=kind, uid=request.uid))
            return Answer(body=body, kind=kind, outcome="failed")

    def _patch(self, request: Request) -> mutation.Patch:
        if request.kind.kind != "Pod" and self.translates:
            raise UnreadableError("only the requests of pods are translated")
        if request.kind.kind == KIND:
            mutation.check_size(request.object, before=request.old_object, limits=self.limits)
            user = request.user_info.username if request.operation == "CREATE" else None
            return mutation.patch_of_job(mutation.read_job(request.object), user=user)
        group, kind = request.kind.group, request.kind.kind
        if (replicated := replicated_of(group=group, kind=kind)) is not None:
            return patch_of_replicated(decode(request.object, as_type=Guest), kind=replicated)
        guests = kind_of(group=group, kind=kind)
        if guests is not None:
            guest, user = decode(request.object, as_type=Guest), request.user_info.username
            patch = admission_patch(guest, kind=guests, run=request.uid, user=user)
            pods = pods_in_queue(guest, kind=guests)
            refuse_impossible_pods(pods, policy=self.policy, vendors=self.vendors, delivery=self.delivery)
            return patch
        if group:
            raise UnreadableError(f"kinds of the API group {group} are not reviewed here")
        read = mutation.read_pod(request.object)
        if self.translates:
            return mutation.patch_of_request(read, vendors=self.vendors)
        completed = mutation.patch_of_pod(
            read,
            subresource=request.sub_resource,
            policy=self.policy,
            vendors=self.vendors,
            mps_directory=self.mps_directory,
            delivery=self.delivery,
        )
        if request.sub_resource:
            return completed
        pod = decode(request.object, as_type=Guest)
        queued = patch_of_queued_pod(pod, review=request.uid, user=request.user_info.username)
        return completed + queued + mutation.patch_of_copy(read)


def refused(uid: str, *, sentence: Sentence, kind: str = "") -> Answer:
    """Deny an object for a reason other than its GPU request."""
    return Answer(body=admission_review.denied(uid, sentence=sentence), kind=kind or "unknown", outcome="denied")


def _sentence_of(error: RequestError | SaidError) -> Sentence:
    return error.sentence if isinstance(error, SaidError) else sentence_of(error)


def too_heavy(body: bytes | bytearray) -> str:
    """Why a body would take too much memory to review; empty if it would not."""
    if memory_of(body) <= MAX_MEMORY:
        return ""
    values = sum(map(body.count, (b"{", b"[", b",")))
    return f"the object has about {values} values, which take more than the {MAX_MEMORY >> 20} MiB that a review may"
