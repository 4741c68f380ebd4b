"""`GPUResourceParser`: a request's text as numbers. Pure."""

from dataclasses import dataclass

from dovetail.gpu.request import GPURequest, RequestError, parse
from dovetail.sdk.errors import InvalidError


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUResource:
    """What a text asks for.

    - `count`: number of GPUs
    - `compute_ratio`: the part of each GPU's compute, 1.0 for whole ones
    - `memory_gb`: GiB of each GPU; None is not said
    - `vendor`: nvidia, amd, intel or ascend; None is any
    - `model`: the model, or several joined by `|`; None is any
    """

    count: int
    compute_ratio: float
    memory_gb: float | None
    vendor: str | None
    model: str | None


class GPUResourceParser:
    """Reads request texts such as `2`, `0.5`, `2(V100)` and `8G,0.5`."""

    def parse_gpu_resource(self, text: str | float) -> GPUResource:
        """The numbers of a text. Raises `InvalidError` with the place and an example."""
        request = read(text)
        return GPUResource(
            count=request.count,
            compute_ratio=request.share_milli / 1000,
            memory_gb=None if request.memory_mib is None else request.memory_mib / 1024,
            vendor=request.vendor,
            model="|".join(request.models) or None,
        )


def read(text: str | float) -> GPURequest:
    """The request of a text. Raises `InvalidError`."""
    try:
        return parse(str(text))
    except RequestError as error:
        raise InvalidError(str(error), status=422, reason="Invalid") from error
