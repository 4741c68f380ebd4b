"""Measure what one hostile account with many tokens costs the other users of a gateway.

A sandbox with a real API server gets namespaces with a GPUJob each, and users who may edit one namespace each. All of
them ask the sandbox's own gateway from one address, as behind an Ingress that it does not know: lists, nodes, `me`,
and now and then a dry run. In every other phase one account that may edit a namespace of its own sends on all of its
tokens at once, without a pause: lists, namespaces that it names, and dry runs of gangs of 1,024 workers.

The ratio of the others' times with and without that account is of one run, in which the phases alternate. All programs
of the measurement get a higher priority, where that is permitted: on a machine that does other work, the gateway would
mostly wait for a processor.
SelfSubjectAccessReviews are counted by the API server's own metric.

    python benchmarks/gateway_users.py [--namespaces 300] [--users 50] [--tokens 100] [--seconds 30] [--rounds 2]
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))

from dovetail.api.resources import GPUJOBS, NAMESPACES, ROLEBINDINGS, SERVICEACCOUNTS
from dovetail.kube.auth.connection import Connection, load_connection
from dovetail.kube.client import Client
from dovetail.kube.errors import AlreadyExists, ServerFault
from dovetail_gateway.access.reviews import ALLOWED_SECONDS, MOST_DENIED, SETTLING_SECONDS
from dovetail_sandbox import access
from dovetail_sandbox.cluster import Cluster
from tests.cluster.jobs import manifest
from tests.cluster.sandboxes import sandbox_with

AT_ONCE = 16
PATIENCE_SECONDS = 120
THINK_SECONDS = (0.5, 1.5)
GANG = 1024
PRIORITY = -10
REVIEWS = re.compile(r'^apiserver_request_total\{.*resource="selfsubjectaccessreviews".*\} ([0-9.e+]+)$', re.MULTILINE)
# What an ordinary user asks for, by how often.
ASKED = {"jobs": 10, "nodes": 5, "me": 4, "dry run": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many namespaces, users and tokens of the hostile account there are, and how long each phase takes."""

    namespaces: int = 300
    users: int = 50
    tokens: int = 100
    seconds: float = 30.0
    rounds: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Tokens: of each user one, of the hostile account many. Each user has the namespace of its number."""

    namespaces: Sequence[str]
    users: Sequence[str]
    hostile: Sequence[str]


@dataclass(slots=True)
class Phase:
    """What the users met in one kind of phase: seconds by kind of request, and the statuses of all answers."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in ASKED})
    statuses: Counter[int] = field(default_factory=Counter)
    hostile: Counter[int] = field(default_factory=Counter)

    def add(self, other: "Phase") -> None:
        """Count another phase of the kind too."""
        for kind, times in other.seconds.items():
            self.seconds[kind] += times
        self.statuses += other.statuses
        self.hostile += other.hostile


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The times of one kind of request in milliseconds, without and with the hostile account."""

    request: str
    count: int
    quiet_p50: float
    quiet_p99: float
    hostile_p50: float
    hostile_p99: float

    @property
    def ratio(self) -> float:
        """By how much the hostile account makes the slowest in a hundred slower."""
        return self.hostile_p99 / self.quiet_p99

    def row(self) -> str:
        """A row of the table in Markdown."""
        times = f"{self.quiet_p50:.0f}, {self.quiet_p99:.0f} | {self.hostile_p50:.0f}, {self.hostile_p99:.0f}"
        return f"| {self.request} | {self.count} | {times} | {self.ratio:.2f} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The whole result; `reviews` were counted at the API server, of at most `most_reviews`."""

    figures: Sequence[Figures]
    reviews: int
    most_reviews: int
    statuses: dict[int, int]
    hostile: dict[int, int]

    def table(self) -> str:
        """For people, in Markdown."""
        head = [
            "| request of a user | number | p50, p99 in ms | with the hostile account | p99, ratio |",
            "|---|---|---|---|---|",
        ]
        reviews = f"SelfSubjectAccessReviews: {self.reviews:,}, at most {self.most_reviews:,}."
        answers = f"Answers to users by status: {self.statuses}; to the hostile account: {self.hostile}."
        return "\n".join([*head, *(each.row() for each in self.figures), "", reviews, answers])


def most_reviews(sizes: Sizes, *, seconds: float) -> int:
    """The most SelfSubjectAccessReviews that all of them cost in a run of so many seconds, below five minutes.

    Each identity is asked once a minute about all namespaces, about its own, and about streams; once about the
    namespaces that no RoleBinding names it in, and once about each one that the hostile account names.
    """
    minutes = int(seconds / (0.9 * ALLOWED_SECONDS)) + 1
    return (sizes.users + 1) * (2 * minutes + MOST_DENIED) + sizes.namespaces


