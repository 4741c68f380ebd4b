"""A job's plan: in its status first, in its pods after, and what is done when it does not hold."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dovetail.api.builtin import Job, Node
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob, KeptOnNode, Placement, QueuePlace, ReservedRoom
from dovetail.api.gpuquota import GPUQuota
from dovetail.api.meta import key_of
from dovetail.engine.model.claims import Claim
from dovetail.engine.model.ranking import DEFAULT_RANKING
from dovetail.jobs.batch_job import deadline_seconds
from dovetail.jobs.plan import open_nodes
from dovetail.pods.demand import ask_of_job
from dovetail.queue.verdicts import Admitted, Verdict, Waits
from dovetail_operator.job.actions import CreateJob, DeleteJob, PatchJob
from dovetail_operator.job.observation import Observed
from dovetail_operator.job.plan import is_written_first, placement_of
from dovetail_operator.job.plan_doubts import Doubt, Doubts, rest_after
from dovetail_operator.job.status_pacing import PASSING_SECONDS, Pacing
from dovetail_operator.lifecycle.reconcile import carries_plan, is_status_first, reconcile
from dovetail_operator.manifests.batch_job import build_job
from dovetail_operator.manifests.planned_template import with_plan
from dovetail_operator.queue.cycle import decide, survey
from dovetail_operator.queue.verdict_updates import VerdictPacing
from dovetail_operator.state.decisions import MANY_STARTS
from dovetail_operator.state.state import State
from tests.operator_.builders import LET_GO, NOW, at, condition, make_child, make_job, make_pod, make_state, see

WORKER = {"request": "2", "cpuMilli": 0, "memoryMiB": 0}


def let_go(job: GPUJob, *nodes: str) -> Admitted:
    """The verdict by which the workers of the job go to `nodes`."""
    claims = tuple(Claim(key=f"{job.metadata.uid}/{at}", node=node) for at, node in enumerate(nodes))
    return Admitted(key=job.metadata.uid, claims=claims, ask=ask_of_job(job, ranking=DEFAULT_RANKING))


def plan(*nodes: tuple[str, int], generation: int = 1) -> dict[str, Any]:
    return {
        "generation": generation,
        "nodes": [{"name": name, "workers": workers} for name, workers in nodes],
        "worker": WORKER,
    }


def required(spec: dict[str, Any]) -> list[dict[str, Any]]:
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert isinstance(terms, list)
    return terms


def on(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


@pytest.mark.parametrize(
    ("spec", "status", "verdict"),
    [
        ({"restart": "Worker"}, {}, {}),
        ({}, {"plans": 1}, {}),
        ({}, {"attempts": [{"number": 1, "reason": "Failed", "message": "m", "counted": True, "endTime": at(-5)}]}, {}),
        ({}, {"startTime": at(-9)}, {}),
        ({}, {"preemption": {"count": 1}}, {}),
        ({}, {"move": {"by": "u"}}, {}),
        ({}, {"queue": {"position": 1, "reserved": {"time": at(0), "nodes": [], "kept": [], "mode": "Exclusive"}}}, {}),
        ({}, {}, {"limit_seconds": 60}),
    ],
)
def test_a_plan_whose_room_has_to_be_held_is_told_first(
    spec: dict[str, Any], status: dict[str, Any], verdict: dict[str, Any]
) -> None:
    job = make_job(gpu=2, status={"number": 7, **status}, **spec)
    seen = replace(see(job, verdict=replace(let_go(job, "a"), **verdict)), plan_may_follow=True)
    assert_told_first(seen)


def assert_told_first(seen: Observed) -> None:
    outcome = reconcile(seen)
    assert not carries_plan(outcome)
    assert is_status_first(seen, outcome=outcome)


def start_many(state: State, *, seconds: float = 0.5) -> None:
    """So long ago."""
    for _ in range(MANY_STARTS):
        state.decisions.note_start(NOW - timedelta(seconds=seconds))


def few_start(state: State) -> None:
    start_many(state, seconds=1.5)


def another_waits(state: State) -> None:
    start_many(state)
    state.decisions.set_verdict("uid-other", verdict=Waits(key="uid-other", reason="Resources", message="Need 4 GPUs"))


def a_quota_exists(state: State) -> None:
    start_many(state)
    state.store.quotas.update(msgspec.convert({"metadata": {"name": "q"}, "spec": {}}, GPUQuota))


@pytest.mark.parametrize(
    ("happens", "spec"),
    [
        (few_start, {}),
        (another_waits, {}),
        (a_quota_exists, {}),
        (start_many, {"workers": 2}),
        (start_many, {"workers": 2, "minWorkers": 1}),
    ],
)
def test_where_few_start_or_the_room_has_to_be_held_a_plan_is_told_first(
    happens: Callable[[State], None], spec: dict[str, Any]
) -> None:
    state, job = make_state(a=4), make_job(gpu=2, status={"number": 7}, **spec)
    state.store.job_changed(job)
    state.decisions.set_verdict(
        job.metadata.uid, verdict=let_go(job, *["a"] * spec.get("minWorkers", job.spec.workers))
    )
    happens(state)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert_told_first(seen)


def test_the_first_plan_of_one_worker_is_in_its_batch_job_until_the_status_has_it() -> None:
    state, job = make_state(a=4), make_job(gpu=2, status={"number": 7})
    state.store.job_changed(job)
    state.decisions.set_verdict(job.metadata.uid, verdict=let_go(job, "a"))
    start_many(state)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    outcome = reconcile(seen)
    assert not is_status_first(seen, outcome=outcome)
    (action,) = outcome.actions
    assert isinstance(action, CreateJob)
    child = {"uid": "c", "resourceVersion": "5", "creationTimestamp": at(3)}
    made = msgspec.convert({**action.manifest, "metadata": {**action.manifest["metadata"], **child}}, Job, strict=False)
    state.store.child_event("ADDED", made)
    shown = state.store.jobs["team/x"].status
    assert (shown.placement, shown.plans) == (outcome.status.placement, 1)
    later = state.observe("team/x", now=NOW + timedelta(seconds=5))
    assert later is not None
    told = reconcile(later).status
    assert (told.phase, told.placement, told.plans, told.admitted_time) == ("Starting", shown.placement, 1, at(3))
    # Also while many jobs start, which other states wait for.
    pacing = Pacing(many_start=lambda _: True)
    assert pacing.wait_seconds("u", before=later.job.status, after=told, now=0.0) == PASSING_SECONDS
    state.store.child_event("DELETED", made)
    assert state.store.jobs["team/x"] is job


def test_the_plan_is_told_with_nodes_and_numbers_of_workers() -> None:
    job = make_job(gpu=2, workers=3)
    status = reconcile(see(job, verdict=let_go(job, "b", "a", "b"))).status
    assert values_of(status.placement) == plan(("b", 2), ("a", 1)) | {"worker": {"request": "2"}}
    assert (status.phase, status.plans) == ("Starting", 1)


def test_the_pods_are_held_to_the_nodes_of_the_plan_and_say_of_which_it_is() -> None:
    job = make_job(gpu=2, workers=3, status={"plans": 4})
    (create,) = reconcile(see(job, verdict=let_go(job, "b", "a", "b"))).actions
    assert isinstance(create, CreateJob)
    template = create.manifest["spec"]["template"]
    assert required(template["spec"]) == [{"matchFields": [on("b")]}, {"matchFields": [on("a")]}]
    said = msgspec.json.decode(template["metadata"]["annotations"]["dovetail.dev/plan"])
    assert said == {"job": "uid-x", "generation": 5, "nodes": ["b", "a"]}


def test_what_the_job_requires_of_nodes_itself_stays() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["x"]}
    own = {"nodeSelectorTerms": [{"matchExpressions": [zone]}, {"matchFields": [on("c")]}]}
    spec = {
        "affinity": {
            "podAffinity": {"kept": True},
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": own, "preferred": "too"},
        }
    }
    template = {"metadata": {}, "spec": spec}
    placement = msgspec.convert(plan(("a", 1)), Placement)
    pinned = with_plan(template, job=make_job(), placement=placement)["spec"]
    assert required(pinned) == [
        {"matchExpressions": [zone], "matchFields": [on("a")]},
        {"matchFields": [on("c"), on("a")]},
    ]
    assert pinned["affinity"]["podAffinity"] == {"kept": True}
    assert pinned["affinity"]["nodeAffinity"]["preferred"] == "too"
    assert with_plan(template, job=make_job(), placement=None) == template


@pytest.mark.parametrize(
    ("nodes", "cluster_nodes", "named"),
    [
        pytest.param(16, 511, False, id="many, and more than one in 32"),
        pytest.param(500, 5_000, False, id="hundreds of thousands"),
        pytest.param(16, 512, True, id="many of far more"),
        pytest.param(15, 99, True, id="few"),
        pytest.param(16, None, True, id="nobody knows how many there are"),
    ],
)
def test_many_nodes_that_are_a_large_part_of_the_cluster_are_named_in_the_plan_alone(
    nodes: int, cluster_nodes: int | None, named: bool
) -> None:
    own = {"nodeSelectorTerms": [{"matchFields": [on("n0")]}]}
    template = {
        "metadata": {},
        "spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": own}}},
    }
    placement = msgspec.convert(plan(*((f"n{at}", 1) for at in range(nodes))), Placement)
    pinned = with_plan(template, job=make_job(), placement=placement, cluster_nodes=cluster_nodes)
    assert len(required(pinned["spec"])) == (nodes if named else 1)
    assert len(msgspec.json.decode(pinned["metadata"]["annotations"]["dovetail.dev/plan"])["nodes"]) == nodes


def test_how_many_nodes_there_are_is_known_of_the_cluster() -> None:
    state, job = make_state(a=1, b=1), make_job()
    state.store.job_changed(job)
    seen = state.observe(key_of(job.metadata), now=NOW)
    assert seen is not None
    assert seen.cluster_nodes == 2


def test_a_plan_of_the_user_s_own_making_does_not_get_into_the_pods() -> None:
    metadata = {"annotations": {"dovetail.dev/plan": "{}", "mine": "stays"}}
    template = {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    job = make_job(template=template)
    built = build_job(job, ask=ask_of_job(job, ranking=DEFAULT_RANKING), number=1)
    annotations = built["spec"]["template"]["metadata"]["annotations"]
    assert "dovetail.dev/plan" not in annotations
    assert annotations["mine"] == "stays"


def test_the_same_plan_keeps_its_number_and_another_one_gets_the_next() -> None:
    job = make_job(gpu=2, workers=2, status={"plans": 3, "placement": plan(("a", 2), generation=3)})
    same, other = placement_of(job, verdict=let_go(job, "a", "a")), placement_of(job, verdict=let_go(job, "a", "b"))
    assert same == job.status.placement
    assert other is not None
    assert other.generation == 4


def test_a_job_without_devices_has_no_plan() -> None:
    job = make_job(resources={"device": "cpu"})
    assert reconcile(see(job, verdict=Admitted(key="uid-x"))).status.placement is None


def test_a_plan_is_told_before_anything_is_done_about_it() -> None:
    job = make_job(gpu=2)
    status = reconcile(see(job, verdict=let_go(job, "a"))).status
    assert is_written_first(status, before=job.status)
    assert not is_written_first(status, before=status)
    assert not is_written_first(job.status, before=status)
    refused = msgspec.structs.replace(job.status, reason="Invalid")
    assert not is_written_first(status, before=refused)
    # One that has its Job has only to be resumed, and pods come of it at once.
    assert is_written_first(status, before=refused, child=make_child(job))


@pytest.mark.parametrize(
    ("phase", "keeps"), [("Starting", True), ("Running", True), ("Queued", False), ("Succeeded", False)]
)
def test_the_plan_stands_as_long_as_the_job_is_at_work(phase: str, *, keeps: bool) -> None:
    job = make_job(gpu=2, status={"plans": 1, "placement": plan(("a", 1))})
    child = {
        "Starting": make_child(job),
        "Running": make_child(job),
        "Queued": make_child(job, suspend=True),
        "Succeeded": make_child(job, status={"conditions": [condition("Complete")]}),
    }[phase]
    pods = [make_pod(node="a")] if phase == "Running" else []
    status = reconcile(see(job, *pods, child=child)).status
    assert status.phase == phase
    assert (status.placement is not None) == keeps
    assert status.plans == 1


def suspended(job: GPUJob, **status: Any) -> Any:
    return make_child(job, suspend=True, status=status)


def test_a_suspended_job_goes_on_by_its_new_plan_in_one_patch() -> None:
    job = make_job(gpu=2, workers=2, status={"plans": 1})
    (patch,) = reconcile(see(job, child=suspended(job), verdict=let_go(job, "a", "b"))).actions
    assert isinstance(patch, PatchJob)
    assert patch.spec["suspend"] is False
    template = patch.spec["template"]
    assert required(template["spec"]) == [{"matchFields": [on("a")]}, {"matchFields": [on("b")]}]
    assert msgspec.json.decode(template["metadata"]["annotations"]["dovetail.dev/plan"])["generation"] == 2


def test_a_suspended_job_goes_on_with_the_weight_policy_and_pool_that_it_has_by_then() -> None:
    job = make_job(gpu="0.5", mode="TimeShared", priority=200, policy="Pack", status={"plans": 1})
    (patch,) = reconcile(see(job, child=suspended(job), verdict=LET_GO)).actions
    assert isinstance(patch, PatchJob)
    template = patch.spec["template"]
    annotations = template["metadata"]["annotations"]
    assert (annotations["dovetail.dev/gpu-priority"], annotations["dovetail.dev/gpu-policy"]) == ("200", "Pack")
    # Held to no pool and no node any more.
    assert template["spec"] == {"affinity": {"nodeAffinity": None}}


@pytest.mark.parametrize(
    ("child", "pods"),
    [
        ({"startTime": at(-60), "active": 1}, []),
        ({"startTime": at(-60)}, []),
        ({"startTime": at(-60), "conditions": [condition("Suspended")]}, [make_pod(node="a")]),
        (
            {"conditions": [condition("Suspended")]},
            [make_pod(phase="Failed", node="a", meta={"deletionTimestamp": at(-1)})],
        ),
    ],
    ids=["active", "not said to be suspended", "a pod is left", "a pod that was ended is not gone"],
)
def test_no_other_plan_is_made_before_the_run_before_has_come_to_rest(child: dict[str, Any], pods: list[Any]) -> None:
    state = make_state(a=8)
    job = make_job(gpu=2, status={"number": 1})
    state.store.job_changed(job)
    state.store.child_changed(suspended(job, **child))
    for pod in pods:
        state.store.pod_event("ADDED", pod)
    assert not survey(state, now=NOW).waiting
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert (reconcile(seen).status.phase, reconcile(seen).status.message) == (
        "Queued", "Waiting for the workers of the run before to end",
    )  # fmt: skip


def test_a_job_at_rest_is_planned_anew() -> None:
    state = make_state(a=8)
    job = make_job(gpu=2, status={"number": 1})
    state.store.job_changed(job)
    state.store.child_changed(suspended(job, startTime=at(-60), conditions=[condition("Suspended")]))
    state.store.pod_event("ADDED", make_pod(phase="Failed", node="a"))
    assert [each.name for each in survey(state, now=NOW).waiting] == ["team/x"]


def test_an_overtaken_job_is_suspended_and_told_so() -> None:
    job = make_job(gpu=2, workers=2, status={"plans": 1, "placement": plan(("a", 2))})
    outcome = reconcile(replace(see(job, make_pod(node="a"), child=make_child(job)), overtaken="node a is gone"))
    assert outcome.actions == (PatchJob(spec={"suspend": True}),)
    status = outcome.status
    assert (status.phase, status.reason, status.placement) == ("Queued", "Evaluating", None)
    assert status.message == "Gets a new plan: node a is gone"


def elastic(*, workers: int, least: int, status: dict[str, Any] | None = None) -> GPUJob:
    return make_job(gpu=2, workers=workers, minWorkers=least, status={"number": 1, **(status or {})})


def look(state: State) -> dict[str, Verdict]:
    """One look of the queue, taken over."""
    found = {verdict.key: verdict for verdict in decide(state, cycle=survey(state, now=NOW))}
    for uid, verdict in found.items():
        state.decisions.set_verdict(uid, verdict=verdict)
    return found


def test_an_elastic_job_starts_with_as_many_workers_as_fit_and_says_so() -> None:
    state = make_state(a=4, b=2)
    state.store.job_changed(elastic(workers=5, least=2))
    look(state)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    outcome = reconcile(seen)
    (create,) = outcome.actions
    assert isinstance(create, CreateJob)
    assert (create.manifest["spec"]["completions"], create.manifest["spec"]["parallelism"]) == (3, 3)
    assert outcome.status.placement is not None
    assert sum(node.workers for node in outcome.status.placement.nodes) == 3
    assert outcome.status.gpus == 6
    assert outcome.status.conditions[0].message == "Admitted by the queue with 3 of 5 workers"


def test_an_elastic_job_waits_where_its_least_number_does_not_fit() -> None:
    state = make_state(a=2)
    state.store.job_changed(elastic(workers=5, least=2))
    found = look(state)["uid-x"]
    assert isinstance(found, Waits)
    assert found.message.startswith("Need 4 GPUs, only 2 available")


def test_an_elastic_job_at_work_has_the_workers_that_it_was_started_with() -> None:
    state = make_state(a=8)
    job = elastic(workers=5, least=2, status={"plans": 1, "placement": plan(("a", 3))})
    state.store.job_changed(job)
    state.store.child_changed(make_child(job, completions=3, parallelism=3))
    for worker in range(3):
        state.store.pod_event("ADDED", make_pod(worker, node="a", created=-worker))
    cycle = survey(state, now=NOW)
    assert not cycle.on_the_way
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    status = reconcile(seen).status
    assert (status.phase, status.reason, status.gpus) == ("Running", "", 6)
    assert status.message.startswith("Runs with 3 of 5 workers, as many as fit")


def test_an_elastic_job_that_is_planned_anew_with_another_number_is_made_anew() -> None:
    state = make_state(a=8)
    job = elastic(workers=5, least=2, status={"plans": 1})
    state.store.job_changed(job)
    rest = {"startTime": at(-60), "conditions": [condition("Suspended")]}
    state.store.child_changed(make_child(job, suspend=True, status=rest, completions=3, parallelism=3))
    look(state)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert reconcile(seen).actions == (DeleteJob(),)


def at_work(state: State, *nodes: tuple[str, int], name: str = "x", plans: int = 1) -> GPUJob:
    """A job whose plan is under way, without any pod yet."""
    status = {"number": 1, "plans": plans, "placement": plan(*nodes, generation=plans)}
    job = make_job(name, gpu=2, workers=sum(workers for _, workers in nodes), status=status)
    state.store.job_changed(job)
    state.store.child_changed(make_child(job, uid=f"uid-child-{name}"))
    return job


def doubts(state: State) -> dict[str, Doubt]:
    cycle = survey(state, now=NOW)
    list(decide(state, cycle=cycle))
    return cycle.doubts


def test_the_workers_without_a_pod_are_awaited_on_their_own_nodes() -> None:
    state = make_state(a=8, b=8)
    job = at_work(state, ("a", 2), ("b", 2))
    pods = [make_pod(0, node="a"), make_pod(1, node="a", phase="Failed")]
    assert open_nodes(job, pods=pods, workers=3) == ("a", "b", "b")
    assert doubts(state) == {}


def cordon(state: State, name: str) -> None:
    node = state.store.view.nodes[name]
    state.store.view.node_changed(
        msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))
    )


def unready(state: State, name: str) -> None:
    body = values_of(state.store.view.nodes[name]) | {}
    body["status"]["conditions"] = [condition("Ready", status="False")]
    state.store.view.node_changed(msgspec.convert(body, Node))


@pytest.mark.parametrize(
    ("happens", "why"),
    [
        (lambda state: state.store.view.node_gone("b"), "node b is gone"),
        (lambda state: cordon(state, "b"), "node b is cordoned"),
        (lambda state: unready(state, "b"), "node b is not ready"),
    ],
    ids=["gone", "cordoned", "not ready"],
)
def test_a_plan_on_a_node_that_takes_no_pods_is_overtaken_at_once(happens: Any, why: str) -> None:
    state = make_state(a=8, b=8)
    at_work(state, ("a", 1), ("b", 1))
    happens(state)
    assert doubts(state) == {"uid-x": Doubt(why=why)}


def test_a_plan_whose_room_a_stranger_took_is_overtaken_after_a_while() -> None:
    state = make_state(a=2)
    at_work(state, ("a", 1))
    stranger = make_pod(node="a", devices=2, owner="uid-other", meta={"labels": {}, "name": "stranger"})
    state.store.pod_event("ADDED", stranger)
    found = doubts(state)
    assert found == {"uid-x": Doubt(why="the room on a is taken", patience_seconds=3.0)}
    watch = Doubts()
    assert watch.overtaken(found, now=10) == {}
    assert watch.overtaken(found, now=13) == {"uid-x": "the room on a is taken"}
    assert watch.overtaken({}, now=14) == {}
    assert watch.overtaken(found, now=15) == {}


def test_a_plan_waits_for_those_who_are_leaving() -> None:
    state = make_state(a=2)
    at_work(state, ("a", 1))
    leaving = {"labels": {}, "name": "victim", "deletionTimestamp": at(0)}
    state.store.pod_event("ADDED", make_pod(node="a", devices=2, owner="uid-other", meta=leaving, created=-60))
    refused = [condition("PodScheduled", status="False", reason="Unschedulable")]
    state.store.pod_event("ADDED", make_pod(phase="Pending", node="", owner="uid-child-x", conditions=refused))
    assert doubts(state) == {}


def test_a_plan_that_kube_scheduler_refuses_is_doubted_longer_each_time_and_then_rests_longer() -> None:
    refused = [condition("PodScheduled", status="False", reason="Unschedulable")]
    patience, rest = [], []
    for plans in (1, 2, 3, 20):
        state = make_state(a=2)
        at_work(state, ("a", 1), plans=plans)
        state.store.pod_event("ADDED", make_pod(phase="Pending", node="", owner="uid-child-x", conditions=refused))
        doubt = doubts(state)["uid-x"]
        patience.append(doubt.patience_seconds)
        rest.append(doubt.rest_seconds)
    assert patience == [5, 10, 20, 60]
    assert rest == [0, 5, 10, 300]


def test_a_gang_of_which_kube_scheduler_refuses_a_part_is_not_left_half_started() -> None:
    refused = [condition("PodScheduled", status="False", reason="Unschedulable", message="0/6 nodes: spread")]
    state = make_state(a=2, b=2)
    at_work(state, ("a", 1), ("b", 1), plans=20)
    state.store.pod_event("ADDED", make_pod(0, node="a", owner="uid-child-x", devices=2))
    state.store.pod_event("ADDED", make_pod(1, phase="Pending", node="", owner="uid-child-x", conditions=refused))
    doubt = doubts(state)["uid-x"]
    assert (doubt.patience_seconds, doubt.rest_seconds, doubt.words) == (5, 300, "kube-scheduler: 0/6 nodes: spread")


def test_a_job_that_rests_after_a_refusal_says_why_in_kube_schedulers_words_and_others_have_its_room() -> None:
    state = make_state(a=2)
    job = make_job(gpu=2, status={"number": 1, "plans": 3})
    state.store.job_changed(job)
    state.store.job_changed(make_job("other", gpu=2, status={"number": 2}))
    rest = rest_after(Doubt(why="", rest_seconds=20, words="kube-scheduler: 0/6 nodes: spread"), now=NOW)
    assert rest is not None
    state.decisions.refuse(job, obstacle=rest)
    assert look(state).keys() == {"uid-other"}
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    outcome = reconcile(seen)
    assert (outcome.status.phase, outcome.status.reason) == ("Queued", "Resources")
    assert outcome.status.message == f"Gets a new plan at {at(20)}: kube-scheduler: 0/6 nodes: spread"
    assert outcome.wake_at == NOW + timedelta(seconds=20)
    assert state.obstacle_of(job, now=NOW + timedelta(seconds=21)) is None


def test_a_verdict_whose_plan_is_lost_before_anything_was_made_of_it_is_taken_back() -> None:
    state = make_state(a=2)
    job = make_job(gpu=2, status={"number": 1})
    state.store.job_changed(job)
    verdict: Verdict = let_go(job, "a")
    state.decisions.set_verdict("uid-x", verdict=verdict)
    cordon(state, "a")
    assert doubts(state) == {"uid-x": Doubt(why="node a is cordoned")}


def occupied(state: State, *, gpus: int, seconds: float, node: str = "a") -> None:
    """A job with a limit runs there for so long yet."""
    runs = make_job("runs", status={"number": 1}, gpu=gpus, activeDeadlineSeconds=int(seconds))
    state.store.job_changed(runs)
    state.store.child_changed(make_child(runs, uid="uid-child-runs", status={"startTime": at(0)}))
    state.store.pod_event("ADDED", make_pod(node=node, devices=gpus, owner="uid-child-runs", created=-60))


def test_what_is_kept_for_the_first_job_that_waits_stands_in_its_status() -> None:
    state = make_state(a=4)
    occupied(state, gpus=3, seconds=3600)
    state.store.job_changed(make_job("large", status={"number": 2}, gpu=4))
    state.store.job_changed(make_job("next", status={"number": 3}, gpu=2))
    found = {verdict.key: verdict for verdict in decide(state, cycle=survey(state, now=NOW))}
    large, following = found["uid-large"], found["uid-next"]
    assert isinstance(large, Waits)
    assert isinstance(following, Waits)
    assert large.queue is not None
    assert following.queue is not None
    assert values_of(large.queue.reserved) == {
        "time": at(3600 + 30),
        "nodes": [{"name": "a", "workers": 1}],
        "kept": [{"name": "a", "keeps": ["1"]}],
        "mode": "Exclusive",
        "resource": "",
    }
    assert following.queue.reserved is None


def test_other_room_that_is_kept_is_told_at_once() -> None:
    teller = VerdictPacing()
    room = ReservedRoom(time=at(0), nodes=[], kept=[KeptOnNode(name="a", keeps=["1"])])
    told = Waits(key="x", reason="Resources", message="", queue=QueuePlace(position=1, reserved=room))
    later = msgspec.structs.replace(room, time=at(9))
    more = msgspec.structs.replace(room, kept=[KeptOnNode(name="a", keeps=["2"])])
    assert not teller.hold_back(told, before=None, rank=0, now=0)
    for news, held_back in ((later, True), (more, False), (None, False)):
        verdict = msgspec.structs.replace(told, queue=QueuePlace(position=1, reserved=news))
        assert teller.hold_back(verdict, before=told, rank=0, now=1) == held_back


def test_a_plan_keeps_the_limit_that_let_the_job_start_before_others() -> None:
    """The limit of the spec may have been raised between the queue's decision and its record."""
    job = make_job(activeDeadlineSeconds=864_000)
    placed = placement_of(job, verdict=replace(let_go(job, "a"), limit_seconds=120))
    assert placed is not None
    assert placed.limit_seconds == 120
    planned = msgspec.structs.replace(job, status=msgspec.structs.replace(job.status, placement=placed))
    assert deadline_seconds(planned) == 120
    without = msgspec.structs.replace(planned.spec, active_deadline_seconds=None)
    assert deadline_seconds(msgspec.structs.replace(planned, spec=without)) == 120
    lower = msgspec.structs.replace(planned.spec, active_deadline_seconds=60)
    assert deadline_seconds(msgspec.structs.replace(planned, spec=lower)) == 60
