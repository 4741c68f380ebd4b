"""A gateway whose sampler runs under a clock that tests move."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from dovetail.config.settings import Settings
from dovetail_gateway.app import Options
from dovetail_gateway.samples.sampler import Sampler
from dovetail_gateway.samples.store import SampleStore
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face, serving

# A Sunday, at midnight.
BEGIN = datetime(2026, 11, 1, tzinfo=UTC)


@dataclass
class Clock:
    """The time of the gateway: that of the tests, until it `runs` like every clock."""

    now: datetime = field(default=BEGIN)
    runs: bool = False

    def __call__(self) -> datetime:
        return datetime.now(UTC) if self.runs else self.now

    def move(self, **by: float) -> datetime:
        self.now += timedelta(**by)
        return self.now

    @property
    def text(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Sampled:
    """A gateway in front of an API server, and its clock."""

    face: Face
    api: GatewayApiServer
    clock: Clock

    async def steps(self, count: int, *, seconds: float = 30, before: Callable[[int], None] | None = None) -> None:
        """Take so many samples, one after each move of the clock."""
        for step in range(count):
            if before is not None:
                before(step)
                await self.face.until_like(self.api)
            await self.face.made.sampler.sample()
            self.clock.move(seconds=seconds)

    def load(self, node: str, *loads: float, **figures: Any) -> None:
        """The devices of a node report these utilizations."""
        report = self.api.objects["gpunodes"][node]
        for device, load in zip(report["status"]["devices"], loads, strict=False):
            device.update({"utilization": load} | figures)
        self.api.put("gpunodes", report)

    async def series(self, query: str, *, token: str = "admin-token", status: int = 200) -> Any:
        found = await self.face.get(f"/api/v3/series?{query}", token=token)
        assert found.status == status, found.text
        return found.json

    async def moment(self, at: str) -> Any:
        found = await self.face.get(f"/api/v3/devices/then?at={at}", token="red-token")
        assert found.status == 200, found.text
        return found.json

    async def usage(self, query: str = "", *, token: str = "admin-token", status: int = 200) -> Any:
        found = await self.face.get(f"/api/v3/usage?{query}", token=token)
        assert found.status == status, found.text
        return found.json


# How often a week is sampled: half-hourly, in its last day every five minutes, in its last hour every 30 s.
WEEK: Final = ((6 * 86_400, 1800), (82_800, 300), (3600, 30))


async def week_of(clock: Clock) -> AsyncIterator[datetime]:
    """The times at which the week before now is sampled; the clock has each of them in turn, and then runs."""
    clock.now = datetime.now(UTC) - timedelta(days=7)
    for span, seconds in WEEK:
        for _ in range(span // seconds):
            yield clock.now
            clock.move(seconds=seconds)
    clock.runs = True


async def sample_week(sampler: Sampler, clock: Clock, *, before: Callable[[datetime], Awaitable[None]]) -> None:
    """Let the sampler sample the week before now; `before` each sample, the cluster changes."""
    async for now in week_of(clock):
        await before(now)
        await sampler.sample()


@asynccontextmanager
async def sampling(
    api: GatewayApiServer,
    *,
    file: Path | None = None,
    clock: Clock | None = None,
    options: Options | None = None,
    **settings: Any,
) -> AsyncIterator[Sampled]:
    """A gateway that has taken what is in the database."""
    clock = clock or Clock()
    store = None if file is None else SampleStore(f"sqlite:///{file}")
    async with serving(api, options=options, store=store, now=clock, settings=Settings(**settings)) as face:
        await face.made.sampler._restore()
        try:
            yield Sampled(face, api, clock)
        finally:
            face.made.sampler.close()
