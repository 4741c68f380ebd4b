"""Measure kopf's workers as the work queue of the controller, in turns with the project's own queue.

kopf gets a session that answers its list and watch of GPUJobs in this process: identity and labels, no spec, no status.
Each key that is added becomes an event of the watch, and `@kopf.on.event` gets the key. The reconcile does nothing, so
what is measured is the way from `add` to the handler. docs/decisions/0011-source-of-gpujobs.md has the result.

- `burst`: all keys are added at once, `--times` times.
- `trickle`: one key after the other, each once it is needed.
- `failing`: how often a handler that raises is called within two seconds.
- `--operator`: CPU of the whole operator for a GPUJob, created to running, with each queue (`operator_cpu.py`).

    python benchmarks/kopf_queue.py [--keys 1000] [--times 4] [--rounds 5] [--operator] [--json FILE]
"""

import argparse
import asyncio
import json
import logging
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import kopf
import operator_cpu
import turns
import uvloop
from counts import count

from dovetail.kube.retry import BACKOFF, Backoff
from dovetail.kube.workqueue import WorkQueue

KINDS = {"namespaces": ("Namespace", False), "gpujobs": ("GPUJob", True)}
HANDS = 64
FAILING_SECONDS = 2.0
THROUGH_KOPF = (
    f"import sys; sys.path.append({str(Path(__file__).parent)!r}); "
    "import dovetail_operator.app, kopf_queue; dovetail_operator.app.WorkQueue = kopf_queue.ThroughKopf; "
) + operator_cpu.PROGRAM

Handle = Callable[[str], Awaitable[None]]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--keys", type=count, default=1000, help="GPUJobs (default: %(default)s)")
    options.add_argument("--times", type=count, default=4, help="events of each in a burst (default: %(default)s)")
    options.add_argument("--rounds", type=count, default=5, help="turns of each queue (default: %(default)s)")
    options.add_argument("--operator", action="store_true", help="the whole operator, with each queue")
    options.add_argument("--json", type=Path, help="where the figures are written too")
    args = options.parse_args()
    logging.getLogger("kopf").setLevel(logging.WARNING)
    found = uvloop.run(operators(args) if args.operator else measure(args))
    print(json.dumps(found, indent=2))
    if args.json:
        args.json.write_text(json.dumps(found, indent=2), encoding="utf-8")


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Medians of CPU milliseconds an event, of all turns."""
    taken: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        for name, start in SOURCES.items():
            keys = [f"team/job-{at}" for at in range(args.keys)]
            handled = Handled()
            async with start(handled) as add:
                taken.setdefault(f"{name} burst", []).append(await burst(keys, add, handled, times=args.times))
                taken.setdefault(f"{name} trickle", []).append(await trickle(keys, add, handled))
    figures = {name: round(statistics.median(each), 3) for name, each in taken.items()}
    return figures | {f"{name} failing": await failing(start) for name, start in SOURCES.items()}


async def operators(args: argparse.Namespace) -> dict[str, Any]:
    """CPU milliseconds of the operator for each GPUJob, in turns."""
    jobs = argparse.Namespace(nodes=50, rate=40.0)
    programs = {"work queue": operator_cpu.PROGRAM, "kopf": THROUGH_KOPF}
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(args.rounds):
        for name, program in programs.items():
            ms = await operator_cpu.turn(operator_cpu.running, checkout=turns.HERE, args=jobs, program=program)
            taken[name].append(round(ms, 2))
            print(name, taken[name][-1], flush=True)
    ratios = [through / own for own, through in zip(*taken.values(), strict=True)]
    return {**taken, "ratio": round(statistics.median(ratios), 3)}


class Handled:
    """The reconcile of this benchmark: counts, and fails for some keys."""

    def __init__(self, *, fails: bool = False) -> None:
        self.count = 0
        self._fails = fails
        self._enough = asyncio.Event()
        self._wanted = sys.maxsize

    async def __call__(self, key: str) -> None:
        self.count += 1
        if self.count >= self._wanted:
            self._enough.set()
        if self._fails:
            raise RuntimeError(f"no status for {key}")

    async def reach(self, count: int) -> None:
        """Wait until that many keys are handled."""
        self._wanted = count
        if self.count < count:
            self._enough.clear()
            async with asyncio.timeout(120):
                await self._enough.wait()


Add = Callable[[str], None]


async def burst(keys: list[str], add: Add, handled: Handled, *, times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        for key in keys:
            add(key)
        await handled.reach(handled.count + len(keys))
    return 1000 * (time.process_time() - began) / (len(keys) * times)


async def trickle(keys: list[str], add: Add, handled: Handled) -> float:
    began = time.process_time()
    for key in keys:
        add(key)
        await handled.reach(handled.count + 1)
    return 1000 * (time.process_time() - began) / len(keys)


async def failing(start: Callable[[Handled], Any]) -> int:
    handled = Handled(fails=True)
    async with start(handled) as add:
        add("team/poison")
        await asyncio.sleep(FAILING_SECONDS)
    return handled.count


@asynccontextmanager
async def by_work_queue(handle: Handle) -> AsyncIterator[Add]:
    queue = WorkQueue()
    serving = asyncio.create_task(
        queue.serve(handle, hands=HANDS, failed=lambda _key, _error, _wait: None, rng=random.Random(7))
    )
    yield queue.add
    serving.cancel()


class Keys:
    """A watch of GPUJobs that consists of the keys to reconcile: each waits in it once."""

    def __init__(self) -> None:
        self._dirty: set[str] = set()
        self._lines: list[bytes] = []
        self._more = asyncio.Event()
        self._version = 0

    def add(self, key: str) -> None:
        """Deliver `key` as a MODIFIED, if none of it waits."""
        if key not in self._dirty:
            self._dirty.add(key)
            namespace, _, name = key.partition("/")
            self._version += 1
            meta = {"namespace": namespace, "name": name, "uid": key, "resourceVersion": str(self._version)}
            found = {"apiVersion": "dovetail.dev/v1beta1", "kind": "GPUJob", "metadata": meta}
            self._lines.append(json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n")
            self._more.set()

    def taken(self, key: str) -> None:
        """Let `key` be added again."""
        self._dirty.discard(key)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            await self._more.wait()
            self._more.clear()
            chunk, self._lines = b"".join(self._lines), []
            yield chunk


class Answer:
    """What kopf reads of an `aiohttp.ClientResponse`."""

    status = 200

    def __init__(self, body: Any, *, keys: Keys | None = None) -> None:
        self._body = body
        self._keys = keys
        self.content = self
        self.closed = False

    async def json(self) -> Any:
        return self._body

    def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        assert self._keys is not None
        return self._keys.chunks()

    def close(self) -> None:
        self.closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()


class Session:
    """What kopf uses of an `aiohttp.ClientSession`: requests are answered here."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.headers = {"User-Agent": "dovetail"}
        self.closed = False

    async def request(self, *, method: str, url: str, **_: Any) -> Answer:
        assert method == "get", f"kopf wants to {method} {url}"
        path, _, query = url.removeprefix("http://in-process").partition("?")
        if "watch=true" in query:
            return Answer(None, keys=self._keys)
        version = {"groupVersion": "dovetail.dev/v1beta1", "version": "v1beta1"}
        kinds = [
            {"name": name, "singularName": "", "kind": kind, "namespaced": namespaced, "verbs": ["list", "watch"]}
            for name, (kind, namespaced) in KINDS.items()
        ]
        bodies: dict[str, Any] = {
            "/api": {"versions": ["v1"]},
            "/api/v1": {"resources": kinds[:1]},
            "/apis": {"groups": [{"name": "dovetail.dev", "versions": [version], "preferredVersion": version}]},
            "/apis/dovetail.dev/v1beta1": {"resources": kinds[1:]},
        }
        return Answer(bodies.get(path, {"metadata": {"resourceVersion": "1"}, "items": []}))

    async def close(self) -> None:
        self.closed = True


