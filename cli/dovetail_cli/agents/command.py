"""`dovetail mcp`: a server of the Model Context Protocol on standard input and output."""

from typing import Annotated

from dovetail_cli.ui.command_line import option
from dovetail_cli.ui.listing_options import Context, Kubeconfig, Namespace


def mcp(
    *,
    read_only: Annotated[bool, option("--read-only", help="Offer only the tools that read.")] = False,
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Serve tools for agents on standard input and output, with your rights.

    They read jobs, nodes, quotas and the history, and explain why a job waits. What changes something takes the id of a
    preview, which says first what the change would do.
    """
    import asyncio

    from dovetail_cli.agents import server
    from dovetail_cli.agents.session import Where

    where = Where(kubeconfig=kubeconfig, context=context, namespace=namespace)
    asyncio.run(server.serve(where, read_only=read_only))
