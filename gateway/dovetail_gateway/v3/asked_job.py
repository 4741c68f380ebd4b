"""A request of a dry run as a job that is not submitted, checked as the API server would check it. Pure."""

from typing import Annotated

import msgspec
from msgspec import Meta

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import wire_name
from dovetail.api.reasons import problems as says
from dovetail.decoding import UnreadableError, decode
from dovetail_gateway.routing.numbers import decode_request
from dovetail_gateway.routing.problems import RequestFailedError
from dovetail_gateway.v3.times import check_time
from dovetail_gateway.v3.types.questions import NewRequest


class _Container(msgspec.Struct, frozen=True):
    name: Annotated[str, Meta(max_length=63)]
    image: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename=wire_name):
    """What the CRD's schema says of a pod's spec."""

    restart_policy: Annotated[str, Meta(max_length=16)] = ""
    containers: Annotated[list[_Container], Meta(max_length=32)] = []


def asked_job(new: NewRequest, *, user: str) -> GPUJob:
    """The job as the caller would submit it. Raises `RequestFailedError`."""
    metadata = {"name": "asked", "namespace": new.namespace, "annotations": {names.USER: user}}
    try:
        job = decode_request(msgspec.json.encode({"metadata": metadata, "spec": new.spec}), as_type=GPUJob)
        check_template(job)
    except UnreadableError as error:
        raise RequestFailedError(422, reason="Invalid", sentence=says.SPEC_UNREADABLE(problem=error.problem)) from error
    check_time("spec.beginTime", text=job.spec.begin_time)
    check_time("spec.moveRequestTime", text=job.spec.move_request_time)
    if job.spec.reservation is not None:
        check_time("spec.reservation.renewTime", text=job.spec.reservation.renew_time)
    return job


def check_template(job: GPUJob) -> None:
    """Raise `UnreadableError` for a pod's spec that the CRD's schema refuses."""
    try:
        decode(job.spec.template.spec, as_type=_PodSpec)
    except UnreadableError as error:
        raise UnreadableError(f"template.spec: {error.problem}") from error
