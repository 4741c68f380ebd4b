"""The devices of the cluster by their numbers over it: `cuda:N` as a device of a node, and back. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dovetail.answers.inventory import DeviceUse, NodeUse
from dovetail.answers.v2 import Counts
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.reasons import problems as says
from dovetail.api.reasons.clause import Sentence
from dovetail.gpu.device_indexes import NodeDevice
from dovetail.gpu.request import GPURequest, RequestError, on_device, parse
from dovetail_gateway.routing.problems import RequestFailedError

_MOST_LISTED: Final = 8
_ONE: Final = parse("1")


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedDevice:
    """A device with its number over the cluster; `idle` says that a job could take it whole."""

    number: int
    at: NodeDevice
    use: DeviceUse
    gpunode: GPUNode
    idle: bool

    @property
    def name(self) -> str:
        """The device as v2 names it."""
        return f"cuda:{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """The devices that exist, by number and by place. `unnumbered` is how many others an agent reports."""

    by_number: Mapping[int, NumberedDevice]
    by_place: Mapping[NodeDevice, NumberedDevice]
    unnumbered: int

    def __iter__(self) -> Iterator[NumberedDevice]:
        return iter(self.by_number.values())

    def named(self, text: str) -> NumberedDevice:
        """The device that `cuda:N` or `NODE/cuda:N` names. Raises `RequestFailedError`."""
        request = _read(text)
        if request.device_node is None:
            found = self.by_number.get(-1 if request.device_index is None else request.device_index)
        else:
            found = self.by_place.get(NodeDevice(request.device_node, request.device_index or 0))
        if found is None and self.unnumbered:
            sentence = says.DEVICE_UNNUMBERED(device=text, count=self.unnumbered)
            raise RequestFailedError(503, reason="NotNumbered", sentence=sentence, headers={"Retry-After": "2"})
        if found is None:
            sentence = says.NO_SUCH_DEVICE(device=text) + self._what_there_is()
            raise RequestFailedError(422, reason="NoSuchDevice", sentence=sentence)
        return found

    def name_of(self, at: NodeDevice) -> str:
        """The device as v2 names it; by its node if it has no number."""
        found = self.by_place.get(at)
        return str(at) if found is None else found.name

    def _what_there_is(self) -> Sentence:
        count = len(self.by_number)
        if not count:
            return says.CLUSTER_WITHOUT_GPUS()
        names = [each.name for each in self.by_number.values()]
        shown = ", ".join(names if count <= _MOST_LISTED else [*names[:_MOST_LISTED], "…", names[-1]])
        return says.CLUSTER_HAS_GPUS(count=count, devices=shown)


def devices_of(nodes: Iterable[NodeUse], *, indexes: Mapping[int, NodeDevice]) -> Devices:
    """The devices that an agent reports, with their numbers in `indexes`; partitioned ones have none."""
    nodes = list(nodes)
    idle = {NodeDevice(node.name, use.device.index) for node in nodes for use in node.available}
    there = {
        NodeDevice(node.name, use.device.index): (use, node.gpunode)
        for node in nodes
        for use in node.uses
        if not use.device.mig_profile
    }
    numbered = [
        NumberedDevice(number=number, at=at, use=there[at][0], gpunode=there[at][1], idle=at in idle)
        for number, at in indexes.items()
        if at in there
    ]
    return Devices(
        by_number={each.number: each for each in numbered},
        by_place={each.at: each for each in numbered},
        unnumbered=len(there) - len(numbered),
    )


def places_of(job: GPUJob) -> Sequence[NodeDevice]:
    """The devices that an unfinished job holds, each once: several of its workers may share one."""
    if job.status.phase in FINISHED:
        return ()
    return list(dict.fromkeys(NodeDevice(device.node, device.index) for device in job.status.devices))


def usage_of(jobs: Iterable[GPUJob]) -> dict[NodeDevice, Counts]:
    """How many jobs of each workload hold each device."""
    found: dict[NodeDevice, Counts] = {}
    for job in jobs:
        for at in places_of(job) if job.spec.workload else ():
            before = found.get(at, Counts(training=0, inference=0))
            found[at] = Counts(
                training=before.training + (job.spec.workload == "Training"),
                inference=before.inference + (job.spec.workload == "Inference"),
            )
    return found


def _read(text: str) -> GPURequest:
    try:
        return on_device(_ONE, device=text)
    except RequestError as error:
        raise RequestFailedError(422, reason="Invalid", sentence=says.WRONG_DEVICE(device=text)) from error
