"""What the doctor reads of all pods: resources, and the CUDA of containers."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from dovetail import names
from dovetail.api.builtin import EnvVar, Resources, is_terminal
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import PODS
from dovetail.gpu import cuda
from dovetail.gpu.device_plugins import is_nvidias
from dovetail.query.doctor.picture import BuiltContainer
from dovetail_cli.cluster.connection import Cluster


class _Container(Described, frozen=True, kw_only=True):
    image: str = ""
    env: list[EnvVar] = []
    resources: Resources = Resources()


class _Spec(Described, frozen=True, kw_only=True):
    node_name: str = ""
    containers: list[_Container] = []
    init_containers: list[_Container] = []


class _Status(Described, frozen=True, kw_only=True):
    phase: str = ""


class _Pod(Described, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


class PodFacts(NamedTuple):
    """What pods request and are built for.

    `resources_asked` are the extended resources that pods request above 0, by namespace, and `resources_waited_for`
    those of pods without a node.
    """

    resources_asked: Mapping[str, AbstractSet[str]]
    resources_waited_for: Mapping[str, AbstractSet[str]]
    built_containers: Sequence[BuiltContainer]


async def read_pods(cluster: Cluster) -> PodFacts:
    """The facts of all pods. Each page of pods is dropped once it is read."""
    asked: dict[str, set[str]] = defaultdict(set)
    waited: dict[str, set[str]] = defaultdict(set)
    built: list[BuiltContainer] = []
    async for page in cluster.client.pages(PODS, as_type=_Pod):
        for pod in page.items or ():
            for container in (*pod.spec.containers, *pod.spec.init_containers):
                asked[pod.metadata.namespace] |= _asked(container)
                if not pod.spec.node_name and not is_terminal(pod.status.phase):
                    waited[pod.metadata.namespace] |= _asked(container)
            built += _built(pod)
    return PodFacts(resources_asked=asked, resources_waited_for=waited, built_containers=built)


def _asked(container: _Container) -> set[str]:
    limits = container.resources.limits
    return {each for each in limits if "/" in each and str(limits[each]) != "0"}


def _built(pod: _Pod) -> Iterator[BuiltContainer]:
    """The containers of a live pod with an NVIDIA GPU that say which CUDA they are built for."""
    if not pod.spec.node_name or is_terminal(pod.status.phase):
        return
    for container in pod.spec.containers:
        if not any(name in names.MANAGED_RESOURCES or is_nvidias(name) for name in _asked(container)):
            continue
        variables = {each.name: each.value for each in container.env}
        if built := cuda.built_for(image=container.image, variables=variables):
            yield BuiltContainer(
                namespace=pod.metadata.namespace, pod=pod.metadata.name, node=pod.spec.node_name, built=built
            )
