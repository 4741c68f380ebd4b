"""Requests about several objects: each is made, whatever becomes of the others."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from dovetail_cli.ui import error_messages
from dovetail_cli.ui.errors import CommandError

T = TypeVar("T")


async def each(requests: Mapping[str, Awaitable[T]]) -> tuple[dict[str, T], CommandError | None]:
    """The results by object, and one error about all that failed.

    The keys are the objects as people know them. Report the results before you raise the error, whose exit code is that
    of the first failure.
    """
    found = await asyncio.gather(*requests.values(), return_exceptions=True)
    done: dict[str, T] = {}
    failed: dict[str, CommandError] = {}
    for name, result in zip(requests, found, strict=True):
        if isinstance(result, Exception):
            failed[name] = error_messages.explain(result)
        elif isinstance(result, BaseException):
            raise result
        else:
            done[name] = result
    if not failed:
        return done, None
    kind = type(next(iter(failed.values())))
    return done, kind("; ".join(f"{name}: {error}" for name, error in failed.items()))
