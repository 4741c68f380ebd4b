"""HTTP to servers that are not the cluster's API server: an OpenID provider, a Prometheus."""

from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp

from dovetail.kube.auth import trust


class OutgoingClient:
    """What asks one such server. Use it in `async with`; `_http` is the session inside of it, and else None."""

    def __init__(self, *, ca_file: Path | None, seconds: float) -> None:
        self._ca_file = ca_file
        self._seconds = seconds
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        context = trust.client_context(ca_file=None if self._ca_file is None else str(self._ca_file))
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context), timeout=aiohttp.ClientTimeout(total=self._seconds)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.close()
