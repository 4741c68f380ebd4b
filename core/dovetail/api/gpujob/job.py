"""The object itself."""

from dovetail.api.gpujob.spec import GPUJobSpec
from dovetail.api.gpujob.status import GPUJobStatus
from dovetail.api.gpujob.words import KIND
from dovetail.api.meta import Described, ObjectMeta
from dovetail.names import API_VERSION


class GPUJob(Described, frozen=True, kw_only=True):
    """Work that needs GPUs: it waits in the queue, gets devices, runs as a batch Job and tells what became of it."""

    metadata: ObjectMeta
    spec: GPUJobSpec
    api_version: str = API_VERSION
    kind: str = KIND
    status: GPUJobStatus = GPUJobStatus()