async def measure(sandbox: Cluster, *, sizes: Sizes) -> Result:
    """Prepare, warm up, and let phases without and with the hostile account alternate."""
    connection = load_connection(sandbox.kubeconfig)
    pids = [os.getpid(), *(each.pid for each in sandbox.status().components if each.pid)]
    with preferred(pids):
        async with Client(connection) as client, crowd_session() as session:
            accounts = await prepare(client, sizes=sizes)
            try:
                load = Load(session, url=sandbox.status().gateway, accounts=accounts)
                # Denials count little until all know of the new RoleBindings.
                await asyncio.sleep(SETTLING_SECONDS)
                before, began = await reviews_of(session, api_server=connection), time.monotonic()
                await load.until_known()
                await load.phase(seconds=min(5.0, sizes.seconds), hostile=False)
                quiet, loud = Phase(), Phase()
                for _ in range(sizes.rounds):
                    quiet.add(await load.phase(seconds=sizes.seconds, hostile=False))
                    loud.add(await load.phase(seconds=sizes.seconds, hostile=True))
                counted, took = await reviews_of(session, api_server=connection) - before, time.monotonic() - began
            finally:
                await remove(client, accounts=accounts)
    return Result(
        figures=figures_of(quiet, loud=loud),
        reviews=counted,
        most_reviews=most_reviews(sizes, seconds=took),
        statuses=dict(quiet.statuses + loud.statuses),
        hostile=dict(loud.hostile),
    )


def figures_of(quiet: Phase, *, loud: Phase) -> list[Figures]:
    """The figures of all requests together, and of each kind."""

    def made(request: str, alone: Sequence[float], crowded: Sequence[float]) -> Figures:
        return Figures(
            request=request,
            count=len(alone) + len(crowded),
            quiet_p50=1000 * median(alone),
            quiet_p99=1000 * quantiles(alone, n=100)[-1],
            hostile_p50=1000 * median(crowded),
            hostile_p99=1000 * quantiles(crowded, n=100)[-1],
        )

    every = [[each for times in phase.seconds.values() for each in times] for phase in (quiet, loud)]
    kinds = [made(kind, quiet.seconds[kind], loud.seconds[kind]) for kind in ASKED if len(loud.seconds[kind]) > 1]
    return [made("all", *every), *kinds]


def crowd_session() -> aiohttp.ClientSession:
    """Connections as many clients would have them, without a limit on this side."""
    connector = aiohttp.TCPConnector(limit=0)
    return aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60))


def attack(url: str, accounts: Accounts, seconds: float, answers: "multiprocessing.Queue[Counter[int]]") -> None:
    """Be the hostile account for so long, in a process of its own, and say how often it got which status."""

    async def run() -> Counter[int]:
        async with crowd_session() as session:
            return await Load(session, url=url, accounts=accounts).attack(seconds=seconds)

    answers.put(asyncio.run(run()))


