"""Whatever a template is: its job is told what is wrong, or a batch Job is made of it. Nothing else comes of it."""

from copy import deepcopy
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dovetail.jobs import array_tasks
from dovetail_operator.arrays.task_manifest import manifests_of
from dovetail_operator.job.actions import CreateJob
from dovetail_operator.job.liveness_warning import warning_of
from dovetail_operator.lifecycle.reconcile import reconcile
from dovetail_operator.queue.cycle import decide, survey
from tests.operator_.builders import NOW, make_job, make_state

ODD = st.recursive(
    st.sampled_from([None, "", "x", "nan", "1Ei", 0, -1, 10**40, 1.5, True]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "name"]), inner, max_size=2),
    max_leaves=4,
)
SELECTOR = {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
ON_NODES = {
    "matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}],
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# All that Dovetail reads of a template, or adds to.
WHOLE: dict[str, Any] = {
    "restartPolicy": "Never",
    "containers": [
        {
            "name": "main",
            "image": "busybox",
            "command": ["train"],
            "args": ["--lr", "{lr}"],
            "env": [{"name": "A", "value": "b"}, {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "0"}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "ports": [{"containerPort": 80, "hostPort": 80}],
            "livenessProbe": {"exec": {"command": ["true"]}},
        }
    ],
    "initContainers": [{"name": "first", "image": "busybox", "restartPolicy": "Always", "resources": {}}],
    "volumes": [{"name": "data", "emptyDir": {}}],
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
    "affinity": {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [ON_NODES]}},
        "podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname", "labelSelector": SELECTOR}]},
    },
    "hostNetwork": False,
    "nodeName": "",
    "priority": 5,
    "schedulerName": "dovetail",
    "terminationGracePeriodSeconds": 5,
}


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in a value, at every depth."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [*([at] if at else []), *(place for key, each in inner for place in places(each, (*at, key)))]


@st.composite
def templates(draw: st.DrawFn) -> dict[str, Any]:
    """A pod's spec of a few fields, with something odd in one or two places."""
    kept = draw(st.sets(st.sampled_from(sorted(WHOLE)), max_size=4)) | {"containers"}
    spec = deepcopy({key: WHOLE[key] for key in kept})
    for _ in range(draw(st.integers(1, 2))):
        *above, last = draw(st.sampled_from(places(spec)))
        holder: Any = spec
        for key in above:
            holder = holder[key]
        holder[last] = draw(ODD)
    assume(passes_the_schema(spec))
    return spec


def passes_the_schema(spec: dict[str, Any]) -> bool:
    """Whether the API server takes it: of a template the schema knows little."""
    containers = spec["containers"]
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(each, dict) for each in containers)
        and all(isinstance(each.get("name"), str) and isinstance(each.get("image", ""), str) for each in containers)
        and spec.get("restartPolicy", "Never") in ["Never", "OnFailure"]
    )


@settings(max_examples=300)
@given(
    templates(),
    st.sampled_from(["1", "0.5"]),
    st.sampled_from(["Fractional", "TimeShared", None]),
    st.sampled_from(["None", "PyTorch", "MPI"]),
    st.integers(1, 2),
)
def test_a_job_is_told_what_is_wrong_with_its_template_or_runs(
    template: dict[str, Any], gpu: str, mode: str | None, framework: str, workers: int
) -> None:
    shared = {"mode": mode} if mode is not None and gpu != "1" else {}
    spec = {"distributed": {"framework": framework}, "workers": workers, "gpu": gpu, **shared}
    job = make_job(template={"spec": template}, status={"number": 1}, **spec)
    state = make_state(a=2, b=2)
    state.store.job_changed(job)
    cycle = survey(state, now=NOW)
    for verdict in decide(state, cycle=cycle):
        state.decisions.set_verdict(verdict.key, verdict=verdict)
    seen = state.observe("team/x", now=NOW)
    assert seen is not None
    assert "fault of its own" not in (seen.obstacle.message if seen.obstacle else "")
    assert seen.obstacle is not None or seen.verdict is not None
    outcome = reconcile(seen)
    assert (seen.obstacle is not None) == (outcome.status.reason == "Invalid")
    warning_of(job, ask=seen.ask)
    if any(isinstance(action, CreateJob) for action in outcome.actions):
        sweep = {"parameters": [{"name": "lr", "values": ["1"]}]}
        parent = make_job(template={"spec": template}, sweep=sweep, gpu=gpu, **shared)
        assert [manifests_of([task], parent=parent, number=7)[0] for task in array_tasks.tasks_of(parent)]
