"""Notifies users about their jobs, in parallel to the queue and without delaying it.

Due notifications follow from a job's status alone, which also records the sent ones, so a restarted operator continues.
A message that was sent right before a crash is sent once more, with the same id. A message that cannot be sent is
retried for a while, then dropped with an event.

Addresses outside the allowed domains get none, and each namespace has a number of mails for an hour.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from dovetail.api.gpujob import GPUJob
from dovetail.api.meta import key_of
from dovetail.api.reasons.clause import Sentence
from dovetail.api.reasons.events import DROPPED, NOT_EVERY_ADDRESS, NOT_SENT
from dovetail.api.resources import GPUJOBS
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, NotFound
from dovetail.kube.retry import Backoff
from dovetail.kube.workqueue import WorkQueue
from dovetail.logs import get_logger
from dovetail_operator.events.announcement import Announcement
from dovetail_operator.history import deleted_namespaces
from dovetail_operator.notifications.messages import Change, Letter, due, letter, noted
from dovetail_operator.notifications.transports import Sender, SendError, sender_of

HOUR_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MailRules:
    """The allowed `domains` and the number of mails.

    An empty list allows every domain; `*.example.org` means every domain below example.org. `per_hour` is how many
    mails each namespace may send within an hour. A mail to several addresses counts once for each.
    """

    domains: Sequence[str] = ()
    per_hour: int = 60

    def admits(self, address: str) -> bool:
        """Whether mails may go to that address."""
        domain = address.rpartition("@")[2].lower()
        return not self.domains or any(
            domain.endswith(allowed[1:]) if allowed.startswith("*.") else domain == allowed for allowed in self.domains
        )


ANYBODY: Final = MailRules()


@dataclass(slots=True)
class _Sent:
    # The time and size of each batch of mails, the latest last.
    batches: deque[tuple[float, int]]
    total: int = 0


class Allowance:
    """How many mails each namespace may still send.

    Has at most one entry per mail of the last hour.
    """

    def __init__(self, *, per_hour: int, clock: Callable[[], float]) -> None:
        self._per_hour = per_hour
        self._clock = clock
        self._sent: dict[str, _Sent] = {}
        # When it was last reported that a namespace has sent too many.
        self._said: dict[str, float] = {}

    def take(self, namespace: str, *, mails: int) -> bool:
        """Count these mails if there is room for all of them. Returns whether there is."""
        self._tidy()
        sent = self._sent.get(namespace)
        if (sent.total if sent else 0) + mails > self._per_hour:
            return False
        if sent is None:
            sent = self._sent[namespace] = _Sent(deque())
        sent.batches.append((self._clock(), mails))
        sent.total += mails
        return True

    def give_back(self, namespace: str, *, mails: int) -> None:
        """Undo the last count of so many mails, which were not sent. Others may have been counted since."""
        if (sent := self._sent.get(namespace)) is None:
            return
        for batch in reversed(sent.batches):
            if batch[1] == mails:
                sent.batches.remove(batch)
                sent.total -= mails
                return

    def is_news(self, namespace: str) -> bool:
        """Whether to report that the namespace has sent too many: once an hour.

        Asking counts as a report.
        """
        self._tidy()
        if namespace in self._said:
            return False
        self._said[namespace] = self._clock()
        return True

    def _tidy(self) -> None:
        before = self._clock() - HOUR_SECONDS
        for namespace in list(self._sent):
            sent = self._sent[namespace]
            while sent.batches and sent.batches[0][0] <= before:
                sent.total -= sent.batches.popleft()[1]
            if not sent.batches:
                del self._sent[namespace]
        self._said = {namespace: at for namespace, at in self._said.items() if at > before}


log = get_logger("dovetail.operator.notify")

# Each may wait for a slow server.
_HANDS: Final = 4
# About an hour and a half with these delays; after that the message is no longer of interest.
_MOST_TRIES: Final = 12
_BACKOFF: Final = Backoff(first_seconds=2.0, longest_seconds=900.0)


class Notifier:
    """Sends due notifications. `put` every observed job, `drop` every deleted one, and `run`."""

    def __init__(
        self,
        client: Client,
        *,
        sender: Sender,
        post: Callable[[Announcement], None],
        registry: CollectorRegistry,
        rng: random.Random,
        rules: MailRules = ANYBODY,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff = _BACKOFF,
    ) -> None:
        self._client = client
        self._sender = sender
        self._rules = rules
        self._allowance = Allowance(per_hour=rules.per_hour, clock=clock)
        self._post = post
        self._rng = rng
        self._backoff = backoff
        self._queue = WorkQueue()
        # By UID: jobs with a due notification in their last version; and what was sent, whatever a status says.
        self._jobs: dict[str, GPUJob] = {}
        self._sent: dict[str, set[str]] = {}
        # Whether a failed job failed because its namespace was deleted. Later the namespace may be gone for another
        # reason.
        self._lost: dict[str, bool] = {}
        self._gone: set[str] = set()
        self._tries: dict[str, int] = {}
        self._count = Counter(
            "dovetail_notifications", "Notifications by what became of them.", ["outcome"], registry=registry
        )
        for outcome in ("sent", "retried", "failed", "limited"):
            self._count.labels(outcome)

    def observe(self, job: GPUJob) -> None:
        """Take an observed job."""
        if job.spec.notify is None:
            return
        uid = job.metadata.uid
        if not due(job):
            self._jobs.pop(uid, None)
            return
        self._jobs[uid] = job
        # After what is being sent the last version is looked at anyway, and a retry has its own timer.
        if uid not in self._tries:
            self._queue.add(uid)

    def drop(self, job: GPUJob) -> None:
        """Take a deleted job. Its due notifications are still sent."""
        uid = job.metadata.uid
        if uid in self._jobs:
            self._gone.add(uid)
        else:
            self._forget(uid)

    async def run(self) -> None:
        """Send until cancelled."""
        await self._queue.serve(self._send_due, hands=_HANDS, failed=self._failed, rng=self._rng, backoff=self._backoff)

    async def _send_due(self, uid: str) -> None:
        while (job := self._jobs.get(uid)) is not None:
            if left := self._unsent(job):
                await self._send(job, change=left[0])
            elif uid in self._gone:
                self._forget(uid)
            else:
                await self._note(job)

    async def _send(self, job: GPUJob, *, change: Change) -> None:
        uid = job.metadata.uid
        self._tries.setdefault(uid, 0)
        try:
            if await self._deliver(job, change=change):
                self._count.labels("sent").inc()
        except SendError as error:
            self._tries[uid] = self._tries.get(uid, 0) + 1
            if not error.final and self._tries[uid] < _MOST_TRIES:
                raise
            self._give_up(job, change=change, problem=str(error))
        self._tries.pop(uid, None)
        self._sent.setdefault(uid, set()).add(change.key)

    async def _deliver(self, job: GPUJob, *, change: Change) -> bool:
        """Send the change as what it really was. False if the user has not requested that event."""
        if change.event == "Failed" and await self._is_lost(job):
            job = deleted_namespaces.cancelled(job)
            found = [each for each in due(job) if each.event == "Cancelled"]
            if not found:
                return False
            change = found[0]
        return await self._deliver_letter(job, found=self._addressed(job, found=letter(job, change=change)))

    def _addressed(self, job: GPUJob, *, found: Letter) -> Letter:
        """The message to the permitted addresses. Raises `SendError` if none is permitted."""
        admitted = [address for address in found.to if self._rules.admits(address)]
        if len(admitted) == len(found.to):
            return found
        refused = ", ".join(address for address in found.to if address not in admitted)
        problem = f"{refused}: mails go to {', '.join(self._rules.domains)} alone (notify_domains)"
        if not admitted:
            raise SendError(problem, final=True)
        if not self._tries.get(job.metadata.uid):
            self._notify(job, why=NOT_EVERY_ADDRESS(problem=problem))
        return replace(found, to=admitted)

    async def _deliver_letter(self, job: GPUJob, *, found: Letter) -> bool:
        """Send it, unless the job's namespace has sent too many."""
        namespace, mails = job.metadata.namespace, max(1, len(found.to))
        if not self._allowance.take(namespace, mails=mails):
            self._count.labels("limited").inc()
            if self._allowance.is_news(namespace):
                log.warning("notifications are dropped", namespace=namespace, per_hour=self._rules.per_hour)
                self._notify(job, why=DROPPED(namespace=namespace, most=self._rules.per_hour))
            return False
        try:
            await self._sender.send(found)
        except SendError:
            self._allowance.give_back(namespace, mails=mails)
            raise
        return True

    def _notify(self, job: GPUJob, *, why: Sentence) -> None:
        self._post(Announcement(about=job.metadata, severity="Warning", why=why))

    async def _is_lost(self, job: GPUJob) -> bool:
        uid = job.metadata.uid
        if uid not in self._lost:
            self._lost[uid] = uid in await deleted_namespaces.lost_with_namespace(self._client, jobs=[job])
        return self._lost[uid]

    async def _note(self, job: GPUJob) -> None:
        """Record in the status what was sent."""
        meta = job.metadata
        precondition = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": precondition, "status": {"notified": noted(job, changes=due(job))}}
        try:
            written: GPUJob | None = await self._client.patch(
                GPUJOBS, name=meta.name, patch=patch, as_type=GPUJob, namespace=meta.namespace, subresource="status"
            )
        except NotFound:
            written = None
        except Conflict:
            written = await self._read(job)
        if written is None:
            self._gone.add(meta.uid)
        elif self._jobs.get(meta.uid) is not job:
            # A newer version of the job was observed: it comes next.
            return
        elif self._unsent(written):
            self._jobs[meta.uid] = written
        else:
            self._jobs.pop(meta.uid, None)

    def _unsent(self, job: GPUJob) -> list[Change]:
        sent = self._sent.get(job.metadata.uid, ())
        return [change for change in due(job) if change.key not in sent]

    async def _read(self, job: GPUJob) -> GPUJob | None:
        """Read the job. None if it is gone, or another one has its name."""
        meta = job.metadata
        try:
            found = await self._client.get(GPUJOBS, name=meta.name, as_type=GPUJob, namespace=meta.namespace)
        except NotFound:
            return None
        return found if found.metadata.uid == meta.uid else None

    def _give_up(self, job: GPUJob, *, change: Change, problem: str) -> None:
        self._count.labels("failed").inc()
        log.warning("a notification is given up", job=key_of(job.metadata), change=change.key, error=problem)
        self._notify(job, why=NOT_SENT(event=change.event, problem=problem))

    def _failed(self, uid: str, error: Exception, wait: float) -> None:
        if isinstance(error, SendError):
            self._count.labels("retried").inc()
        log.warning("a notification is tried again", uid=uid, error=str(error), wait_seconds=round(wait, 1))

    def _forget(self, uid: str) -> None:
        self._queue.forget(uid)
        self._jobs.pop(uid, None)
        self._sent.pop(uid, None)
        self._lost.pop(uid, None)
        self._tries.pop(uid, None)
        self._gone.discard(uid)


def build_notifier(
    client: Client,
    *,
    url: str,
    sender: str,
    post: Callable[[Announcement], None],
    registry: CollectorRegistry,
    rng: random.Random,
    domains: Sequence[str],
    per_hour: int,
) -> Notifier:
    """Build the notifier that sends by the server or webhook at `url`, with mails from `sender`.

    `domains` and `per_hour` are those of `MailRules`. Raises `ValueError` for an unusable URL.
    """
    rules = MailRules(domains=domains, per_hour=per_hour)
    return Notifier(client, sender=sender_of(url, sender=sender), post=post, registry=registry, rng=rng, rules=rules)
