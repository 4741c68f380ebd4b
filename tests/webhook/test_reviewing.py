"""Every text gets an answer: mutated reviews, deep ones, and an error of our own."""

import base64
import copy
import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail import names
from dovetail.api.reasons.catalog import rendered
from dovetail.gpu.device_plugins import DEFAULT_VENDORS
from dovetail.jobs.guests.kind import Kind
from dovetail.jobs.guests.registry import KINDS as GUESTS
from dovetail.jobs.size_limits import MAX_DEPTH, depth_of
from dovetail.kube.errors import StatusCause
from dovetail_gateway.routing.problems import clauses_of_webhook
from dovetail_webhook import mutation
from dovetail_webhook.admission_review import ReviewError
from dovetail_webhook.handler import MAX_MEMORY, Reviewer, too_heavy
from dovetail_webhook.weight import memory_of
from tests.core.jobs.guests.examples import example, guest, job_set_of, kind_named
from tests.webhook.test_app import make_review
from tests.webhook.test_mutation import AT_BIND

REVIEWER = Reviewer(policy="Balanced", vendors=DEFAULT_VENDORS, mps_directory="/run/mps")
JOB = {
    "metadata": {"name": "j", "annotations": {"a": "b"}},
    "spec": {
        "gpu": 0.5,
        "workers": 2,
        "sweep": {"parameters": [{"name": "lr", "values": ["1", "2"]}]},
        "template": {"spec": {"containers": [{"name": "main"}]}},
    },
}
POD = {
    "metadata": {"name": "p", "annotations": {names.REQUEST: "0.5", names.MODE: "Fractional"}, "labels": {"x": "y"}},
    "spec": {
        "containers": [{"name": "main", "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "1"}}}],
        "initContainers": [{"name": "init", "restartPolicy": "Always"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
}
GUEST: dict[str, Any] = {
    "metadata": {"name": "train", "labels": {names.LABEL_QUEUE: "default"}},
    "spec": {
        "parallelism": 2,
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "m"}]}},
    },
}


def guest_review(found: dict[str, Any], *, group: str = "batch", **request: Any) -> dict[str, Any]:
    """The review of a new batch Job, or of a Job of another group."""
    review = make_review("Job", object=found, **request)
    review["request"]["kind"]["group"] = group
    return review


REVIEWS = [
    make_review("GPUJob", object=JOB),
    make_review(object=POD),
    make_review(object={**POD, "spec": {**POD["spec"], "ephemeralContainers": [{"name": "debug"}]}}, subResource="x"),
    guest_review(GUEST),
    guest_review({**GUEST, "spec": {"template": POD}}),
]
ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from(["\ud800", "0.5", "8G,0.5", "1e999", "-1", "9" * 5_000, names.REQUEST, "nvidia", "../..", "\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, inner in items for found in places(inner, (*path, key)))]


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """A review of which some values are others, some are missing, and some keys are new."""
    review = copy.deepcopy(draw(st.sampled_from(REVIEWS)))
    for _ in range(draw(st.integers(1, 3))):
        *way, key = draw(st.sampled_from([path for path in places(review) if path]))
        at: Any = review
        for step in way:
            at = at[step]
        if isinstance(at, dict) and draw(st.booleans()):
            at[draw(st.text(max_size=8) | st.just(f"{names.REQUEST}.main"))] = draw(ODD)
        elif draw(st.booleans()):
            at[key] = draw(ODD)
        else:
            del at[key]
    return review


def response(body: bytes, *, by: Reviewer = REVIEWER) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(by.answer(body).body)["response"]
    return answer


@settings(max_examples=300, deadline=None)
@given(mutated())
def test_a_mutated_review_is_answered_or_no_review(review: dict[str, Any]) -> None:
    text = json.dumps(review).encode()
    try:
        answer = REVIEWER.answer(text)
    except ReviewError:
        return
    assert answer.outcome != "failed", json.loads(answer.body)
    said = json.loads(answer.body)["response"]
    assert said["uid"] == review["request"]["uid"]
    if not said["allowed"]:
        # A program that reads the causes says the same.
        causes = msgspec.convert(said["status"]["details"]["causes"], list[StatusCause])
        assert rendered(clauses_of_webhook(causes)).message[:2_000] == said["status"]["message"]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(REVIEWS), st.data())
def test_a_review_with_broken_bytes_is_answered_or_no_review(review: dict[str, Any], data: st.DataObject) -> None:
    text = bytearray(json.dumps(review).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        json.loads(REVIEWER.answer(bytes(text)).body)
    except ReviewError:
        return


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


def deep_review(kind: str, around: str) -> bytes:
    return json.dumps(make_review(kind, object="@")).replace('"@"', around).encode()


@pytest.mark.parametrize("levels", [65, 990, 1_100, 9_999])
def test_a_job_with_a_deep_template_is_denied_with_a_sentence(levels: int) -> None:
    body = deep_review("GPUJob", f'{{"metadata":{{}},"spec":{{"template":{deep(levels)}}}}}')
    said = response(body)
    assert (said["uid"], said["allowed"]) == ("u-1", False)
    assert "nested" in said["status"]["message"]


def test_a_template_of_the_greatest_depth_comes_in() -> None:
    body = deep_review("GPUJob", f'{{"metadata":{{}},"spec":{{"template":{deep(MAX_DEPTH)}}}}}')
    assert response(body)["allowed"]


@pytest.mark.parametrize("levels", [900, 9_999])
def test_a_deep_pod_is_answered(levels: int) -> None:
    fields = f'{{"metadata":{{"managedFields":[{deep(levels)}]}},"spec":{{"containers":[{{"name":"a"}}]}}}}'
    said = response(deep_review("Pod", fields))
    assert said["uid"] == "u-1"


def test_an_update_of_a_job_that_is_too_deep_already_is_answered() -> None:
    body = json.dumps(make_review("GPUJob", operation="UPDATE", object=JOB, oldObject="@")).replace('"@"', deep(9_999))
    assert response(body.encode())["uid"] == "u-1"


def test_an_error_of_our_own_is_denied_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(mutation, "patch_of_pod", broken)
    answer = REVIEWER.answer(json.dumps(make_review()).encode())
    said = json.loads(answer.body)["response"]
    assert (answer.outcome, said["allowed"]) == ("failed", False)
    assert said["status"]["message"].endswith("its log names the uid u-1")


def test_a_text_that_is_no_utf8_can_be_quoted_in_the_answer() -> None:
    pod = {"metadata": {"annotations": {names.REQUEST: "\ud800"}}, "spec": {"containers": [{"name": "main"}]}}
    assert not response(json.dumps(make_review(object=pod)).encode())["allowed"]


def test_the_template_is_no_part_of_a_jobs_patch() -> None:
    patch = json.loads(base64.b64decode(response(json.dumps(REVIEWS[0]).encode())["patch"]))
    assert [operation["path"] for operation in patch] == ["/spec/gpu", "/metadata/annotations"]


@pytest.mark.parametrize(
    ("text", "depth"),
    [(b"1", 0), (b"{}", 1), (b'{"a":[{}]}', 3), (b'"[[[["', 0), (rb'["\"[[", [], "]"]', 2), (b'{"{":"\\\\"}', 1)],
)
def test_depth_counts_brackets_outside_of_texts(text: bytes, depth: int) -> None:
    assert depth_of(text) == depth


@settings(max_examples=200)
@given(ODD)
def test_depth_agrees_with_a_walk_through_the_values(value: Any) -> None:
    def walked(inner: Any) -> int:
        parts = inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else None
        return 0 if parts is None else 1 + max(map(walked, parts), default=0)

    assert depth_of(json.dumps(value).encode()) == walked(value)


@pytest.mark.parametrize("unit", ["{},", "[],", "[[]],", '{"a":{}},', '"a",', "1,", '{"abcdefgh":"ijklmnop"},'])
def test_what_a_text_takes_is_never_more_than_was_estimated(unit: str) -> None:
    text = f"[{unit * 20_000}0]".encode()
    assert _taken(json.loads(text)) <= memory_of(text)


def _taken(value: Any) -> int:
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value.__sizeof__() + 16 + sum(map(_taken, inner))


def test_a_pod_of_the_largest_size_that_etcd_takes_is_not_too_heavy() -> None:
    env = [{"name": f"VARIABLE_{number}", "value": "x" * 20} for number in range(25_000)]
    body = json.dumps(make_review(object={**POD, "spec": {"containers": [{"name": "main", "env": env}]}})).encode()
    assert len(body) > 1_500_000
    assert too_heavy(body) == ""
    assert response(body)["allowed"]


def test_a_text_of_small_values_is_too_heavy_whatever_its_size() -> None:
    assert "values, which take more than the" in too_heavy(b"{}," * (MAX_MEMORY // 240))


def sized(size: int, *, cancel: bool = False) -> dict[str, Any]:
    containers = [{"name": "main", "image": "x" * size}]
    return {"metadata": {"name": "j"}, "spec": {"cancel": cancel, "template": {"spec": {"containers": containers}}}}


@pytest.mark.parametrize(
    ("job", "before", "is_allowed"),
    [
        (sized(1_000), None, True),
        (sized(300_000), None, False),
        (sized(300_000), sized(1_000), False),
        # Older than the limit: it may be cancelled, and made smaller.
        (sized(300_000, cancel=True), sized(300_000), True),
        (sized(1_000), sized(300_000), True),
    ],
)
def test_a_job_has_a_largest_size_when_it_is_made_and_when_it_is_changed(
    job: dict[str, Any], before: dict[str, Any] | None, is_allowed: bool
) -> None:
    operation = "CREATE" if before is None else "UPDATE"
    body = make_review(kind="GPUJob", operation=operation, object=job, oldObject=before)
    said = response(json.dumps(body).encode())
    assert said["allowed"] is is_allowed
    if not is_allowed:
        assert "262,144 at most (gpujobs.max_spec_bytes)" in said["status"]["message"]


def patch_in(review: dict[str, Any]) -> list[dict[str, Any]]:
    """The patch of an answer that admits."""
    response = json.loads(REVIEWER.answer(json.dumps(review).encode()).body)["response"]
    assert response["allowed"], response
    found: list[dict[str, Any]] = json.loads(base64.b64decode(response.get("patch", "W10=")))
    return found


BOUND = {
    "metadata": {"name": "p", "annotations": {names.REQUEST: "0.5", **AT_BIND}},
    "spec": {"containers": [{"name": "main"}], "nodeName": "n1", "ephemeralContainers": [{"name": "debug"}]},
}
CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a new job gets its user": (make_review("GPUJob", object=JOB), ["/spec/gpu", "/metadata/annotations"]),
    "a job that changes keeps its user": (
        make_review("GPUJob", object=JOB, oldObject=JOB, operation="UPDATE", userInfo={"username": "root"}),
        ["/spec/gpu"],
    ),
    "a pod that gets an ephemeral container keeps the rest, with what was written when it was bound": (
        make_review(object=BOUND, oldObject=BOUND, operation="UPDATE", subResource="ephemeralcontainers"),
        ["/spec/ephemeralContainers"],
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_review_changes_what_its_request_may_change(case: str) -> None:
    review, paths = CHANGES[case]
    assert [step["path"] for step in patch_in(review)] == paths


def with_template(*, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A queued batch Job whose pods request a GPU, and whose template has these fields."""
    asked = {"annotations": {names.REQUEST: "1", **(annotations or {})}}
    template = {"metadata": asked, "spec": {"containers": [{"name": "main"}], **spec}}
    return {**GUEST, "spec": {"template": template}}


ODD_TEMPLATES = {
    "resource": with_template(containers=[{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]),
    "share": with_template(annotations={names.REQUEST: "0.5", names.MODE: "Exclusive"}),
    "option": with_template(annotations={f"{names.REQUEST}-polcy": "Pack"}),
    "scheduler": with_template(schedulerName="volcano"),
    "text": with_template(annotations={names.REQUEST: "many"}),
    "containers": with_template(containers=[{"name": f"c{index}"} for index in range(300)]),
    "shape": with_template(volumes=7),
}


@pytest.mark.parametrize("found", ODD_TEMPLATES.values(), ids=ODD_TEMPLATES)
def test_a_guest_is_denied_for_what_its_pods_would_be_denied_for(found: dict[str, Any]) -> None:
    said = response(json.dumps(guest_review(found)).encode())
    template = found["spec"]["template"]
    pod = {"metadata": {**template["metadata"], "name": "p"}, "spec": template["spec"]}
    of_pod = response(json.dumps(make_review(object=pod)).encode())
    assert not of_pod["allowed"]
    assert not said["allowed"]
    words = of_pod["status"]["message"].removeprefix("Dovetail cannot read this Pod: ")
    assert said["status"]["message"] == f"spec.template: its pods would be refused: {words}"


def test_a_guest_whose_pods_name_their_node_is_denied_with_or_without_gpus() -> None:
    for found in (with_template(nodeName="n1"), {**GUEST, "spec": {"template": {"spec": {"nodeName": "n1"}}}}):
        said = response(json.dumps(guest_review(found)).encode())
        assert said["status"]["message"] == (
            "spec.template.spec.nodeName is set: a pod in the queue gets its node when it starts"
        )


def test_templates_of_a_job_that_does_not_wait_in_the_queue_are_not_checked() -> None:
    for labels in ({}, {**GUEST["metadata"]["labels"], names.KUEUE_QUEUE: "team"}):
        found = {**ODD_TEMPLATES["scheduler"], "metadata": {"name": "train", "labels": labels}}
        assert patch_in(guest_review(found)) == []


@pytest.mark.parametrize("kind", GUESTS, ids=lambda kind: kind.resource.kind)
def test_the_examples_of_guests_are_admitted(kind: Kind) -> None:
    review = make_review(kind.resource.kind, object=example(kind))
    review["request"]["kind"]["group"] = kind.resource.group
    assert patch_in(review)


def test_the_jobset_of_a_trainjob_is_checked_with_the_request_that_its_nodes_get() -> None:
    train_job = guest(kind_named("TrainJob"))
    body = msgspec.to_builtins(job_set_of(train_job))
    template = body["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["metadata"]["annotations"] = {}
    body["metadata"]["annotations"] = {names.REQUEST: "0.5", names.MODE: "Exclusive"}
    review = make_review("JobSet", object=body)
    review["request"]["kind"]["group"] = "jobset.x-k8s.io"
    said = response(json.dumps(review).encode())
    assert said["status"]["message"].startswith(
        'spec.replicatedJobs[0].template.spec.template: its pods would be refused: gpu "0.5": mode Exclusive'
    )


def test_a_guest_is_held_under_the_run_of_its_own_review() -> None:
    patch = {step["path"]: step["value"] for step in patch_in(guest_review(GUEST, uid="r-7"))}
    assert patch["/spec/suspend"] is True
    assert patch["/metadata/annotations"] == {names.RUN: "r-7", names.USER: "ada"}
    assert patch["/spec/template/metadata/labels"] == {"a": "b", names.RUN: "r-7"}


def test_a_job_of_another_group_is_no_guest() -> None:
    answer = REVIEWER.answer(json.dumps(guest_review(GUEST, group="example.com")).encode())
    assert answer.outcome == "denied"


def test_a_guest_that_cannot_be_queued_is_denied_with_the_sentence() -> None:
    empty = {**GUEST, "spec": {**GUEST["spec"], "parallelism": 0}}
    answer = REVIEWER.answer(json.dumps(guest_review(empty)).encode())
    message = json.loads(answer.body)["response"]["status"]["message"]
    assert message == "it asks for no pods, so there is nothing to queue"


def patched(review: dict[str, Any]) -> Any:
    """The object of a review with its patch (RFC 6902), as the API server applies it."""
    found = copy.deepcopy(review["request"]["object"])
    for step in patch_in(review):
        *way, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        at: Any = found
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if step["op"] == "remove":
            del at[last]
        elif isinstance(at, list):
            at.insert(len(at) if last == "-" else int(last), step["value"])
        else:
            at[last] = step["value"]
    return found


OWN = {"a~b/c": "d", f"{names.MPS_MEMORY}x": "1", "dovetail.dev/display-name": "mine"}


@pytest.mark.parametrize("request_text", ["", "0.5", "2", "8G,0.5"])
@pytest.mark.parametrize("labels", [{}, {names.LABEL_QUEUE: "default"}, {names.LABEL_QUEUE: "default", "x": "y"}])
@pytest.mark.parametrize("copied", [{}, AT_BIND, {names.TERM: "7"}], ids=["new", "copy", "part"])
def test_of_a_new_pod_all_annotations_stay_but_those_of_a_bind_whatever_else_it_gets(
    request_text: str, labels: dict[str, str], copied: dict[str, str]
) -> None:
    asked = {names.REQUEST: request_text} if request_text else {}
    pod = {
        "metadata": {"name": "p", "annotations": {**OWN, **asked, **copied}, "labels": labels},
        "spec": {"containers": [{"name": "main"}]},
    }
    after = patched(make_review(object=pod, uid="r-1"))
    user = {names.USER: "ada"} if labels else {}
    assert after["metadata"]["annotations"] == {**OWN, **asked, **user}
    gates = after["spec"].get("schedulingGates", [])
    assert gates == ([{"name": names.QUEUE_GATE}] if labels else [])
    assert {**labels, **after["metadata"]["labels"]} == after["metadata"]["labels"]
    (main,) = after["spec"]["containers"]
    assert (names.GPU_MILLI in main.get("resources", {}).get("limits", {})) is bool(request_text)


SIDECAR = {"name": "proxy", "restartPolicy": "Always"}
SHAPES: dict[str, dict[str, Any]] = {
    "one container": {"containers": [{"name": "main"}]},
    "with others": {
        "initContainers": [{"name": "init", "env": [{"name": "A", "value": "b"}]}, SIDECAR],
        "containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}, {"name": "log"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
    },
    "with variables that win": {
        "containers": [{"name": "main", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}],
    },
    "an amount of a vendor": {
        "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2"}}}, {"name": "log"}],
    },
    "MIG": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}}}]},
    "amounts of ours": {
        "containers": [{"name": "main", "resources": {"limits": {names.GPU_MILLI: "500"}}}],
    },
}  # fmt: skip
WORDS: dict[str, dict[str, str]] = {
    "nothing": {},
    "a GPU": {names.REQUEST: "1"},
    "a share": {names.REQUEST: "8G,0.5", names.MODE: "Fractional", names.POLICY: "Pack"},
    "a model": {names.REQUEST: "2(V100)"},
    "of one container": {f"{names.REQUEST}.main": "1"},
}


# What a pod says twice and differently, and what names no container where there are several.
REFUSED: set[tuple[str, str]] = {
    *((words, shape) for words in WORDS for shape in ("an amount of a vendor", "MIG", "amounts of ours")),
    *((words, "with others") for words in WORDS),
} - {
    *(("nothing", shape) for shape in SHAPES),
    ("of one container", "with others"),
    ("a model", "an amount of a vendor"),
}


@pytest.mark.parametrize("delivery", ["RuntimeClass", "NRI"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("words", WORDS)
def test_a_pod_that_was_completed_is_complete(delivery: Any, shape: str, words: str) -> None:
    """API servers ask again after another webhook; what was said the first time stays, field for field."""
    reviewer = replace(REVIEWER, delivery=delivery)
    pod = {"metadata": {"name": "p", "annotations": WORDS[words]}, "spec": SHAPES[shape]}

    def review(found: dict[str, Any]) -> tuple[bool, list[dict[str, Any]]]:
        text = json.dumps(make_review(object=found)).encode()
        said = json.loads(reviewer.answer(text).body)["response"]
        return said["allowed"], json.loads(base64.b64decode(said.get("patch", "W10=")))

    allowed, steps = review(pod)
    assert allowed is ((words, shape) not in REFUSED)
    if not allowed:
        return
    after = copy.deepcopy(pod)
    for step in steps:
        after["spec"][step["path"].removeprefix("/spec/")] = step["value"]
    assert review(after) == (True, [])
    # Nothing that the user said is lost but what no container with devices may say.
    for kind in ("initContainers", "containers"):
        for before, now in zip(pod["spec"].get(kind, ()), after["spec"].get(kind, ()), strict=True):
            kept = {key: value for key, value in before.items() if key not in {"env", "resources"}}
            assert kept.items() <= now.items()
            limits = before.get("resources", {}).get("limits", {})
            assert limits.items() <= now.get("resources", {}).get("limits", {}).items() or "nvidia.com/gpu" in limits
            variables = [each for each in before.get("env", ()) if not each["name"].startswith("NVIDIA")]
            assert all(each in now["env"] for each in variables)
