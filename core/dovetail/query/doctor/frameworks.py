"""Checks whether what containers are built for is what the driver of their node supports. Pure.

A module of its own: each subject of the doctor has one, with its `judge`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from dovetail.answers.doctor import CheckResult
from dovetail.api.gpunode import GPUNode
from dovetail.cluster.picture import BuiltContainer, Picture, Unseen
from dovetail.gpu import cuda
from dovetail.query.doctor.findings import listed, unknown

_CHECK = "cuda"


def judge(picture: Picture, *, only: str | None = None) -> Iterator[CheckResult]:
    """Every container that says which CUDA it is built for, by node and version; or those of one node."""
    if isinstance(picture.built_containers, Unseen):
        yield unknown(_CHECK, unseen=picture.built_containers, subject="containers")
        return
    if isinstance(picture.gpunodes, Unseen):
        # The checks of nodes say that reports cannot be read.
        return
    drivers = {each.metadata.name: found for each in picture.gpunodes if (found := supported(each))}
    here = [each for each in picture.built_containers if each.node in drivers and only in {None, each.node}]
    problems = list(_judged(here, drivers=drivers))
    if here and not problems:
        message = f"{len(here)} containers say which CUDA they are built for, and their nodes' drivers support it"
        yield CheckResult(level="ok", check=_CHECK, message=message)
    yield from problems


def supported(gpunode: GPUNode) -> cuda.CudaVersion | None:
    """The newest CUDA version that a node's driver supports; None if it is unknown.

    It is unknown, too, where other vendors' devices are in the node: the versions are then a text for people.
    """
    status = gpunode.status
    if not status.devices or any(device.vendor != "nvidia" for device in status.devices):
        return None
    return cuda.parse(status.runtime_version) or cuda.of_driver(status.driver_version)


def _judged(containers: Iterable[BuiltContainer], *, drivers: dict[str, cuda.CudaVersion]) -> Iterator[CheckResult]:
    alike: dict[tuple[str, cuda.Built], list[str]] = defaultdict(list)
    for each in containers:
        alike[each.node, each.built].append(f"{each.namespace}/{each.pod}")
    for (node, built), pods in sorted(alike.items()):
        driver = drivers[node]
        if why := cuda.problem(built.version, driver=driver):
            # With NVIDIA's package cuda-compat, an image runs on older drivers of data-center cards.
            compat = ", unless its image has cuda-compat" if built.version.major > driver.major else ""
            message = f"{listed(sorted(set(pods)))} ({built.source}): {why}{compat}"
            fix = cuda.remedy(built.version, driver=driver, instead="an image")
            yield CheckResult(level="warning", check=_CHECK, subject=node, message=message, fix=fix)
