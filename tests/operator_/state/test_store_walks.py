"""The store after any events, beside one that lists the objects now, in any order: tables, and what each job sees."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from dovetail.api.builtin import Job, Pod
from dovetail.api.gpujob import GPUJob, is_finished
from dovetail_operator.state.state import State
from tests.operator_.arrays.test_array_status import make_task
from tests.operator_.builders import NOW, at, make_budget, make_child, make_job, make_pod
from tests.seeds import seeds
from tests.world import rebuilt
from tests.world.api import ApiServer
from tests.world.operator import make_empty_state
from tests.world.world import World

NAMESPACES = ("team", "other")
# An array, its tasks, and others that wait for any of these.
ARRAY = {"indexes": "0-1"}
NAMES = ("a", "b", "arr", "arr", "arr-t0", "arr-t1")
# What jobs have used is learned in the order in which they came.
IN_ORDER_OF_ARRIVAL = frozenset({"Learning._names", "_Name.members"})
PHASES = (None, "Queued", "Running", "Running", "Succeeded", "Failed", "Cancelled")


@dataclass
class Walk:
    """The objects of two namespaces with equal names, and a store that sees each change of them."""

    random: Random
    live: State = field(default_factory=make_empty_state)
    objects: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {kind: {} for kind in ("gpujobs", "jobs", "pods", "poddisruptionbudgets")}
    )
    versions: int = 10
    uids: int = 0

    # --- events --------------------------------------------------------------------------------------------------

    def step(self) -> str:
        """One event; returns what happened."""
        kind = self.random.choice(["job", "job", "job", "job", "child", "child", "pod", "pod", "budget"])
        key = f"{self.random.choice(NAMESPACES)}/{self.random.choice(NAMES)}"
        happened = getattr(self, f"_{kind}")(key)
        return f"{happened} {kind} {key}"

    def _meta(self, key: str, *, known: Any) -> dict[str, Any]:
        """Metadata of another version; at times of another object of the same name."""
        self.versions += 1
        namespace, _, name = key.partition("/")
        if known is None or self.random.random() < 0.1:
            self.uids += 1
            uid = f"uid-{namespace}-{name}-{self.uids}"
        else:
            uid = known.metadata.uid
        return {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(self.versions)}

    def _job(self, key: str) -> str:
        jobs, random, store = self.objects["gpujobs"], self.random, self.live.store
        known = jobs.get(key)
        if known is not None and random.random() < 0.25:
            if random.random() < 0.2:
                # The deletion of the object that had this name before.
                store.job_deleted(key, uid="uid-before")
                return "stale deletion of"
            del jobs[key]
            store.job_deleted(key, uid=known.metadata.uid)
            return "deleted"
        jobs[key] = self._drawn(key, known=known)
        assert store.job_changed(jobs[key])
        return "changed"

    def _drawn(self, key: str, *, known: GPUJob | None) -> GPUJob:
        random, name = self.random, key.partition("/")[2]
        meta = self._meta(key, known=known)
        phase = random.choice(PHASES)
        if known is not None and known.metadata.uid == meta["uid"] and is_finished(known):
            phase = known.status.phase
        if random.random() < 0.1:
            meta["deletionTimestamp"] = at(0)
        status: dict[str, Any] = {"phase": phase, "number": random.randint(1, 9)} if phase else {}
        if phase in {"Running", "Succeeded", "Failed"}:
            status["startTime"] = at(-60)
        others = [each for each in random.sample(sorted({*NAMES}), random.choice([0, 1, 1, 2])) if each != name]
        spec: dict[str, Any] = {"dependencies": [{"name": each} for each in others]}
        if others and random.random() < 0.5:
            status["dependencies"] = [
                {"name": others[0], "condition": "Succeeded", "state": random.choice(["Waiting", "Met", "Unknown"])}
            ]
        if random.random() < 0.3:
            spec["dependencyPolicy"] = "Any"
        if name == "arr":
            return make_job(name, meta=meta, status=status, array=ARRAY, **spec)
        parent = self.objects["gpujobs"].get(key.partition("-")[0])
        if name.startswith("arr-") and parent is not None and random.random() < 0.7:
            made = make_task(parent, int(name[-1]), phase=phase, meta={"uid": meta["uid"]})
            return make_job(name, meta={**meta, **_inherited(made)}, status=status)
        return make_job(name, meta=meta, status=status, **spec)

    def _child(self, key: str) -> str:
        children, random = self.objects["jobs"], self.random
        known: Job | None = children.get(key)
        if known is not None and random.random() < 0.3:
            if random.random() < 0.3:
                # Of the object that had this name before: its event may come late.
                self.live.store.child_event("DELETED", _as(known, uid="uid-before"))
                return "stale deletion of"
            del children[key]
            self.live.store.child_event("DELETED", known)
            return "deleted"
        owner = self.objects["gpujobs"].get(key) or self._drawn(key, known=None)
        meta = self._meta(key, known=known)
        made = make_child(owner, uid=meta["uid"], suspend=random.random() < 0.3, completions=random.randint(1, 2))
        children[key] = _as(made, resource_version=meta["resourceVersion"])
        self.live.store.child_event("MODIFIED", children[key])
        return "changed"

    def _pod(self, key: str) -> str:
        pods, random = self.objects["pods"], self.random
        namespace, _, job = key.partition("/")
        name = f"{job}-{random.randint(0, 1)}"
        known: Pod | None = pods.get(f"{namespace}/{name}")
        if known is not None and random.random() < 0.4:
            del pods[f"{namespace}/{name}"]
            self.live.store.pod_event("DELETED", known)
            return "deleted"
        child = self.objects["jobs"].get(key)
        owner = "uid-gone" if child is None or random.random() < 0.1 else child.metadata.uid
        meta = self._meta(f"{namespace}/{name}", known=known)
        if known is not None and known.metadata.uid == meta["uid"]:
            owner = known.metadata.owner_references[0].uid
        phase = random.choice(["Pending", "Running", "Succeeded", "Failed"])
        meta["labels"] = {"dovetail.dev/job": job}
        pods[f"{namespace}/{name}"] = pod = make_pod(int(name[-1]), phase=phase, owner=owner, meta=meta)
        if known is not None and known.metadata.uid != pod.metadata.uid:
            self.live.store.pod_event("DELETED", known)
        self.live.store.pod_event("MODIFIED", pod)
        return "changed"

    def _budget(self, key: str) -> str:
        budgets, (namespace, _, name) = self.objects["poddisruptionbudgets"], key.partition("/")
        known = budgets.get(key)
        if known is not None and self.random.random() < 0.4:
            del budgets[key]
            self.live.store.budget_event("DELETED", known)
            return "deleted"
        made = make_budget(name, allowed=self.random.randint(0, 2))
        budgets[key] = _as(made, namespace=namespace)
        self.live.store.budget_event("MODIFIED", budgets[key])
        return "changed"

    # --- what is compared ----------------------------------------------------------------------------------------

    def typed(self, kind: str) -> list[Any]:
        """All objects of a kind, in any order, as a list gives them."""
        found = list(self.objects.get(kind, {}).values())
        self.random.shuffle(found)
        return found

    def check(self) -> State:
        fresh = rebuilt.rebuilt(cast("ApiServer", self), beside=self.live)
        rebuilt.check_tables(self.live, fresh, besides=IN_ORDER_OF_ARRIVAL)
        rebuilt.check_observations(self.live, fresh, world=cast("World", SimpleNamespace(now=lambda: NOW)))
        for key, job in fresh.store.jobs.items():
            ours, theirs = self.live.store.dependencies, fresh.store.dependencies
            assert ours.dependents_of(key) == theirs.dependents_of(key)
            assert ours.is_awaited(job) == theirs.is_awaited(job) == self._is_awaited(job)
        for namespace in NAMESPACES:
            budgets = self.objects["poddisruptionbudgets"].items()
            want = [budget for each, budget in budgets if each.startswith(f"{namespace}/")]
            assert self.live.store.budgets_of(namespace) == want
        return fresh

    def _is_awaited(self, job: GPUJob) -> bool:
        """Whether a job that waits for this one, and goes on, has yet to note its state."""
        name, namespace = job.metadata.name, job.metadata.namespace
        for other in self.objects["gpujobs"].values():
            names = [each.name for each in other.spec.dependencies]
            is_over = is_finished(other) or other.metadata.deletion_timestamp
            if other.metadata.namespace == namespace and name in names and not is_over:
                state = next(each.state for each in self.live.store.dependencies.states_of(other) if each.name == name)
                if {each.name: each.state for each in other.status.dependencies}.get(name) != state:
                    return True
        return False

    def obstacles(self, state: State) -> Mapping[str, object]:
        """What keeps each job that has not ended from starting."""
        return {key: state.obstacle_of(job, now=NOW) for key, job in state.store.jobs.items() if not is_finished(job)}


def _inherited(task: GPUJob) -> dict[str, Any]:
    """What a task has of its array, in its metadata."""
    owners = [
        {"apiVersion": each.api_version, "kind": each.kind, "name": each.name, "uid": each.uid, "controller": True}
        for each in task.metadata.owner_references
    ]
    return {"labels": dict(task.metadata.labels), "ownerReferences": owners}


def _as(made: Any, **metadata: str) -> Any:
    """The object with other metadata."""
    return replace(made, metadata=replace(made.metadata, **metadata))


@seeds(30)
def test_a_store_knows_what_one_knows_that_lists_the_objects_now(seed: int) -> None:
    walk = Walk(Random(seed))
    before: Mapping[str, object] = {}
    for _ in range(30):
        what = walk.step()
        fresh = walk.check()
        news = walk.live.store.dependencies.take_news()
        seen = walk.obstacles(fresh)
        changed = what.rpartition(" ")[2]
        told = {changed, *news, *walk.live.store.dependencies.dependents_of(changed)}
        for key in seen.keys() & before.keys():
            is_circle = "circle" in f"{seen[key]} {before[key]}"
            assert seen[key] == before[key] or key in told or not is_circle, f"{what}: {key} {before[key]} {seen[key]}"
        before = seen
