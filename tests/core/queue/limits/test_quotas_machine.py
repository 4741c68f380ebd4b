"""All that is cached about quotas, beside quotas that are built from the objects after each change.

Objects change one after the other and several times between two looks: jobs that take the same with other terms,
quotas that come, change and go, pods that another report gives other devices, statuses that record usage.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpuquota import GPUQuota
from dovetail.engine.ledger.ledger import Ledger
from dovetail.queue.limits.quota_usage import Counted
from dovetail.queue.limits.quotas import Quotas
from dovetail.queue.limits.subjects import Subject
from dovetail.queue.model.gate import Refused
from tests.core.engine.builders import add_node, hold_devices, make_ask, make_device, make_ledger
from tests.core.queue.quota_tree.builders import make_quota
from tests.core.queue.twin import _asked as asked_of_loans

NOW: Final = datetime(2026, 1, 8, 12, tzinfo=UTC)
NOON: Final = {"name": "noon", "start": "12:00", "end": "13:00", "gpus": 2}
AFTERNOON: Final = {"name": "afternoon", "days": ["Thursday"], "start": "13:00", "end": "18:00", "gpus": 3}
SPECS: Final[tuple[dict[str, Any], ...]] = (
    {"limit": {"gpus": 4}},
    {"namespaces": ["vision"], "limit": {"gpus": 2, "runningJobs": 1}},
    {"namespaces": ["vision"], "limit": {"models": {"V100": 1}, "queuedJobs": 1}},
    {"users": ["ada"], "limit": {"memory": "64Gi"}},
    {"limit": {"memory": "96Gi"}},
    {"namespaces": ["vision"], "limit": {"memory": "40Gi", "models": {"A100": 1}}},
    {"users": ["ada"], "maxPriority": 5},
    {"projects": ["p"], "preemptionPolicy": "Never"},
    {"projects": ["p"], "pools": ["fast"], "limit": {"gpus": 1}},
    {"namespaces": ["speech"], "pools": ["slow"], "maxPriority": 50},
    {"per": "User", "shares": 3},
    {"per": "Namespace", "shares": 1, "limit": {"gpus": 3}},
    {"namespaces": ["vision"], "guaranteed": 2},
    {"namespaces": ["speech"], "guaranteed": 1, "parent": "root"},
    {"guaranteed": 4, "parents_only": True},
    {"namespaces": ["vision"], "memory": "40Gi", "parent": "root"},
    {"namespaces": ["vision"], "guaranteed": 1, "guaranteeWindows": [NOON], "reserve": {"gpus": 1}},
    {"namespaces": ["speech"], "guaranteeWindows": [NOON, AFTERNOON], "parent": "root"},
    {"namespaces": ["vision"], "forecast": {"gpus": 3}, "guaranteed": 1, "reserve": {"gpus": 1}},
)
SUBJECTS: Final = tuple(
    Subject(namespace=namespace, user=user, project=project)
    for namespace in ("vision", "speech")
    for user in ("ada", "bob", "")
    for project in ("", "p")
)
# What may change of a job while it takes the same, and what it takes.
EDITS: Final[tuple[dict[str, Any], ...]] = (
    {"group": "g", "max_concurrent": 1},
    {"group": "g"},
    {"group": "", "max_concurrent": None},
    {"max_concurrent": 3},
    {"refused": Refused(reason="Quota", message="spec.priority is 90, at most 50")},
    {"refused": None},
    {"preemptible": False},
    {"preemptible": True},
    {"queued": True},
    {"queued": False},
    {"queued": False, "start": NOW},
    {"milli": 500},
    {"model": "V100"},
    {"model": ""},
    {"memory_mib": 16384},
    {"workers": 2, "least": 1},
    {"workers": 2, "least": None},
    *({"subject": subject} for subject in SUBJECTS[::2]),
)


def job_of(subject: Subject, *, priority: int, pool: str | None) -> GPUJob:
    annotations = {names.USER: subject.user} if subject.user else {}
    labels = {names.LABEL_PROJECT: subject.project} if subject.project else {}
    meta = {"name": "x", "namespace": subject.namespace, "uid": "u", "annotations": annotations, "labels": labels}
    return msgspec.convert({"metadata": meta, "spec": {"priority": priority, "pool": pool}}, GPUJob)


JOBS: Final = tuple(
    job_of(subject, priority=priority, pool=pool)
    for subject in SUBJECTS
    for priority, pool in ((0, None), (90, "fast"))
)


class QuotasMachine(RuleBasedStateMachine):
    """One set of quotas lives through all changes. Beside it, one is built anew for each look."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.ledger: Ledger = make_ledger(n=4)
        self.live = Quotas()
        self.objects: dict[str, GPUQuota] = {}
        self.jobs = {
            uid: Counted(uid=uid, subject=subject, milli=1000, queued=uid != "a", start=None if uid != "a" else NOW)
            for uid, subject in zip("abc", SUBJECTS, strict=False)
        }
        self.pods: dict[str, Pod] = {}
        self.departed: list[Counted] = []
        # The levels of the last computation, without those of quotas that are gone since.
        self.levels: Mapping[Any, float] = {}
        self.recent: Mapping[Any, float] = {}
        self.seen: tuple[int, object] = (-1, None)

    def fresh(self) -> Quotas:
        found = Quotas()
        for quota in self.objects.values():
            found.update(quota)
        found.observe(self.ledger, now=self.now)
        for pod in self.pods.values():
            found.pod_changed(pod, ledger=self.ledger)
        for each in self.departed:
            found.departed(each)
        found._levels, found._recent = self.levels, self.recent
        return found

    def forget_recorded(self) -> None:
        """The use of a deleted job that no quota is yet to record counts nowhere, whatever quota comes later."""
        asked = self.fresh()
        self.departed = [
            each
            for each in self.departed
            if each.end is not None and asked.wants_use_until(each.end, subject=each.subject)
        ]

    # --- changes -----------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(["one", "two", "root"]), spec=st.sampled_from(SPECS))
    def change_quota(self, name: str, spec: dict[str, Any]) -> None:
        quota = make_quota(name, **spec)
        if quota.spec.parent == name:
            return
        if name in self.objects:
            quota = msgspec.structs.replace(quota, status=self.objects[name].status)
        self.objects[name] = quota
        self.live.update(quota)
        self.live.observe(self.ledger, now=self.now)

    @rule(name=st.sampled_from(["one", "two", "root"]))
    def delete_quota(self, name: str) -> None:
        self.objects.pop(name, None)
        self.live.drop(name)
        self.levels, self.recent = (
            {account: amount for account, amount in amounts.items() if account[0] != name}
            for amounts in (self.levels, self.recent)
        )
        self.forget_recorded()

    @rule(uid=st.sampled_from("abc"), subject=st.sampled_from(SUBJECTS), queued=st.booleans())
    def add_job(self, uid: str, subject: Subject, queued: bool) -> None:
        start = None if queued else self.now - timedelta(hours=1)
        self.jobs[uid] = Counted(uid=uid, subject=subject, milli=1000, queued=queued, start=start)

    @rule(data=st.data(), edits=st.lists(st.sampled_from(EDITS), min_size=1, max_size=2))
    def change_job(self, data: st.DataObject, edits: list[dict[str, Any]]) -> None:
        if self.jobs:
            uid = data.draw(st.sampled_from(sorted(self.jobs)))
            for edit in edits:
                self.jobs[uid] = replace(self.jobs[uid], **edit)

    @rule(uid=st.sampled_from("abc"))
    def end_job(self, uid: str) -> None:
        job = self.jobs.pop(uid, None)
        if job is not None and job.start is not None:
            ended = replace(job, end=self.now, queued=False)
            self.departed.append(ended)
            self.live.departed(ended)

    @rule(
        at=st.integers(0, 3), namespace=st.sampled_from(["vision", "speech"]), project=st.sampled_from(["", "p"]),
        owned=st.booleans(),
    )  # fmt: skip
    def bind_pod(self, at: int, namespace: str, project: str, owned: bool) -> None:
        uid = f"pod-{at}"
        if uid in self.pods or self.ledger.claim(uid) is not None:
            return
        hold_devices(self.ledger, "n", at, key=uid)
        owners = [{"kind": "Job", "name": "x", "uid": "child", "controller": True, "apiVersion": "batch/v1"}]
        labels = ({names.LABEL_PROJECT: project} if project else {}) | ({names.LABEL_JOB: "x"} if owned else {})
        meta = {"name": uid, "namespace": namespace, "uid": uid, "labels": labels}
        pod = msgspec.convert(
            {
                "metadata": meta | ({"ownerReferences": owners} if owned else {}),
                "spec": {"nodeName": "n", "containers": [{"name": "m"}]},
                "status": {"startTime": "2026-01-08T11:00:00Z"},
            },
            Pod,
        )
        self.pods[uid] = pod
        self.live.pod_changed(pod, ledger=self.ledger)

    @rule(at=st.integers(0, 3), is_deleted=st.booleans())
    def end_pod(self, at: int, is_deleted: bool) -> None:
        pod = self.pods.pop(f"pod-{at}", None)
        if pod is not None:
            self.ledger.release(pod.metadata.uid)
            if is_deleted:
                self.live.pod_gone(pod.metadata.uid)
            else:
                self.live.pod_changed(pod, ledger=self.ledger)

    @rule(model=st.sampled_from(["V100", "A100", "T4"]), more=st.booleans())
    def report_devices(self, model: str, more: bool) -> None:
        self.ledger.set_devices("n", devices=[make_device("n", at, model=model) for at in range(4)])
        if more and "m" not in self.ledger.nodes():
            add_node(self.ledger, "m", gpus=2, model="T4")
        self.live.observe(self.ledger, now=self.now)
        self.live.devices_changed("n", ledger=self.ledger)

    @rule(hours=st.sampled_from([0, 1, 24]), written=st.booleans())
    def compute(self, hours: int, written: bool) -> None:
        """Statuses are computed, and come back from the API server or not."""
        self.now += timedelta(hours=hours)
        self.live.observe(self.ledger, now=self.now)
        self.forget_recorded()
        fresh, capacity = self.fresh(), self.live.capacity(self.ledger)
        ours, theirs = (
            each.compute_statuses(list(self.jobs.values()), now=self.now, capacity=capacity)
            for each in (self.live, fresh)
        )
        assert ours == theirs
        assert self.live._levels == fresh._levels
        assert self.live._departed == self.departed, "what a quota has recorded is kept"
        self.levels, self.recent = fresh._levels, fresh._recent
        for name, status in ours.items() if written else ():
            self.objects[name] = msgspec.structs.replace(self.objects[name], status=status)
            self.live.update(self.objects[name])
        if written:
            # The next computation is that of quotas which have recorded what was used until now.
            self.compute(hours=0, written=False)

    # --- what always holds -------------------------------------------------------------------------------------

    @invariant()
    def both_say_the_same(self) -> None:
        fresh, counted = self.fresh(), list(self.jobs.values())
        capacity = fresh.capacity(self.ledger)
        assert self.live.capacity(self.ledger) == capacity
        of_jobs = []
        for each in (self.live, fresh):
            of_jobs.append(
                [
                    each.memory_of(make_ask("1"), workers=2),
                    *(
                        (each.pools_of(job), each.rank_of(job), each.refusal_of(job), each.level_of(job))
                        for job in JOBS
                    ),
                ]
            )
            assert [each.names_of(subject) for subject in SUBJECTS] == [fresh.names_of(subject) for subject in SUBJECTS]
        assert of_jobs[0] == of_jobs[1]
        version, before = self.seen
        assert self.live.version != version or of_jobs[0] == before, "what waits is not looked at again"
        self.seen = self.live.version, of_jobs[0]
        for scaled in (None, capacity):
            assert self.live.tree(capacity=scaled) == fresh.tree(capacity=scaled)
            for children in (frozenset[Any](), frozenset({("vision", "child")})):
                ours, theirs = (each.gate(counted, children=children, capacity=scaled) for each in (self.live, fresh))
                assert (ours is None) == (theirs is None)
                if ours is not None and theirs is not None:
                    assert (ours._terms, +ours._used) == (theirs._terms, +theirs._used)
                    assert (ours.loans is None) == (theirs.loans is None)
                    if ours.loans is not None and theirs.loans is not None:
                        assert asked_of_loans(ours.loans) == asked_of_loans(theirs.loans)
        for subject in SUBJECTS:
            for hours in (0, 2):
                end = self.now - timedelta(hours=hours)
                assert self.live.wants_use_until(end, subject=subject) == fresh.wants_use_until(end, subject=subject)


TestQuotas = QuotasMachine.TestCase
TestQuotas.settings = settings(max_examples=60, stateful_step_count=25)
