"""Reports GPUJobs that cannot be read: their status says why, without use of the spec.

The API server's schema leaves few such cases: a template that is nested deeper than the decoder permits, or fields that
an older operator does not know. A status that cannot be read is never overwritten, because a newer operator wrote it,
and neither is that of a job whose batch Job runs.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from dovetail.api.builtin import Job
from dovetail.api.gpujob import FINISHED, GPUJob
from dovetail.api.meta import ObjectMeta, key_of
from dovetail.api.reasons.start import UNREADABLE
from dovetail.api.resources import GPUJOBS
from dovetail.jobs.size_limits import MAX_DEPTH
from dovetail.kube.client import Client
from dovetail.kube.errors import Conflict, Invalid, NotFound, Undecodable
from dovetail.kube.retry_log import log_failure
from dovetail.kube.workqueue import WorkQueue
from dovetail_operator.events.announcement import Announcement

_HANDS: Final = 2
# The number of jobs whose reported status is remembered. Others are written again with their next version.
_MOST_KNOWN: Final = 10_000
_UNREAD: Final = "cannot be read: "
_WHAT_AND_WHERE: Final = re.compile(r"(?s)(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    meta: ObjectMeta
    message: str

    @property
    def identity(self) -> tuple[str, int, str]:
        """What its owner reads once."""
        return self.meta.uid, self.meta.generation, self.message


class _Nothing(msgspec.Struct, frozen=True):
    """An answer of which no field is read."""


class UnreadableJobs:
    """Pass `report` to the reflector as its `on_unreadable`, then `run` it.

    `jobs` are the jobs that were read. `child` returns the batch Job with a job's key. `found` is called for each job
    that cannot be read. `post` posts an event.
    """

    def __init__(
        self,
        client: Client,
        *,
        jobs: Mapping[str, GPUJob],
        child: Callable[[str], Job | None],
        found: Callable[[ObjectMeta, str], None],
        post: Callable[[Announcement], None],
        rng: random.Random,
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._child = child
        self._note = found
        self._post = post
        self._rng = rng
        self._queue = WorkQueue()
        self._found: dict[str, _Found] = {}
        self._reported: dict[str, tuple[str, int, str]] = {}

    def report(self, meta: ObjectMeta, problem: str) -> None:
        """Take a version of a GPUJob that could not be read."""
        message = sentence_of(problem)
        if message is None:
            return
        self._note(meta, message)
        key = key_of(meta)
        # Our own write brings the next version, which cannot be read either.
        found = _Found(meta=meta, message=message)
        if self._reported.get(key) != found.identity:
            self._found[key] = found
            self._queue.add(key)

    async def run(self) -> None:
        """Write statuses until cancelled."""
        await self._queue.serve(self._announce, hands=_HANDS, failed=_tried_again, rng=self._rng)

    async def _announce(self, key: str) -> None:
        found = self._found.get(key)
        if found is None:
            return
        if self._reported.get(key) == found.identity:
            # The watch has brought our own write before its answer.
            del self._found[key]
            return
        if not self._has_begun(key, uid=found.meta.uid):
            await self._write(found)
        self._post(Announcement(about=found.meta, severity="Warning", why=UNREADABLE(problem=found.message)))
        if len(self._reported) >= _MOST_KNOWN:
            self._reported.pop(next(iter(self._reported)))
        self._reported[key] = found.identity
        if self._found.get(key) is found:
            del self._found[key]

    def _has_begun(self, key: str, *, uid: str) -> bool:
        """Whether the job runs, or its last readable version has run: its status is that of the run."""
        child, known = self._child(key), self._jobs.get(key)
        if child is not None and not child.spec.suspend:
            return any(owner.uid == uid for owner in child.metadata.owner_references)
        if known is None or known.metadata.uid != uid:
            return False
        return known.status.phase in {"Starting", "Running", *FINISHED}

    async def _write(self, found: _Found) -> None:
        meta = found.meta
        why = UNREADABLE(problem=found.message)
        status = {
            "observedGeneration": meta.generation, "phase": "Queued", "reason": why.reason, "message": why.message,
            "details": msgspec.to_builtins(why.clauses),
        }  # fmt: skip
        patch: dict[str, Any] = {"metadata": {"uid": meta.uid}, "status": status}
        try:
            await self._client.patch(
                GPUJOBS, name=meta.name, patch=patch, as_type=_Nothing, namespace=meta.namespace, subresource="status"
            )
        except (NotFound, Conflict, Invalid, Undecodable):
            # The job is gone, or another one has its name. The answer is the whole object, which cannot be read.
            return


def sentence_of(problem: str) -> str | None:
    """The owner's message, with field and allowed value; None if no owner can fix the cause."""
    if not problem.startswith(_UNREAD):
        return None
    parts = _WHAT_AND_WHERE.fullmatch(problem.removeprefix(_UNREAD))
    assert parts is not None, "it takes every text"
    where, what = parts["where"] or "", parts["what"]
    if where.startswith("status"):
        return None
    if "nested" in what:
        return f"spec.template is nested too deeply: it may be {MAX_DEPTH} levels deep at most"
    field = where or "spec"
    return f"{field} cannot be read: {what}; `kubectl explain gpujob.{_plain(field)}` says what is allowed"


def _plain(field: str) -> str:
    return re.sub(r"\[[^]]*\]", "", field)


def _tried_again(key: str, error: Exception, wait: float) -> None:
    log_failure("the status of a job that cannot be read is tried again", error=error, wait=wait, job=key)
