"""What must hold whatever happens, from the objects alone: limits are kept, and nobody ends for nothing."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dovetail import names
from dovetail.api.builtin import is_terminated
from dovetail.api.gpujob import is_finished
from dovetail.api.gpuquota import GPUQuota
from dovetail.pods.allocation import allocation_in
from dovetail_operator.job.drain import DRAIN
from dovetail_operator.job.observation import Observed
from tests.world.api import Values
from tests.world.cluster import _index, _is_over, _phase
from tests.world.world import World


@dataclass(frozen=True, kw_only=True)
class Use:
    """What one job or pod takes; `user` is None of a pod."""

    namespace: str
    user: str | None
    project: str
    milli: int
    models: tuple[str, ...]
    jobs: int


class Rules:
    """Watches a world. Limits that have just been lowered, and pods of others, may be beyond a limit: `is_calm`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_calm = True
        # How often each job was ended for another one or a drain, by its UID.
        self.ends: Counter[str] = Counter()
        self._suspended: dict[str, bool] = {}
        self._plans: dict[str, tuple[int, int]] = {}
        world.server.watches.insert(0, self._look)

    # --- limits ------------------------------------------------------------------------------------------------

    def _look(self, plural: str, type_: str, values: Values) -> None:
        try:
            if plural == "gpujobs":
                self._check_plan(values)
            elif plural == "jobs":
                self._look_at_job(type_, values)
                if type_ != "DELETED":
                    self._world.cluster.kueue.check(values)
        except AssertionError as broken:
            # The write belongs to the operator, which would try it again.
            self._world.failures.append(broken)

    def _check_plan(self, values: Values) -> None:
        """No plan is followed by an earlier one."""
        placement = (values.get("status") or {}).get("placement")
        if placement is not None:
            uid, plan = values["metadata"]["uid"], (placement["generation"], placement.get("replaced", 0))
            assert plan >= self._plans.get(uid, plan), f"{uid}: plan {self._plans[uid]} is followed by {plan}"
            self._plans[uid] = plan

    def _look_at_job(self, type_: str, values: Values) -> None:
        uid, suspended = values["metadata"]["uid"], bool(values["spec"].get("suspend"))
        before = self._suspended.get(uid)
        if type_ == "DELETED" or _is_over(values):
            self._suspended.pop(uid, None)
            return
        self._suspended[uid] = suspended
        if before is not suspended and not suspended and self.is_calm:
            self.check_limits(f"{values['metadata']['namespace']}/{values['metadata']['name']} starts")
        if before is False and suspended:
            self._note_end(values)

    def _note_end(self, child: Values) -> None:
        found = self._world.server.find("gpujobs", f"{child['metadata']['namespace']}/{child['metadata']['name']}")
        made = ((found or {}).get("status") or {}).get("preemption") or {}
        if found is not None and made.get("at") and not found["spec"].get("suspend"):
            self.ends[found["metadata"]["uid"]] += 1

    def check_limits(self, why: str) -> None:
        """No quota is used beyond its limits."""
        uses = [*self._uses_of_jobs(), *self._uses_of_pods()]
        quotas: list[GPUQuota] = list(self._world.server.typed("gpuquotas"))
        for quota in quotas:
            used = Counter[tuple[str, str]]()
            for use in uses:
                who = _counted_as(quota, use)
                if who is None or not _binds(quota, use, quotas=quotas):
                    continue
                used[who, "gpus"] += use.milli
                used[who, "jobs"] += use.jobs
                for model in use.models:
                    used[who, model] += use.milli
            spec = quota.spec
            limits: dict[str, int | None] = {
                "gpus": None if spec.limits.gpus is None else 1000 * spec.limits.gpus,
                "jobs": spec.limits.running_jobs,
                **{model: 1000 * count for model, count in spec.limits.models.items()},
            }
            for (who, what), amount in used.items():
                most = limits.get(what)
                assert most is None or amount <= most, (
                    f"{why}: {quota.metadata.name} {who!r} has {amount} {what} of {most}"
                )
        self._check_groups(why)

    def _check_groups(self, why: str) -> None:
        running = [job for key, job in self._world.jobs().items() if self._world.cluster.is_running(key)]
        for job in running:
            most = job.spec.max_concurrent
            group = [
                each
                for each in running
                if job.spec.group
                and each.spec.group == job.spec.group
                and each.metadata.namespace == job.metadata.namespace
            ]
            last = max(group, key=lambda each: each.status.admitted_time or "", default=None)
            assert most is None or last is not job or len(group) <= most, f"{why}: group {job.spec.group}"

    def _uses_of_jobs(self) -> Iterator[Use]:
        for key, job in self._world.jobs().items():
            if job.spec.cancel or is_finished(job) or not self._world.cluster.is_running(key):
                continue
            child = self._world.server.find("jobs", key)
            assert child is not None
            if child["metadata"]["ownerReferences"][0]["uid"] != job.metadata.uid:
                continue
            template = child["spec"]["template"]["metadata"]["annotations"]
            request = template.get(names.REQUEST, "")
            yield Use(
                namespace=job.metadata.namespace,
                user=job.metadata.annotations.get(names.USER, ""),
                project=job.metadata.labels.get(names.LABEL_PROJECT, ""),
                milli=child["spec"]["parallelism"] * milli_of(request),
                models=tuple(each for each in ("V100", "A100") if f"({each})" in request),
                jobs=1,
            )

    def _uses_of_pods(self) -> Iterator[Use]:
        models = {
            device.uuid: device.model for node in self._world.server.typed("gpunodes") for device in node.status.devices
        }
        for pod in self._world.server.typed("pods"):
            if pod.metadata.owner_references or pod.status.phase in {"Succeeded", "Failed"}:
                continue
            allocation = allocation_in(pod.metadata.annotations)
            devices = allocation.devices if allocation is not None else ()
            held = {models.get(device.uuid, "") for device in devices}
            yield Use(
                namespace=pod.metadata.namespace,
                user=None,
                project=pod.metadata.labels.get(names.LABEL_PROJECT, ""),
                milli=sum(device.share_milli for device in devices),
                models=tuple(held) if len(held) == 1 else (),
                jobs=0,
            )

    def check_statuses(self) -> None:
        """Each quota says what is used of it."""
        uses = [*self._uses_of_jobs(), *self._uses_of_pods()]
        quotas: list[GPUQuota] = list(self._world.server.typed("gpuquotas"))
        for quota in quotas:
            its = [use for use in uses if _binds(quota, use, quotas=quotas)]
            have = round(quota.status.gpus * 1000), quota.status.running_jobs
            want = sum(use.milli for use in its), sum(use.jobs for use in its)
            assert have == want, f"{quota.metadata.name} says {have}, and {want} are used: {its}"

    def check_workers(self) -> None:
        """A job whose workers do not all run says so."""
        for key, job in self._world.jobs().items():
            child = self._world.server.find("jobs", key)
            if job.status.phase != "Running" or child is None or not self._world.cluster.is_running(key):
                continue
            pods = [each for each in self._world.cluster._pods_of(child) if "deletionTimestamp" not in each["metadata"]]
            waiting = {_index(pod) for pod in pods if _phase(pod) == "Pending"}
            at_work = {_index(pod) for pod in pods if _phase(pod) in {"Running", "Succeeded"}}
            if len(at_work) == child["spec"]["parallelism"]:
                assert not job.status.reason, f"{key} says {job.status.reason}, and all its workers run"
            elif waiting:
                assert job.status.reason, f"{key} says that it runs, and its workers {waiting} wait"

    def check_others_jobs(self) -> None:
        """Of a job that Kueue admits, the queue says nothing."""
        state = self._world.operator.state
        for key, job in self._world.jobs().items():
            if job.metadata.labels.get(names.KUEUE_QUEUE):
                assert job.metadata.uid not in state.decisions.verdicts, f"{key} is Kueue's, and the queue judges it"

    # --- ends --------------------------------------------------------------------------------------------------

    def check_ends(self) -> None:
        """Each end is counted once; who had others end for it runs, or its room was needed by a job before it."""
        for job in self._world.jobs().values():
            made = job.status.preemption
            assert (made.count if made else 0) == self.ends[job.metadata.uid], f"{job.metadata.name}: {made}"

    def check_starts(self) -> None:
        """What others have ended for starts. Only where nothing else has changed since."""
        jobs = self._world.jobs()
        by_uid = {job.metadata.uid: key for key, job in jobs.items()}
        for key, job in jobs.items():
            made = job.status.preemption
            if made is None or made.by in {"", DRAIN} or made.at is not None or job.status.phase != "Preempted":
                continue
            by = by_uid.get(made.by)
            ran = by is not None and (jobs[by].status.start_time is not None or is_finished(jobs[by]))
            assert by is None or ran, f"{key} was ended for {by}, which is {jobs[by].status}"

    def watch_notices(self) -> None:
        """Nobody ends for a job that has room, or is no more: whoever proves it, and from whatever proof.

        Nor does one leave a drained node on which it has no pod that stays.
        """
        state = self._world.operator.state
        notices = self._world.operator.controller.changes._scheduling.notices
        if getattr(notices.still_hold, "__name__", "") == "watched":
            return
        still_hold = notices.still_hold

        def watched(seen: Observed) -> bool:
            holds = still_hold(seen)
            if holds and seen.notice is not None and seen.notice.by == DRAIN:
                stay = [pod for pod in seen.pods if pod.metadata.deletion_timestamp is None and not is_terminated(pod)]
                there = {pod.spec.node_name for pod in stay}
                drained = {name for name, node in state.store.view.nodes.items() if node.spec.unschedulable}
                assert there & drained, f"{seen.job.metadata.name} leaves {drained}, and its pods are on {there}"
            if holds and seen.notice is not None and seen.notice.by != DRAIN:
                by = next((job for job in state.store.jobs.values() if job.metadata.uid == seen.notice.by), None)
                assert by is not None, f"{seen.job.metadata.name} ends for a job that is no more"
                assert not is_finished(by), f"{seen.job.metadata.name} ends for a job that has ended"
                verdict: Any = state.decisions.verdicts.get(by.metadata.uid)
                assert type(verdict).__name__ != "Admitted", f"{seen.job.metadata.name} ends for a job that has room"
            return holds

        notices.still_hold = watched  # type: ignore[method-assign]

    def watch_events(self) -> None:
        """An event that changes what a job has to react to leads to a reconcile of this job."""
        operator = self._world.operator
        if getattr(operator._deliver, "__name__", "") == "delivered":
            return
        deliver = operator._deliver

        def delivered(plural: str, type_: Any, found: Any) -> None:
            before = self._outside_of_jobs()
            deliver(plural, type_, found)
            queue = operator.queue
            woken = {*queue._dirty, *queue._at_work, *queue._timers}
            for key, outside in self._outside_of_jobs().items():
                if outside != before.get(key, outside) and key not in woken:
                    self._world.failures.append(
                        AssertionError(f"{type_} of {plural} wakes nobody for {key}: {outside}")
                    )

        operator._deliver = delivered  # type: ignore[method-assign]

    def _outside_of_jobs(self) -> dict[str, tuple[Any, ...]]:
        """What each unfinished job sees of others: its dependencies, its array's tasks, and its devices."""
        state, now = self._world.operator.state, self._world.now()
        seen = {key: state.observe(key, now=now) for key, job in state.store.jobs.items() if not is_finished(job)}
        return {
            key: (each.dependencies, each.tasks, each.in_the_way, each.bad_cards, each.overuses)
            for key, each in seen.items()
            if each is not None and each.number is not None
        }


def milli_of(request: str) -> int:
    """Thousandths of GPUs of a request text: `2`, `0.5`, `8G,0.5`, `2(A100)`."""
    amount = request.partition("(")[0].rpartition(",")[2].rpartition("x")[2]
    return round(float(amount or 0) * 1000)


def _binds(quota: GPUQuota, use: Use, *, quotas: list[GPUQuota]) -> bool:
    """Whether it or a quota below it names who uses so much."""
    # One that counts each subject by itself is no parent.
    is_parent = quota.spec.per == "Together"
    below = [each for each in quotas if is_parent and each.spec.parent == quota.metadata.name]
    if any(_binds(each, use, quotas=quotas) for each in below):
        return True
    if below and not quota.spec.names_anyone:
        return False
    spec = quota.spec
    of_namespace = not spec.namespaces or use.namespace in spec.namespaces
    of_project = not spec.projects or use.project in spec.projects
    return of_namespace and of_project and (not spec.users or use.user in spec.users)


def _counted_as(quota: GPUQuota, use: Use) -> str | None:
    return {"Together": "", "Namespace": use.namespace, "User": use.user}[quota.spec.per]
