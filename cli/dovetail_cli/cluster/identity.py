"""Who the user is, to the API server and to the gateway.

Commands use the API server, and Python programs the gateway.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

from dovetail.api.resources import Resource
from dovetail.query.jobs.selection import Wanted
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import output

_WHO_AM_I: Final = Resource(
    group="authentication.k8s.io", plural="selfsubjectreviews", kind="SelfSubjectReview", namespaced=False
)


async def of_caller(wanted: Iterable[Wanted], *, cluster: Cluster) -> list[Wanted]:
    """The words for jobs, with the user whose last jobs `@` and `@~1` mean."""
    words = list(wanted)
    if all(each.back is None for each in words):
        return words
    user = await username(cluster)
    return [replace(each, user=user) for each in words]


async def username(cluster: Cluster) -> str:
    """The user that the API server takes this one for."""
    review = await cluster.client.create(_WHO_AM_I, body={}, as_type=dict[str, Any])
    return str(review["status"]["userInfo"]["username"])


def show(*, form: str, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """Both identities, and where they come from, in one of the formats."""

    async def go(cluster: Cluster) -> list[dict[str, str]]:
        made = cluster.client.connection
        commands = _row(
            "commands",
            at=made.server,
            user=await username(cluster),
            namespace=cluster.namespace,
            source=made.source,
        )
        return [commands, await asyncio.to_thread(_of_python)]

    rows = work(go, kubeconfig=kubeconfig, context=context, namespace=namespace, brief=True)
    match form:
        case "table":
            lines = [[name.upper() for name in rows[0]], *([*row.values()] for row in rows)]
            return output.table(lines, width=output.terminal_width())
        case "csv":
            return output.as_csv(rows, columns=tuple(rows[0]))
        case _:
            return output.document(rows, form=form)


def _of_python() -> dict[str, str]:
    from dovetail.sdk.blocking.client import Client
    from dovetail.sdk.connection import connection
    from dovetail.sdk.errors import DovetailError

    try:
        made = connection()
        with Client() as client:
            user = client.me().username
    except DovetailError as error:
        return _row("Python", at="", user="", namespace="", source=str(error))
    return _row("Python", at=made.url, user=user, namespace=made.namespace, source=made.source)


def _row(face: str, *, at: str, user: str, namespace: str, source: str) -> dict[str, str]:
    return {"from": face, "at": at, "user": user, "namespace": namespace, "by": source}
