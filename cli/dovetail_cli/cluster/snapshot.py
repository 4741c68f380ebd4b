"""The whole cluster as it is now, read for one command."""

from dovetail.cluster.objects import ClusterObjects
from dovetail.kube.errors import NotFound
from dovetail.kube.queries.cluster import read_cluster
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.cluster.release import release_namespace
from dovetail_cli.ui.errors import MissingError
from dovetail_cli.ui.progress import Say


async def take(cluster: Cluster, *, say: Say) -> ClusterObjects:
    """Read it all. Raises `MissingError` where Dovetail is not installed."""
    counts: dict[str, int] = {}

    def noted(kind: str, more: int) -> None:
        counts[kind] = counts.get(kind, 0) + more
        say("Reading " + ", ".join(f"{count:,} {kind}" for kind, count in counts.items()) + " …")

    try:
        namespace = await release_namespace(cluster)
        return await read_cluster(cluster.client, release_namespace=namespace, on_page=noted)
    except NotFound as error:
        raise MissingError("this cluster has no GPUNodes: install Dovetail's chart, or name another cluster") from error
