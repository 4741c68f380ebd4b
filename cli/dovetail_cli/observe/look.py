"""A look at the cluster that the options of a command name."""

from functools import partial

from dovetail.answers.observe import Adoption, Forecast, Observation
from dovetail.kube.queries.observed import read_observed
from dovetail.query.explain.observe.adoption import AdoptionError, adoption
from dovetail.query.explain.observe.observation import observation
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui.errors import CommandError
from dovetail_cli.ui.progress import patiently
from dovetail_cli.ui.times import utc_now


def take(*, kubeconfig: str | None, context: str | None, namespace: str | None) -> Observation:
    """Take the look. Raises `CommandError` where neither nodes nor pods may be listed."""
    return work(look, kubeconfig=kubeconfig, context=context, namespace=namespace)


async def look(cluster: Cluster) -> Observation:
    """Look at a cluster. Raises `CommandError` where neither nodes nor pods may be listed."""
    with patiently() as say:
        say("Reading nodes and pods …")
        seen = await read_observed(cluster.client, namespace=cluster.namespace)
    if seen.blind:
        raise CommandError(
            f"you may list neither nodes nor pods, not even the pods of namespace {cluster.namespace}: "
            "examples/observe.yaml has the ClusterRole that a look needs"
        )
    return observation(seen, now=utc_now())


def forecast_of(*, kubeconfig: str | None, context: str | None) -> Forecast:
    """What would have started sooner. Raises `CommandError` without pods to replay, or a right."""
    return work(report, kubeconfig=kubeconfig, context=context)


async def report(cluster: Cluster) -> Forecast:
    """Replay the pods of a cluster. Raises `CommandError`."""
    # NumPy and the engine, which a look does not need.
    from dovetail.simulator.kueue_queues import KueueQueues
    from dovetail.simulator.observed_replay import forecast

    with patiently() as say:
        say("Reading nodes and pods …")
        seen = await read_observed(cluster.client, namespace=cluster.namespace)
        if seen.nodes is None or not seen.everywhere:
            lacks = "nodes" if seen.nodes is None else "pods of all namespaces"
            raise CommandError(
                f"you may not list {lacks}: examples/observe.yaml has the ClusterRole that a report needs"
            )
        say(f"Replaying {len(seen.pods):,} pods …")
        kueue = KueueQueues(workloads=seen.workloads, clusterqueues=seen.clusterqueues)
        found = forecast(seen.nodes, pods=seen.pods, kueue=kueue, now=utc_now())
    if found is None:
        raise CommandError("this cluster has no pod with GPUs of a device plugin, so there is nothing to replay")
    return found


def adoption_of(node: str, *, kubeconfig: str | None, context: str | None) -> Adoption:
    """The steps of `dovetail adopt`. Raises `CommandError` for a node that cannot move."""
    return work(partial(steps, node=node), kubeconfig=kubeconfig, context=context)


async def steps(cluster: Cluster, *, node: str) -> Adoption:
    """The steps for one node of a cluster. Raises `CommandError`."""
    with patiently() as say:
        say("Reading nodes and pods …")
        seen = await read_observed(cluster.client, namespace=cluster.namespace)
    if seen.nodes is None or not seen.everywhere:
        lacks = "nodes" if seen.nodes is None else "pods of all namespaces"
        raise CommandError(f"you may not list {lacks}: examples/observe.yaml has the ClusterRole that this needs")
    try:
        return adoption(seen, node=node)
    except AdoptionError as error:
        raise CommandError(str(error)) from error
