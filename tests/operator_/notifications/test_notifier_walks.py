"""Notifications over hours of virtual time: whatever fails, is late or goes, each change is told, and told once.

Jobs of two namespaces with the same names start, are preempted, end, go and come again. Mails and writes fail for a
while, events are late, and other writers change statuses. In the end every change of the last version that the notifier
has seen is sent or given up, the status notes it, and of deleted jobs nothing is kept.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pytest
from prometheus_client import CollectorRegistry

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import EventType
from dovetail.kube.client import Client
from dovetail.kube.errors import ServerFault, Status
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.notifications.messages import Letter, due
from dovetail_operator.notifications.notifier import _BACKOFF, HOUR_SECONDS, MailRules, Notifier
from dovetail_operator.notifications.transports import SendError
from tests import virtual_time
from tests.background import running
from tests.operator_.builders import at
from tests.seeds import seeds
from tests.world.api import ApiClient, ApiServer, Values, as_typed

EVENTS: Final = ["Started", "Succeeded", "Failed", "TimedOut", "Cancelled", "Preempted"]
KEYS: Final = [f"{namespace}/{name}" for namespace in ("team", "lab") for name in ("x", "y")]
# Longer than all tries of one message take.
SETTLED_SECONDS: Final = 4 * HOUR_SECONDS


@dataclass
class Post:
    """A mail server that fails for a while, or for good on some messages."""

    rng: random.Random
    is_well: bool = False
    sent: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    times: list[tuple[float, str]] = field(default_factory=list)
    # Of each letter: how often it has failed, and when that was the last time.
    failed: dict[str, tuple[int, float]] = field(default_factory=dict)
    hasty: list[str] = field(default_factory=list)
    where: str = "here"

    async def send(self, letter: Letter) -> None:
        self._check_pause(letter)
        await asyncio.sleep(self.rng.choice([0.0, 0.1, 5.0]))
        if letter.id in self.refused or (not self.is_well and self.rng.random() < 0.05):
            self.refused.add(letter.id)
            raise SendError("never", final=True)
        if not self.is_well and self.rng.random() < 0.4:
            count, _ = self.failed.get(letter.id, (0, 0.0))
            self.failed[letter.id] = count + 1, virtual_time.clock()
            raise SendError("later", final=False)
        self.sent.append(letter.id)
        self.times.append((virtual_time.clock(), letter.facts["namespace"]))

    def _check_pause(self, letter: Letter) -> None:
        """Whatever happens to the job meanwhile, each try waits longer than the one before it."""
        count, failed_at = self.failed.get(letter.id, (0, 0.0))
        if count:
            # A pause is shortened by up to half.
            least = min(_BACKOFF.longest_seconds, _BACKOFF.first_seconds * 2 ** (count - 1)) / 2
            if virtual_time.clock() - failed_at < least:
                self.hasty.append(f"{letter.id} is tried {virtual_time.clock() - failed_at:g} s after failure {count}")


class Walk:
    """The API server, its watch, and what happens to jobs."""

    def __init__(self, seed: int, *, rules: MailRules) -> None:
        self.rng = random.Random(seed)
        self.server = ApiServer(lambda: at(0))
        self.server.objects["namespaces"] = {name: {"metadata": {"name": name}} for name in ("team", "lab")}
        self.server.watches.append(self._tell)
        self.post = Post(self.rng)
        self.events: list[Announcement] = []
        self.registry = CollectorRegistry()
        self.news: asyncio.Queue[tuple[EventType, GPUJob]] = asyncio.Queue()
        # By UID: what the last version that was seen has to tell, and what any version had.
        self.owed: dict[str, set[str]] = {}
        self.ever: set[str] = set()
        client = ApiClient(self.server, before=self._before, after=self._after)
        self.notifier = Notifier(
            cast("Client", client), sender=self.post, post=self.events.append, registry=self.registry,
            rng=self.rng, rules=rules, clock=virtual_time.clock,
        )  # fmt: skip

    # --- the API server ----------------------------------------------------------------------------------------

    async def _before(self) -> None:
        await asyncio.sleep(self.rng.choice([0.0, 0.0, 1.0]))
        if not self.post.is_well and self.rng.random() < 0.1:
            raise ServerFault(Status(code=500, message="later"))

    async def _after(self, _what: str) -> None:
        await asyncio.sleep(self.rng.choice([0.0, 0.0, 1.0]))

    def _tell(self, plural: str, type_: EventType, values: Values) -> None:
        if plural == "gpujobs":
            self.news.put_nowait((type_, as_typed(plural, values)))

    async def watch(self) -> None:
        while True:
            type_, job = await self.news.get()
            await asyncio.sleep(self.rng.choice([0.0, 0.5, 3.0]))
            uid = job.metadata.uid
            found = {f"{uid}/{change.key}" for change in due(job)}
            self.ever |= found
            if type_ == "DELETED":
                self.notifier.drop(job)
            else:
                self.owed[uid] = {each for each in found if each not in self.post.sent}
                self.notifier.observe(job)

    # --- jobs --------------------------------------------------------------------------------------------------

    def status(self, key: str, **changes: Any) -> None:
        """Another writer changes the status, and keeps what is noted."""
        self.server.change("gpujobs", key, lambda values: values["status"].update(changes))

    def step(self) -> None:
        key = self.rng.choice(KEYS)
        job = self.server.find("gpujobs", key)
        if job is None:
            self.create(key)
            return
        phase = job["status"].get("phase", "Queued")
        again = {"startTime": at(self.rng.randint(1000, 2000)), "completionTime": None}
        match self.rng.choice(["go on", "go on", "go on", "delete", "touch", "preempt", "retry"]):
            case "delete" if phase in EVENTS:
                self.server.delete("gpujobs", key)
            case "preempt" if phase == "Running":
                count = (job["status"].get("preemption") or {}).get("count", 0) + 1
                made = {"count": count, "lastTime": at(900 * count), "by": "u", "message": "for job 9"}
                self.status(key, phase="Preempted", preemption=made)
            case "retry" if phase == "Running":
                self.status(key, attempt=job["status"].get("attempt", 1) + 1, **again)
            case "go on" if phase in ("Queued", "Preempted"):
                self.status(key, phase="Running", **again | {"startTime": at(900 * 4)})
            case "go on" if phase == "Running":
                self.status(key, phase=self.rng.choice(EVENTS[1:5]), completionTime=at(9000))
            case _:
                self.status(key, reason=str(self.rng.random()))

    def create(self, key: str) -> None:
        namespace, name = key.split("/")
        asked = {"emails": self.rng.choice([["a@b.org"], ["a@b.org", "c@d.org"]])}
        asked["events"] = self.rng.sample(EVENTS, self.rng.choice([2, 4, 6]))
        notify = {"notify": asked} if self.rng.random() < 0.9 else {}
        spec = {"template": {"spec": {}}, **notify}
        values = {"metadata": {"name": name, "namespace": namespace}, "spec": spec, "status": {"phase": "Queued"}}
        self.server.create("gpujobs", values)

    def kept(self) -> dict[str, Any]:
        """What the notifier keeps of jobs."""
        return {name: value for name, value in vars(self.notifier).items() if isinstance(value, dict | set) and value}

    def given_up(self) -> set[str]:
        return {f"{each.about.uid}/{each.message.split()[3]}" for each in self.events if "was not sent" in each.message}


async def walk_of(seed: int, *, rules: MailRules) -> Walk:
    walk = Walk(seed, rules=rules)
    async with running(walk.notifier.run()), running(walk.watch()):
        for _ in range(60):
            walk.step()
            await asyncio.sleep(walk.rng.choice([0.0, 1.0, 10.0, 300.0, 2000.0]))
        walk.post.is_well = True
        await asyncio.sleep(SETTLED_SECONDS)
        for job in walk.server.typed("gpujobs"):
            assert due(job) == [], f"{job.metadata.name} does not note {due(job)}"
        for key in list(walk.server.objects["gpujobs"]):
            walk.server.delete("gpujobs", key)
        await asyncio.sleep(SETTLED_SECONDS)
    return walk


@seeds(15)
def test_each_change_that_was_seen_last_is_told_once_or_given_up_with_an_event(seed: int) -> None:
    walk = virtual_time.run(walk_of(seed, rules=MailRules(per_hour=10_000)))
    assert not walk.post.hasty
    times = Counter(walk.post.sent)
    assert all(count == 1 for count in times.values()), times
    assert set(times) <= walk.ever
    owed = {each for found in walk.owed.values() for each in found}
    assert owed <= set(times) | walk.post.refused
    assert walk.given_up() == {"/".join(each.split("/")[:2]) for each in walk.post.refused}
    assert walk.kept() == {}
    count = walk.registry.get_sample_value
    assert count("dovetail_notifications_total", {"outcome": "sent"}) == len(times)
    assert count("dovetail_notifications_total", {"outcome": "failed"}) == len(walk.events) == len(walk.post.refused)


@pytest.mark.parametrize("seed", range(15, 22))
def test_within_any_hour_no_namespace_gets_more_mails_than_it_may_and_all_of_that(seed: int) -> None:
    walk = virtual_time.run(walk_of(seed, rules=MailRules(per_hour=4)))
    assert walk.kept() == {}
    for now, namespace in walk.post.times:
        recent = [then for then, who in walk.post.times if who == namespace and now - HOUR_SECONDS < then <= now]
        assert len(recent) <= 4
    limited = walk.registry.get_sample_value("dovetail_notifications_total", {"outcome": "limited"})
    assert set(walk.post.sent) <= walk.ever
    assert bool(limited) == any(each.reason == "NotificationsLimited" for each in walk.events)
