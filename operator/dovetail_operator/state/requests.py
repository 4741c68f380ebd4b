"""What each worker requests: from the spec, learned memory and the chosen alternative.

Reading a spec takes longer than a lookup, so each generation of a job is read once, and equal specs of a namespace are
read once for all their jobs: after a start, thousands of waiting jobs have a few specs. No I/O.
"""

from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob, MemoryUse
from dovetail.api.reasons.start import UNREADABLE
from dovetail.engine.model.claims import Ask
from dovetail.engine.model.ranking import Ranking, Rankings
from dovetail.engine.model.topology import DEFAULT_LEVELS, Level
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.device_plugins import Vendors
from dovetail.gpu.memory_strategy import AGGRESSIVE, FRACTIONS
from dovetail.gpu.request import RequestError
from dovetail.jobs.batch_job import is_guests
from dovetail.jobs.obstacle import Obstacle
from dovetail.pods.alternatives import asks_by_kind
from dovetail.pods.demand import ask_of_job, ask_of_pod, estimated
from dovetail.pods.options.annotations import check_job
from dovetail.queue.inputs.ways import chosen_way
from dovetail.queue.verdicts import Admitted
from dovetail_operator.state.decisions import Decisions
from dovetail_operator.state.store import Store

# Different specs whose reading is kept for other jobs.
_SPECS: Final = 1024


class Reading(NamedTuple):
    """The alternatives of a request, the preferred one first, and what is wrong with the spec.

    `digest` is that of the spec (`spec_digest`) where jobs with an equal one share this reading; else empty.
    """

    asks: tuple[Ask, ...] = ()
    obstacle: Obstacle | None = None
    digest: bytes = b""


class Requests:
    """Reads what jobs request, from the store and the decisions."""

    def __init__(
        self,
        store: Store,
        *,
        decisions: Decisions,
        rankings: Rankings,
        levels: tuple[Level, ...] = DEFAULT_LEVELS,
    ) -> None:
        self._store = store
        self._decisions = decisions
        self._rankings = rankings
        self._levels = levels
        # By UID, with the generation that was read.
        self._readings: dict[str, tuple[int, Reading]] = {}
        # By namespace and digest of the spec; the oldest leave.
        self._of_specs: dict[tuple[str, bytes], Reading] = {}

    def configure(self, *, rankings: Rankings, levels: tuple[Level, ...]) -> None:
        """Apply other rankings and levels of the network: all requests are read again."""
        self._rankings, self._levels = rankings, levels
        self._readings.clear()
        self._of_specs.clear()

    def ask_of(self, job: GPUJob) -> Ask | None:
        """What each worker requests: a started job's chosen alternative, else the preferred one.

        None if the request cannot be read.
        """
        verdict = self._decisions.verdicts.get(job.metadata.uid)
        admitted = verdict.ask if isinstance(verdict, Admitted) else None
        return chosen_way(self.ways_of(job), child=self._store.child_of(job), admitted=admitted)

    def ways_of(self, job: GPUJob) -> list[Ask]:
        """All alternatives of what each worker requests, with the estimated memory."""
        use = self.memory_of(job)
        return [estimated(ask, use=use) for ask in self.read(job).asks]

    def memory_of(self, job: GPUJob) -> MemoryUse | None:
        """What the job uses and what was learned for it; None if neither is known."""
        return self._store.learning.use_of(
            job,
            ask=next(iter(self.read(job).asks), None),
            child=self._store.child_of(job),
            most_mib=self._largest_promise_mib,
        )

    def estimate_of(self, job: GPUJob) -> int | None:
        """The learned memory in MiB; None if the job uses no estimate or nothing is known."""
        use = self.memory_of(job) if self._store.learning.estimates(job) else None
        return None if use is None else use.estimate_mib

    def read(self, job: GPUJob) -> Reading:
        """Read the job's request, once per generation.

        An exception in our own code is recorded as a failure, and the request is read again when its retry is due.
        """
        generation, reading = self._readings.get(job.metadata.uid, (-1, Reading()))
        failed = reading == Reading() and self._decisions.failures.is_tried(job)
        if generation == job.metadata.generation and not failed:
            return reading
        try:
            reading = self._reading_of(job)
        except Exception as error:  # noqa: BLE001 - one job must not stop the others
            self._decisions.record_failure(job, error=error)
            reading = Reading()
        self._readings[job.metadata.uid] = (job.metadata.generation, reading)
        return reading

    def _reading_of(self, job: GPUJob) -> Reading:
        refusal, vendors = self._store.footprint.refusal_of(job), self._store.view.vendors
        key = None if refusal is not None else (job.metadata.namespace, spec_digest(job))
        known = None if key is None else self._of_specs.get(key)
        if known is not None:
            return known
        ranking = self._rankings.of(job.metadata.namespace)
        reading = read_request(job, refusal=refusal, ranking=ranking, vendors=vendors, levels=self._levels)
        # What is wrong with a spec is said with the job's name.
        if key is not None and reading.obstacle is None:
            reading = reading._replace(digest=key[1])
            self._of_specs[key] = reading
            if len(self._of_specs) > _SPECS:
                del self._of_specs[next(iter(self._of_specs))]
        return reading

    def ask_of_pod(self, pod: Pod) -> Ask | None:
        """The request of a pod of no GPUJob; None if it requests nothing of ours, or cannot be read."""
        try:
            return ask_of_pod(pod, ranking=self._rankings.of(pod.metadata.namespace), vendors=self._store.view.vendors)
        except (RequestError, QuantityError):
            return None

    def observe(self, job: GPUJob) -> None:
        """Do nothing: `read` reads a new generation when it is first asked for."""

    def drop(self, job: GPUJob) -> None:
        """Drop the reading of a deleted GPUJob."""
        self._readings.pop(job.metadata.uid, None)

    def _largest_promise_mib(self) -> int:
        return int(self._store.view.ledger.largest_mib * FRACTIONS[AGGRESSIVE])


def spec_digest(job: GPUJob) -> bytes:
    """A digest of the spec: jobs with equal digests request the same. The name counts where the spec mentions it.

    A template may keep the pods of its job apart by the job's name.
    """
    text, name = msgspec.json.encode(job.spec), job.metadata.name.encode()
    return blake2b(name + b"/" + text if name in text else text, digest_size=16).digest()


def read_request(
    job: GPUJob, *, refusal: str | None, ranking: Ranking, vendors: Vendors, levels: tuple[Level, ...]
) -> Reading:
    """Read what each worker requests, and what is wrong with the spec.

    A job with a `refusal` has no template, so its spec is not read. Weights out of the bounds of `ranking` keep a job
    from starting, but not from running on: its request is known.
    """
    if refusal is not None:
        return Reading(obstacle=Obstacle.of(UNREADABLE(problem=refusal)))
    try:
        ask = ask_of_job(job, ranking=ranking, vendors=vendors, levels=levels)
        asks = tuple(asks_by_kind(ask, vendors=vendors))
        if is_guests(job):
            # The webhook has completed its pods for this kind of node.
            asks = asks[:1]
    except RequestError as error:
        return Reading(obstacle=Obstacle.of(UNREADABLE(problem=str(error))))
    try:
        check_job(job, ranking=ranking)
    except RequestError as error:
        return Reading(asks=asks, obstacle=Obstacle.of(UNREADABLE(problem=str(error))))
    return Reading(asks=asks)
