"""Use above the limits of GPUQuotas, summed from what pods hold and without the queue's counters. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from dovetail import names
from dovetail.answers.questions import Finding
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import Device
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import Described, ObjectMeta, find_condition, key_of
from dovetail.audit.jobs import Holding, Worker, request_of
from dovetail.formats.timestamps import moment
from dovetail.gpu import mig
from dovetail.gpu.models import nominal_gb, normalise
from dovetail.gpu.request import WHOLE_MILLI

_MIB_OF_GB: Final = 1024
# A quota binds what is admitted after the queue and the extender have seen it.
_SEEN_AFTER: Final = timedelta(seconds=10)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_HOLDING: Final = frozenset({"Starting", "Running"})


class ManagedFields(Described, frozen=True, kw_only=True):
    """When a client last wrote an object or a subresource of it."""

    time: str | None = None
    subresource: str = ""


class DatedMeta(ObjectMeta, frozen=True, kw_only=True):
    """Metadata with the times of writes."""

    managed_fields: list[ManagedFields] = []


class DatedQuota(GPUQuota, frozen=True, kw_only=True):
    """A GPUQuota with the times of its writes: a limit that was lowered ends nothing that runs."""

    metadata: DatedMeta

    @property
    def spec_written(self) -> datetime:
        """When its spec was last written, at the latest."""
        times = [each.time for each in self.metadata.managed_fields if each.time and not each.subresource]
        return max(map(moment, [*times, *filter(None, [self.metadata.creation_timestamp])]), default=_NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """For whom something counts; `user` is None for a pod outside jobs, empty for a job whose user is not known."""

    namespace: str
    user: str | None
    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A job, or a pod outside jobs, that holds devices: for whom it counts, since when, and how much.

    `amounts` are by what limits count: `gpus` in thousandths, `memory` in MiB, `jobs`, and models in thousandths.
    """

    subject: Subject
    since: datetime
    amounts: Mapping[str, int] = field(default_factory=dict)


def holders(
    jobs: Iterable[GPUJob],
    *,
    pods: Iterable[Pod],
    held: Mapping[str, Holding],
    devices: Mapping[tuple[str, str], Device],
    memory_specs: Mapping[str, float],
) -> list[Holder]:
    """Everything that counts towards quotas now."""
    by_uuid = {uuid: device for (_, uuid), device in devices.items()}
    found = []
    for job in jobs:
        workers = (held.get(key_of(job.metadata)) or Holding()).workers
        if job.status.phase not in _HOLDING or job.status.admitted_time is None:
            continue
        amounts = _amounts(workers, devices=by_uuid, memory_specs=memory_specs) | {"jobs": 1}
        request = request_of(job)
        if request is not None and len(request.models) == 1:
            amounts[f"model {normalise(request.models[0]).family}"] = amounts["gpus"]
        found.append(Holder(subject=subject_of(job), since=moment(job.status.admitted_time), amounts=amounts))
    alone = {f"{key}{worker.pod}": worker for key, each in held.items() if key.endswith("/") for worker in each.workers}
    for pod in pods:
        worker, since = alone.get(key_of(pod.metadata)), _bound_at(pod)
        if worker is not None and since is not None:
            project = pod.metadata.labels.get(names.LABEL_PROJECT, "")
            amounts = _amounts([worker], devices=by_uuid, memory_specs=memory_specs)
            subject = Subject(namespace=pod.metadata.namespace, user=None, project=project)
            found.append(Holder(subject=subject, since=since, amounts=amounts))
    return found


def above(quotas: Sequence[DatedQuota], *, everyone: Sequence[Holder]) -> Iterator[Finding]:
    """Quotas of which more is in use than they allow, because of something that was admitted under them."""
    known = {quota.metadata.name: quota for quota in quotas}
    users: dict[tuple[str, str], list[Holder]] = defaultdict(list)
    for holder in everyone:
        for quota in binding(holder.subject, quotas=quotas):
            who = _counted_as(holder, quota=quota)
            if who is not None:
                users[quota.metadata.name, who].append(holder)
    for (name, who), counted in sorted(users.items()):
        for what, most in _limits(known[name]):
            used = _most_admitted(counted, what=what, after=known[name].spec_written + _SEEN_AFTER)
            if used > most:
                whose = f" of {known[name].spec.per.lower()} {who}" if who else ""
                message = f"{_said(what, amount=used)} are in use{whose}, but it allows {_said(what, amount=most)}"
                yield Finding(kind="AboveQuota", subject=name, message=message)


