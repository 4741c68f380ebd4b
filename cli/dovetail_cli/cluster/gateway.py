"""Answers of the cluster's gateway, for people who may not list everything.

It counts all jobs of the cluster, and names none that the caller may not list.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from dovetail.kube.errors import Forbidden
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.ui.errors import CommandError, MissingError, NoConnectionError, UsageError

if TYPE_CHECKING:
    from dovetail.sdk.calls.call import Call

T = TypeVar("T")
VARIABLE: Final = "DOVETAIL_GATEWAY"
HOW: Final = f"the gateway can answer: name its URL with --gateway, {VARIABLE} or `dovetail config set gateway URL`"


def address(option: str | None, *, profile: str | None) -> str | None:
    """The gateway's URL: of the option, the environment, or the profile; None if none names it."""
    return option or os.environ.get(VARIABLE) or profile


class UnansweredError(CommandError):
    """The caller may not read what the answer takes, and no gateway is named."""


async def answered(
    cluster: Cluster,
    *,
    here: Callable[[], Awaitable[T]],
    there: "Callable[[], Awaitable[Call[T]]]",
    url: Callable[[], Awaitable[str | None]],
) -> T:
    """The answer of `here`, or else that of the gateway at `url` to the call `there`.

    `here` computes it from what the caller reads. Both have the same type and say the same, but for names that the
    gateway hides. Raises `UnansweredError`, and what `ask` raises.
    """
    try:
        return await here()
    except Forbidden as error:
        named = await url()
        if named is None:
            raise UnansweredError(f"not allowed: {error.message}; {HOW}") from error
    return await ask(cluster, url=named, call=await there())


async def ask(cluster: Cluster, *, url: str, call: "Call[T]") -> T:
    """The gateway's answer to the caller's token.

    Raises `NoConnectionError`, `MissingError`, `UsageError` for a URL that is none, and `CommandError`.
    """
    from dovetail.sdk import errors
    from dovetail.sdk.aio.client import AsyncClient

    # A login program may run, which blocks.
    token = await asyncio.to_thread(cluster.client.connection.read_token)
    try:
        async with AsyncClient(url, token=token) as client:
            return await client.send(call)
    except errors.SettingsError as error:
        raise UsageError(str(error)) from error
    except errors.UnreachableError as error:
        raise NoConnectionError(str(error)) from error
    except errors.NotFoundError as error:
        raise MissingError(error.message) from error
    except errors.UnauthorizedError as error:
        message = f"the gateway at {url} does not accept your token: {error.message}"
        raise NoConnectionError(message if token else f"{message}; this kubeconfig has none") from error
    except errors.DovetailError as error:
        raise CommandError(f"the gateway refuses: {error}") from error