class Load:
    """Users, and the hostile account."""

    def __init__(self, session: aiohttp.ClientSession, *, url: str, accounts: Accounts) -> None:
        self._session = session
        self._url = url
        self._accounts = accounts
        self._rng = random.Random(1)

    async def until_known(self) -> None:
        """Return once every user is answered: the API server hears of their rights in its own time."""

        async def known(token: str) -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await self._ask("GET", "/api/v3/jobs", token=token) != 200:  # noqa: ASYNC110 - of another process
                    await asyncio.sleep(1.0)

        await in_parts(known(token) for token in [*self._accounts.users, self._accounts.hostile[0]])

    async def phase(self, *, seconds: float, hostile: bool) -> Phase:
        """Be the users for so long, next to the hostile account or alone."""
        found, ends_at = Phase(), time.monotonic() + seconds
        answers: multiprocessing.Queue[Counter[int]] = multiprocessing.Queue()
        attacker = multiprocessing.Process(target=attack, args=(self._url, self._accounts, seconds, answers))
        if hostile:
            attacker.start()
        users = range(len(self._accounts.users))
        await asyncio.gather(*(self._user(at, phase=found, ends_at=ends_at) for at in users))
        if hostile:
            found.hostile = await asyncio.to_thread(answers.get, timeout=PATIENCE_SECONDS)
            await asyncio.to_thread(attacker.join)
        return found

    async def attack(self, *, seconds: float) -> Counter[int]:
        """Send on all tokens of the hostile account at once, for so long."""
        found, ends_at = Counter[int](), time.monotonic() + seconds
        await asyncio.gather(*(self._attack(token, found=found, ends_at=ends_at) for token in self._accounts.hostile))
        return found

    async def _user(self, at: int, *, phase: Phase, ends_at: float) -> None:
        token, namespace = self._accounts.users[at], self._accounts.namespaces[at]
        paths = {"jobs": "/api/v3/jobs", "nodes": "/api/v3/nodes", "me": "/api/v3/me"}
        await asyncio.sleep(self._rng.uniform(0, THINK_SECONDS[1]))
        while time.monotonic() < ends_at:
            (kind,) = self._rng.choices(list(ASKED), weights=list(ASKED.values()))
            began = time.perf_counter()
            if kind == "dry run":
                status = await self._dry_run(token, namespace=namespace, workers=self._rng.choice((1, 2, 4)))
            else:
                status = await self._ask("GET", paths[kind], token=token)
            phase.seconds[kind].append(time.perf_counter() - began)
            phase.statuses[status] += 1
            await asyncio.sleep(self._rng.uniform(*THINK_SECONDS))

    async def _attack(self, token: str, *, found: Counter[int], ends_at: float) -> None:
        own = self._accounts.namespaces[len(self._accounts.users)]
        while (left := ends_at - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    named = self._rng.choice(self._accounts.namespaces)
                    found[await self._ask("GET", f"/api/v3/jobs?namespace={named}", token=token)] += 1
                    found[await self._dry_run(token, namespace=own, workers=GANG)] += 1
            except TimeoutError:
                return

    async def _dry_run(self, token: str, *, namespace: str, workers: int) -> int:
        template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
        body = {"namespace": namespace, "spec": {"gpu": 1, "workers": workers, "template": template}}
        return await self._ask("POST", "/api/v3/dry-run", token=token, json=body)

    async def _ask(self, method: str, path: str, *, token: str, **options: Any) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        try:
            async with self._session.request(method, self._url + path, headers=headers, **options) as response:
                await response.read()
                return response.status
        except aiohttp.ClientError:
            return 0


async def prepare(client: Client, *, sizes: Sizes) -> Accounts:
    """The namespaces, a GPUJob in each, and the accounts of the first ones."""
    run = f"load-{random.SystemRandom().randrange(16**6):06x}"
    namespaces = [f"{run}-{at}" for at in range(sizes.namespaces)]

    async def namespace(name: str) -> None:
        await client.create(NAMESPACES, body={"metadata": {"name": name}}, as_type=dict[str, Any])
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await submitted(name):  # noqa: ASYNC110 - of another process
                await asyncio.sleep(1.0)

    async def submitted(name: str) -> bool:
        """Whether the job is there; the webhook may be busy."""
        body = manifest("job", suspend=True)
        try:
            await client.create(GPUJOBS, body=body, as_type=dict[str, Any], namespace=name)
        except ServerFault:
            return False
        except AlreadyExists:
            return True
        return True

    async def account(name: str) -> None:
        body: dict[str, Any] = {"metadata": {"name": "user"}}
        await client.create(SERVICEACCOUNTS, body=body, as_type=dict[str, Any], namespace=name)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        subject = {"kind": "ServiceAccount", "name": "user", "namespace": name}
        body = {"metadata": {"name": "user"}, "roleRef": role, "subjects": [subject]}
        await client.create(ROLEBINDINGS, body=body, as_type=dict[str, Any], namespace=name)

    async def token(name: str) -> str:
        return await access.token_of(client, account="user", namespace=name, seconds=3600)

    await in_parts(map(namespace, namespaces))
    await in_parts(map(account, namespaces[: sizes.users + 1]))
    users = await in_parts(map(token, namespaces[: sizes.users]))
    hostile = await in_parts(token(namespaces[sizes.users]) for _ in range(sizes.tokens))
    return Accounts(namespaces=namespaces, users=users, hostile=hostile)


async def remove(client: Client, *, accounts: Accounts) -> None:
    """Delete the namespaces with all that is in them."""
    await in_parts(client.delete(NAMESPACES, name=name) for name in accounts.namespaces)


async def in_parts(calls: Iterable[Awaitable[Any]]) -> list[Any]:
    """The results of the calls, of which a few run at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(call: Awaitable[Any]) -> Any:
        async with slots:
            return await call

    return list(await asyncio.gather(*map(one, calls)))


@contextmanager
def preferred(pids: Collection[int]) -> Iterator[None]:
    """Give the sessions of the processes a higher priority inside the block, where that is permitted.

    Linux shares processors among sessions first (autogroups, sched(7)), so the priority of a process is that within its
    session.
    """

    def set_all(priority: int) -> None:
        for pid in pids:
            with suppress(OSError):
                Path(f"/proc/{pid}/autogroup").write_text(str(priority))

    set_all(PRIORITY)
    try:
        yield
    finally:
        set_all(0)


async def reviews_of(session: aiohttp.ClientSession, *, api_server: Connection) -> int:
    """How many SelfSubjectAccessReviews the API server has answered."""
    url, tls = f"{api_server.server}/metrics", api_server.ssl_context()
    async with session.get(url, ssl=tls if tls is not None else True) as response:
        response.raise_for_status()
        text = await response.text()
    return round(sum(map(float, REVIEWS.findall(text))))


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in asdict(Sizes()).items():
        options.add_argument(f"--{name}", type=type(value), default=value)
    options.add_argument("--json", type=Path, default=Path("out/gateway_users.json"), help="where it is written too")
    args = vars(options.parse_args())
    path = args.pop("json")
    with sandbox_with() as sandbox:
        result = asyncio.run(measure(sandbox, sizes=Sizes(**args)))
    print(result.table())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(result), indent=2) + "\n")


if __name__ == "__main__":
    main()
