"""Where the console shows a job, for links on a terminal."""

from dovetail.answers.jobs import console_url
from dovetail.api.gpujob import GPUJob
from dovetail_cli.cluster import gateway as gateways
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui.errors import CommandError


def page_of(cluster: Cluster, *, job: GPUJob) -> str | None:
    """The address of the job's page; None if nothing on this machine names a gateway.

    Asks no server, so a profile of the namespace does not count.
    """
    url = gateways.address(None, profile=None) or cluster.client.connection.gateway_url or _of_profile()
    return console_url(url, namespace=job.metadata.namespace, name=job.metadata.name) if url else None


def _of_profile() -> str | None:
    # YAML is behind it, which the queue of this machine and a sandbox do without.
    from dovetail_cli.submit.profiles import effective

    try:
        return effective.of_user().profile.gateway
    except CommandError:
        # What is wrong with the profile is for the command that needs it.
        return None