def _most_admitted(counted: Sequence[Holder], *, what: str, after: datetime) -> int:
    """How much was in use when the last holder came that was admitted under the quota; 0 if none was."""
    own = [each for each in counted if each.amounts.get(what)]
    last = max((each.since for each in own), default=_NEVER)
    return sum(each.amounts[what] for each in own) if last > after else 0


def binding(subject: Subject, *, quotas: Sequence[DatedQuota]) -> list[DatedQuota]:
    """The quotas that apply: those that name the subject, and all above these."""
    known = {quota.metadata.name: quota for quota in quotas}
    parents = {quota.spec.parent for quota in known.values()}
    found: set[str] = set()
    for name, quota in known.items():
        spec = quota.spec
        is_parent_alone = name in parents and spec.per == "Together" and not spec.names_anyone
        applies = (
            (not spec.namespaces or subject.namespace in spec.namespaces)
            and (not spec.projects or subject.project in spec.projects)
            and (not spec.users or subject.user in spec.users)
        )
        above = name if applies and not is_parent_alone else None
        while above is not None and above not in found and above in known:
            found.add(above)
            above = known[above].spec.parent
    return [known[name] for name in sorted(found)]


def subject_of(job: GPUJob) -> Subject:
    """For whom a job counts."""
    meta = job.metadata
    user, project = meta.annotations.get(names.USER, ""), meta.labels.get(names.LABEL_PROJECT, "")
    return Subject(namespace=meta.namespace, user=user, project=project)


def _counted_as(holder: Holder, *, quota: DatedQuota) -> str | None:
    match quota.spec.per:
        case "Namespace":
            return holder.subject.namespace
        case "User":
            return holder.subject.user
        case _:
            return ""


def _limits(quota: DatedQuota) -> Iterator[tuple[str, int]]:
    most = quota.spec.limits
    if most.gpus is not None:
        yield "gpus", most.gpus * WHOLE_MILLI
    if most.memory_mib is not None:
        yield "memory", most.memory_mib
    for model, gpus in most.models.items():
        yield f"model {normalise(model).family}", gpus * WHOLE_MILLI
    if most.running_jobs is not None:
        yield "jobs", most.running_jobs


def _said(what: str, *, amount: int) -> str:
    if what == "memory":
        return f"{amount} MiB"
    if what == "jobs":
        return f"{amount} jobs"
    return f"{amount / WHOLE_MILLI:g} GPUs" + (f" of {what}" if what != "gpus" else "")


def _amounts(
    workers: Iterable[Worker], *, devices: Mapping[str, Device], memory_specs: Mapping[str, float]
) -> dict[str, int]:
    milli = memory = 0
    profiles: dict[str, int] = defaultdict(int)
    for worker in workers:
        # A pod that leaves may already have a successor, and devices of a vendor's pod are known by number alone.
        if worker.leaving:
            continue
        milli += 0 if worker.devices else worker.milli
        for held in worker.devices:
            if held.mig:
                profiles[held.mig] += 1
                memory += mig.memory_mib(held.mig)
                continue
            milli += held.share_milli
            device = devices.get(held.uuid)
            whole = device is not None and held.share_milli == WHOLE_MILLI
            memory += (
                _MIB_OF_GB * nominal_gb(device.model, memory_mib=device.memory_mib, specs=memory_specs)
                if whole and device is not None
                else held.memory_mib
            )
    milli += sum(mig.milli_of(profile, count=count) for profile, count in profiles.items())
    return {"gpus": milli, "memory": memory}


def _bound_at(pod: Pod) -> datetime | None:
    bound = find_condition(pod.status.conditions, type="PodScheduled")  # type: ignore[arg-type] # of the same fields
    if bound is None or bound.status != "True" or not bound.last_transition_time:
        return None
    return moment(bound.last_transition_time)
