"""Limits of GPUQuotas and groups: whom they bind, what is in use, and their gate. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from dovetail.api.gpuquota import KIND, GPUAmounts, GPUQuota
from dovetail.api.reasons import queue as says
from dovetail.api.reasons.clause import Sentence
from dovetail.engine.model.claims import Ask
from dovetail.gpu.request import WHOLE_MILLI
from dovetail.queue.limits.subjects import Subject, binding, subject_name
from dovetail.queue.model.candidates import Candidate
from dovetail.queue.model.gate import APART, Refused
from dovetail.queue.quota_tree.loans import Loans
from dovetail.queue.quota_tree.resources import GPUS, MEMORY, amount_text, bare_text, counts_model
from dovetail.queue.quota_tree.turns import fewest

Unit = Literal["GPUs", "memory", "model", "jobs", "queued", "group"]
# The owner of the limit (a quota, a quota and a model, or namespace and group), the name that it counts the subject as,
# and the unit.
CounterKey = tuple[str, str, Unit]

_OF_DEVICES: Final[frozenset[Unit]] = frozenset({"GPUs", "memory", "model"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Takes:
    """What all workers of a job, or a pod, take of the limits that count GPUs.

    - `milli`: thousandths of GPUs
    - `memory_mib`: device memory in MiB
    - `model`: the one model that is requested or held; empty for several or any
    """

    milli: int
    memory_mib: int = 0
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit for one job. GPUs are counted in thousandths (milli), memory in MiB.

    - `counter`: what it counts
    - `resource`: GPUs, memory, or the model of the GPUs that it counts
    - `most`: the most that may be in use at a time
    - `need`: what the job takes
    - `who`: whom it limits, as the beginning of messages
    - `quota`: name of the GPUQuota; empty for a group
    - `each`: what each worker of an elastic job takes
    - `least`: what the fewest workers of an elastic job take; None for other jobs
    """

    counter: CounterKey
    most: int
    need: int
    who: Sentence
    quota: str = ""
    resource: str = GPUS
    each: int = 0
    least: int | None = None

    def refusal(self, used: int) -> Refused | None:
        """Why the job must wait while `used` is in use; None where it may start."""
        if used + self._fewest <= self.most:
            return None
        names_quota = not self.quota or self.who.message.startswith(KIND)
        found = self.who + self._numbers(used)
        return Refused.of(found if names_quota else found + says.BY_QUOTA(quota=self.quota))

    def taken(self, job: Candidate) -> int:
        """What the job takes with its current number of workers."""
        return self.need if self.least is None else self.each * job.workers

    @property
    def _fewest(self) -> int:
        return self.need if self.least is None else self.least

    def _numbers(self, used: int) -> Sentence:
        match self.counter[2]:
            case "GPUs" | "memory" | "model":
                does = says.MAY_USE if self.resource == MEMORY else says.MAY_RUN
                most = amount_text(self.most, of=self.resource)
                return does(most=most, used=bare_text(used, of=self.resource)) + self._needs()
            case "queued":
                return says.MAY_QUEUE(most=self.most, used=used)
            case _:
                return says.MAY_RUN_JOBS(most=self.most, used=used)

    def _needs(self) -> Sentence:
        amount = bare_text(self._fewest, of=self.resource)
        if self._fewest <= self.most:
            return (says.NEEDS if self.least is None else says.NEEDS_AT_LEAST)(amount=amount)
        return (says.NEVER_FITS if self.least is None else says.NEVER_FITS_AT_LEAST)(amount=amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The limits of one job: `start` applies when it starts, `queue` while it waits.

    `refused` keeps it waiting regardless of numbers.
    """

    start: tuple[Limit, ...] = ()
    queue: tuple[Limit, ...] = ()
    refused: Refused | None = None

    def __bool__(self) -> bool:
        return bool(self.start or self.queue or self.refused)


_NO_TERMS: Final = Terms()


class LimitGate:
    """The queue's gate over the terms of jobs, by their UIDs.

    The jobs `running` already take of their limits. `used` is what others take in addition, such as pods outside
    GPUJobs. `loans` is the use of the tree of quotas, which the gate keeps current; None without a tree.
    """

    def __init__(
        self,
        terms: Mapping[str, Terms],
        *,
        running: Iterable[str] = (),
        used: Mapping[CounterKey, int] | None = None,
        loans: Loans | None = None,
    ) -> None:
        self.loans = loans
        # Few jobs may not be preempted, so most cycles have none.
        self._firm = None if loans is None or not loans.has_firm else loans
        self._terms = terms
        self._used: Counter[CounterKey] = Counter(used or {})
        self._counted: dict[str, list[tuple[CounterKey, int]]] = {}
        self._queued: dict[CounterKey, set[str]] = {}
        for key in running:
            self._count(key, takes=[(limit.counter, limit.need) for limit in self._terms_of(key).start])

    def terms_of(self, job: Candidate) -> object:
        """What the gate judges the job by; see `Gate`."""
        terms = self._terms.get(job.key)
        # A limit of queued jobs counts those before it; a tree counts for each quota what its jobs would take.
        return APART if self.loans is not None or (terms is not None and terms.queue) else terms

    def refusal(self, job: Candidate) -> Refused | None:
        """Why a limit keeps the job waiting now.

        A job within its queue limits counts as queued from then on.
        """
        terms = self._terms.get(job.key)
        if terms is None:
            return None if self._firm is None else _not_firm(job, loans=self._firm)
        if terms.refused is not None:
            return terms.refused
        for limit in terms.queue:
            others = self._queued.setdefault(limit.counter, set())
            if refused := limit.refusal(len(others) - (job.key in others)):
                return refused
        for limit in terms.queue:
            self._queued[limit.counter].add(job.key)
        start = _that_apply(terms, job=job)
        refused = next((refused for limit in start if (refused := limit.refusal(self._used[limit.counter]))), None)
        return refused or (None if self._firm is None else _not_firm(job, loans=self._firm))

    def allows_without(self, job: Candidate, *, ended: Iterable[str]) -> bool:
        """Whether the limits let the job start once these running jobs have ended."""
        less = Counter[CounterKey]()
        for key in ended:
            less.update(dict(self._counted.get(key, ())))
        self._used.subtract(less)
        allowed = self.refusal(job) is None
        self._used.update(less)
        return allowed

    def workers(self, job: Candidate) -> int:
        """The number of workers with which the job may start within its limits now."""
        if job.least is None:
            return job.workers
        return max(job.least, min([job.workers, *(allowed for allowed, _ in self._allowed(job))]))

    def narrows(self, job: Candidate) -> str:
        """The limit that allows no more workers than that; empty where the job may have all of them."""
        allowed, quota = min(self._allowed(job), key=lambda each: each[0], default=(job.workers, ""))
        return "" if allowed >= job.workers else f"{KIND} {quota}"

    def _allowed(self, job: Candidate) -> list[tuple[int, str]]:
        """The number of workers that each limit of an elastic job leaves, and the quota that sets it."""
        elastic = [limit for limit in self._terms_of(job.key).start if limit.each]
        found = [((limit.most - self._used[limit.counter]) // limit.each, limit.quota) for limit in elastic]
        return found if self._firm is None else [*found, *_firm_workers(job, loans=self._firm)]

    def started(self, job: Candidate) -> None:
        """Count what the job takes; it is no longer queued."""
        if self.loans is not None and job.ask.gpu is not None:
            self.loans.start(job.key, workers=job.workers)
        terms = self._terms_of(job.key)
        for limit in terms.queue:
            self._queued[limit.counter].discard(job.key)
        self._count(job.key, takes=[(limit.counter, limit.taken(job)) for limit in _that_apply(terms, job=job)])

    def ended(self, key: str) -> None:
        """Uncount what the job took."""
        if self.loans is not None:
            self.loans.end(key)
        for counter, amount in self._counted.pop(key, ()):
            self._used[counter] -= amount

    def _terms_of(self, key: str) -> Terms:
        return self._terms.get(key) or _NO_TERMS

    def _count(self, key: str, *, takes: list[tuple[CounterKey, int]]) -> None:
        if key not in self._counted:
            self._counted[key] = takes
            for counter, amount in takes:
                self._used[counter] += amount


def _that_apply(terms: Terms, *, job: Candidate) -> Iterable[Limit]:
    """The limits of a start. A job that starts without its GPUs takes none of a limit that counts GPUs."""
    if job.ask.gpu is not None:
        return terms.start
    return [limit for limit in terms.start if limit.counter[2] not in _OF_DEVICES]


def _firm_workers(job: Candidate, *, loans: Loans) -> list[tuple[int, str]]:
    """The number of workers that each guarantee leaves to an elastic job that may not be preempted, and its quota."""
    rooms, charge = loans.firm_room(job.key), loans.charge(job.key)
    if rooms is None or charge is None or charge.quota is None or not charge.each:
        return []
    name = loans.tree.nodes[charge.quota].name
    pairs = zip(rooms, charge.each, strict=True)
    return [(room // amount, name) for room, amount in pairs if room is not None and amount]


def _not_firm(job: Candidate, *, loans: Loans) -> Refused | None:
    """Why a job that may not be preempted has to wait: beyond a guarantee it would keep what is lent.

    A job that starts without its GPUs takes none of a guarantee.
    """
    rooms, charge = loans.firm_room(job.key), loans.charge(job.key)
    if rooms is None or charge is None or job.ask.gpu is None:
        return None
    resources = zip(loans.tree.resources, fewest(charge, least=job.least), rooms, strict=True)
    short = next(((of, need, room) for of, need, room in resources if room is not None and need > room), None)
    if short is None:
        return None
    of, need, room = short
    needs = says.NEEDS if job.least is None else says.NEEDS_AT_LEAST
    where = _guaranteed(charge.quota, of=of, room=room, loans=loans)
    return Refused.of(says.WITHIN_GUARANTEE() + where + needs(amount=bare_text(need, of=of)))


def _guaranteed(quota: int | None, *, of: str, room: int, loans: Loans) -> Sentence:
    """What a quota guarantees of a resource, and how much of that is left."""
    if quota is None:
        return says.NO_GUARANTEE()
    node = loans.tree.nodes[quota]
    bound = node.bounds[loans.tree.resources.index(of)]
    if bound is None:
        return says.NONE_GUARANTEED(quota=node.name)
    return says.GUARANTEE_LEFT(quota=node.name, guaranteed=amount_text(bound, of=of), left=bare_text(room, of=of))


def limits_of(
    quotas: Iterable[GPUQuota],
    *,
    subject: Subject,
    takes: Takes,
    jobs: int = 1,
    workers: int = 1,
    least: int | None = None,
) -> Terms:
    """The limits for a subject that takes so much; `jobs` is 0 for a pod.

    With `least`, it may start with that many of its `workers`.
    """
    start: list[Limit] = []
    queue: list[Limit] = []
    for quota in binding(quotas, subject=subject):
        counted = subject_name(quota.spec, subject=subject)
        if counted is None:
            continue
        name, limits, who = quota.metadata.name, quota.spec.limits, _who(quota, counted=counted)
        for unit, resource, most, need in _device_limits(limits, takes=takes) if takes.milli else ():
            each = 0 if least is None else need // workers
            start.append(
                Limit(
                    counter=(name if unit != "model" else f"{name} {resource}", counted, unit),
                    most=most,
                    need=need,
                    who=who,
                    quota=name,
                    resource=resource,
                    each=each,
                    least=None if least is None else each * least,
                )
            )
        if limits.running_jobs is not None and jobs:
            key: CounterKey = (name, counted, "jobs")
            start.append(Limit(counter=key, most=limits.running_jobs, need=jobs, who=who, quota=name))
        if limits.queued_jobs is not None and jobs:
            key = (name, counted, "queued")
            queue.append(Limit(counter=key, most=limits.queued_jobs, need=jobs, who=who, quota=name))
    return Terms(start=tuple(start), queue=tuple(queue))


def _device_limits(most: GPUAmounts, *, takes: Takes) -> Iterator[tuple[Unit, str, int, int]]:
    """The limits that count what is taken: unit, resource, the most, and what is taken of it."""
    if most.gpus is not None:
        yield "GPUs", GPUS, most.gpus * WHOLE_MILLI, takes.milli
    if most.memory_mib is not None:
        yield "memory", MEMORY, most.memory_mib, takes.memory_mib
    for model, gpus in most.models.items():
        if counts_model(model, requested=takes.model):
            yield "model", model, gpus * WHOLE_MILLI, takes.milli


def group_limit(namespace: str, *, group: str, most: int | None) -> Limit:
    """The limit of a group of jobs.

    Without `most` the job has no limit of its own but counts for the others.
    """
    unlimited = 1 << 30
    key: CounterKey = (f"{namespace}/{group}", "", "group")
    return Limit(counter=key, most=unlimited if most is None else most, need=1, who=says.GROUP(name=group))


def milli_of(ask: Ask | None, *, workers: int) -> int:
    """The thousandths of GPUs that all workers request; time-sliced devices count as shares, MIG as slices of 7."""
    if ask is None or ask.gpu is None:
        return 0
    return workers * sum(each.total_milli for each in (ask.gpu, *ask.more))


def model_of(ask: Ask | None) -> str:
    """The one model that a request names; empty for several or any."""
    if ask is None or ask.gpu is None or len(ask.gpu.models) != 1:
        return ""
    return ask.gpu.models[0]


def _who(quota: GPUQuota, *, counted: str) -> Sentence:
    """Whom the limit binds."""
    spec = quota.spec
    if spec.per == "Namespace":
        return says.NAMESPACE(name=counted)
    if spec.per == "User":
        return says.USER(name=counted) if counted else says.NAMELESS_USER()
    if len(spec.namespaces) == 1 and not spec.users:
        return says.NAMESPACE(name=spec.namespaces[0])
    if len(spec.users) == 1 and not spec.namespaces:
        return says.USER(name=spec.users[0])
    return says.ALL_BOUND(quota=quota.metadata.name)
