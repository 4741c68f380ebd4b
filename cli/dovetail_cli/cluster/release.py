"""Where Dovetail is installed: the namespace of the chart's own objects."""

from dovetail import names
from dovetail.api.meta import Described, ObjectMeta
from dovetail.api.resources import PRIORITYCLASSES
from dovetail.kube.errors import Forbidden, NotFound
from dovetail_cli.cluster.connection import Cluster


class PriorityClass(Described, frozen=True, kw_only=True):
    """What is read of a PriorityClass."""

    metadata: ObjectMeta = ObjectMeta()


async def release_namespace(cluster: Cluster) -> str:
    """The namespace of the release: an annotation of the chart's PriorityClass names it.

    Every user may read that class. The answer is `dovetail-system` if the class has no such annotation, because the
    chart is older or did not create it (`priorityClass.create=false`).
    """
    try:
        found = await cluster.client.get(PRIORITYCLASSES, name=names.PRIORITY_CLASS, as_type=PriorityClass)
    except (NotFound, Forbidden):
        return names.RELEASE_NAMESPACE
    return found.metadata.annotations.get(names.RELEASE, names.RELEASE_NAMESPACE)