class NoDifferences(kopf.DiffBaseStorage):
    """Keeps kopf from computing what has changed in an object."""

    def build(self, **_: Any) -> Any:
        return {}

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def kopf_with(
    *,
    differences: bool = False,
    worker_limit: int | None = None,
    idle_timeout: float = 5.0,
    keys_of: Callable[[], Keys] = Keys,
) -> Callable[[Handle], Any]:
    """A source of keys that kopf's workers handle, with these settings of kopf."""

    @asynccontextmanager
    async def source(handle: Handle) -> AsyncIterator[Add]:
        registry, settings, keys = kopf.OperatorRegistry(), kopf.OperatorSettings(), keys_of()
        settings.scanning.disabled = True
        settings.posting.enabled = False
        settings.queueing.worker_limit = worker_limit
        settings.queueing.idle_timeout = idle_timeout
        if not differences:
            settings.persistence.diffbase_storage = NoDifferences()
        ready, stop = asyncio.Event(), asyncio.Event()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.AiohttpSession:
            session: Any = Session(keys)
            return kopf.AiohttpSession(server="http://in-process", aiohttp_session=session)

        @kopf.on.event("dovetail.dev", "v1beta1", "gpujobs", registry=registry)
        async def changed(*, namespace: str, name: str, **_: Any) -> None:
            key = f"{namespace}/{name}"
            keys.taken(key)
            await handle(key)

        running = asyncio.create_task(
            kopf.operator(
                registry=registry, settings=settings, standalone=True, clusterwide=True,
                identity="benchmark", stop_flag=stop, ready_flag=ready,
            )
        )  # fmt: skip
        await ready.wait()
        yield keys.add
        stop.set()
        await running

    return source


class ThroughKopf(WorkQueue):
    """The controller's queue with kopf's workers. Timers, backoff and coalescing stay: `on.event` has none of them."""

    def __init__(self) -> None:
        super().__init__()
        self._keys = Keys()

    def add(self, key: str, *, first: bool = False) -> None:  # noqa: ARG002 - as in the queue that it replaces
        """Queue `key`. kopf has no order among objects, so `first` is without effect."""
        self._keys.add(key)

    async def serve(
        self,
        handle: Handle,
        *,
        hands: int,  # noqa: ARG002 - as in the queue that it replaces
        failed: Callable[[str, Exception, float], None],
        rng: random.Random,
        backoff: Backoff = BACKOFF,
    ) -> None:
        """Handle keys until cancelled, as many at once as there are: kopf's limit also counts idle workers."""

        async def one(key: str) -> None:
            try:
                await handle(key)
                self._failures.pop(key, None)
            except Exception as error:  # noqa: BLE001 - as in the queue that it replaces
                wait = backoff.seconds(self._failures.get(key, 0), rng=rng)
                self._failures[key] = self._failures.get(key, 0) + 1
                self.add_later(key, seconds=wait)
                failed(key, error, wait)

        async with kopf_with(keys_of=lambda: self._keys)(one):
            await asyncio.Event().wait()


SOURCES: dict[str, Callable[[Handle], Any]] = {
    "work queue": by_work_queue,
    "kopf": kopf_with(differences=True),
    "kopf, no differences": kopf_with(),
    "kopf, 64 workers": kopf_with(worker_limit=HANDS, idle_timeout=0.01),
}


if __name__ == "__main__":
    main()
