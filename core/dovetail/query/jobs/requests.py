"""What a job requests, for lists: its GPUs and its host memory. Pure."""

from dovetail.api.gpujob import GPUJob
from dovetail.decoding import UnreadableError, convert
from dovetail.gpu.request import RequestError, parse


def request_text(job: GPUJob) -> str:
    """What each worker requests, as the operator reads it, or as the user wrote it before the operator has read it."""
    return job.status.request or str(job.spec.gpu or "")


def request_milli(job: GPUJob) -> int:
    """The GPUs that each worker requests, in thousandths; 0 for none, or if the request is unreadable."""
    try:
        return parse(request_text(job)).total_milli
    except RequestError:
        # It is empty, or `cpu`.
        return 0


def host_memory_mib(job: GPUJob) -> int:
    """The host memory that each worker requests, in MiB; 0 for none, or if the template is no pod."""
    # NumPy is behind it, and few lists have this column.
    from dovetail.api.builtin import PodSpec  # noqa: PLC0415
    from dovetail.pods.demand import host_request, written_spec  # noqa: PLC0415

    try:
        return host_request(convert(written_spec(job), as_type=PodSpec, strict=False))[1]
    except (UnreadableError, RequestError, ValueError):
        # The operator states the problem in the job's reason.
        return 0
