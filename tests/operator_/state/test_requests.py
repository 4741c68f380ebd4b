"""What each worker of a job requests: once for each generation, with the alternative that was chosen."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.gpujob import GPUJob
from dovetail.cluster.view import ClusterView
from dovetail.engine.ledger.ledger import Ledger
from dovetail.engine.model.ranking import DEFAULT_RANKINGS, Ranking, Rankings
from dovetail.engine.model.topology import DEFAULT_LEVELS
from dovetail.jobs.size_limits import JobLimits
from dovetail.queue.inputs.candidates import CPU
from dovetail.queue.verdicts import Admitted
from dovetail_operator.state.state import Reading, State, build_state, read_request
from tests.operator_.builders import NO_ROOM, NOW, at, make_child, make_job, make_state

PLUGIN = "nvidia.com/gpu"


@pytest.fixture
def state() -> State:
    return make_state(a=2)


def put(state: State, job: GPUJob) -> GPUJob:
    state.store.job_changed(job)
    return job


def resource(state: State, job: GPUJob) -> str:
    ask = state.requests.ask_of(job)
    assert ask is not None
    return ask.resource


def test_a_generation_is_read_once_and_the_next_one_anew(state: State) -> None:
    job = put(state, make_job(gpu=1))
    first = state.requests.read(job)
    assert state.requests.read(make_job(gpu=2)) is first
    edited = state.requests.read(make_job(gpu=2, meta={"generation": 2}))
    assert edited.asks[0].gpu is not None
    assert edited.asks[0].gpu.count == 2


def test_a_deleted_job_s_reading_is_forgotten_and_another_s_stays(state: State) -> None:
    job, other = put(state, make_job()), put(state, make_job("y"))
    second = state.requests.read(other)
    state.requests.read(job)
    state.store.job_deleted("team/x", uid="uid-x")
    state.store.job_deleted("team/x", uid="uid-x")
    assert "uid-x" not in state.requests._readings
    assert state.requests.read(other) is second


def test_the_preferred_way_is_asked_until_another_is_chosen(state: State) -> None:
    job = put(state, make_job(gpu=1))
    ways = state.requests.ways_of(job)
    assert [way.resource for way in ways] == ["", PLUGIN]
    assert resource(state, job) == ""
    state.decisions.set_verdict("uid-x", verdict=NO_ROOM)
    assert resource(state, job) == ""
    state.decisions.set_verdict("uid-x", verdict=Admitted(key="uid-x", ask=ways[1]))
    assert resource(state, job) == PLUGIN
    state.decisions.set_verdict("uid-x", verdict=Admitted(key="uid-x"))
    assert resource(state, job) == ""


def test_a_guest_has_the_way_alone_for_which_its_pods_were_completed(state: State) -> None:
    job = put(state, make_job(gpu=1, managedBy=names.GUESTS_MANAGER))
    assert [way.resource for way in state.requests.ways_of(job)] == [""]


def test_a_batch_job_says_which_way_its_pods_go_whatever_the_verdict_is(state: State) -> None:
    job = put(state, make_job(gpu=1))
    ways = state.requests.ways_of(job)
    state.decisions.set_verdict("uid-x", verdict=Admitted(key="uid-x", ask=ways[1]))
    child = make_child(job)
    state.store.child_changed(child)
    assert resource(state, job) == ""
    annotated = msgspec.structs.replace(child.metadata, annotations={names.GPU_RESOURCE: PLUGIN}, resource_version="21")
    state.store.child_changed(msgspec.structs.replace(child, metadata=annotated))
    assert resource(state, job) == PLUGIN


def test_a_batch_job_that_runs_without_its_gpus_asks_for_none(state: State) -> None:
    job = put(state, make_job(gpu=1))
    child = make_child(job)
    annotated = msgspec.structs.replace(child.metadata, annotations={names.DEVICE: CPU})
    state.store.child_changed(msgspec.structs.replace(child, metadata=annotated))
    ask = state.requests.ask_of(job)
    assert ask is not None
    assert (ask.gpu, ask.resource) == (None, "")


def test_a_request_that_cannot_be_read_asks_for_nothing(state: State) -> None:
    job = put(state, make_job(gpu="8X,0.5"))
    assert (state.requests.ask_of(job), state.requests.ways_of(job), state.requests.estimate_of(job)) == (
        None,
        [],
        None,
    )


def test_a_job_without_a_policy_gets_its_namespace_s_or_else_the_default() -> None:
    state = build_state(
        ClusterView(ledger=Ledger()),
        rankings=Rankings(usual=Ranking(policy="Spread"), by_namespace={"team": Ranking(policy="Pack")}),
    )
    policies = [
        state.requests.read(put(state, job)).asks[0].policy
        for job in (make_job(), make_job("y", meta={"namespace": "other"}), make_job("z", policy="Balanced"))
    ]
    assert policies == ["Pack", "Spread", "Balanced"]


def test_a_job_beyond_the_limit_of_its_size_has_its_refusal_and_no_request() -> None:
    state = make_state(job_limits=JobLimits(spec_bytes=10))
    job = put(state, make_job())
    reading = state.requests.read(job)
    assert reading.asks == ()
    assert reading.obstacle is not None
    assert state.obstacle_of(job, now=NOW) == reading.obstacle


def test_memory_that_was_learned_is_asked_for_only_by_a_job_that_estimates(state: State) -> None:
    shared: dict[str, Any] = {"gpu": "0.5", "memory": {"strategy": "Dynamic"}}
    told = {"strategy": "Dynamic", "basis": "", "peakMiB": 5000}
    put(
        state,
        make_job(
            "train-1",
            status={"phase": "Succeeded", "startTime": at(-900), "completionTime": at(-100), "memory": told},
            meta={"generateName": "train-"},
            **shared,
        ),
    )
    estimating = put(state, make_job("train-2", meta={"generateName": "train-"}, **shared))
    fixed = put(state, make_job("train-3", meta={"generateName": "train-"}, gpu="0.5"))
    assert (state.requests.estimate_of(estimating), state.requests.estimate_of(fixed)) == (5500, None)


def test_equal_specs_of_a_namespace_are_read_once(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    read = list[str]()

    def note(job: GPUJob, **more: Any) -> Reading:
        read.append(f"{job.metadata.namespace}/{job.metadata.name}")
        return read_request(job, **more)

    monkeypatch.setattr("dovetail_operator.state.state.read_request", note)
    for number in range(3):
        put(state, make_job(f"same-{number}", gpu="0.5"))
    put(state, make_job("other", gpu="0.25"))
    put(state, make_job("there", gpu="0.5", meta={"namespace": "else"}))
    found = {key: state.requests.read(job) for key, job in state.store.jobs.items()}
    assert read == ["team/same-0", "team/other", "else/there"]
    assert found["team/same-0"] == found["team/same-2"]
    assert [str(each.gpu) for each in found["team/other"].asks] == ["0.25"]


def test_a_spec_that_names_its_job_and_one_that_is_wrong_are_read_for_each_job(state: State) -> None:
    anti = {"labelSelector": {"matchLabels": {names.LABEL_JOB: "apart-1"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [anti]}}
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}], "affinity": affinity}}
    first, second = (put(state, make_job(f"apart-{each}", gpu=1, workers=2, template=template)) for each in (1, 2))
    assert [state.requests.read(job).asks[0].apart for job in (first, second)] == [True, False]
    wrong = {"spec": {"containers": [{"name": "main"}], "nodeName": "a"}}
    for name in ("wrong-1", "wrong-2"):
        assert state.requests.read(put(state, make_job(name, template=wrong))).obstacle is not None
    assert all(each.obstacle is None for each in state.requests._of_specs.values())


def test_a_new_configuration_reads_all_specs_again(state: State) -> None:
    job = put(state, make_job())
    state.requests.read(job)
    state.requests.configure(rankings=DEFAULT_RANKINGS, levels=DEFAULT_LEVELS)
    assert not state.requests._of_specs
