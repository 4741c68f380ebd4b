"""What the operator keeps of a GPUJob: one template for all of its versions, and none of a job beyond the limits."""

import json
import sys
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob, spec_of
from dovetail.jobs.size_limits import JobLimits
from dovetail_operator.queue.cycle import survey
from dovetail_operator.state.state import State
from tests.operator_.builders import NOW, make_job, make_state

LARGE = {"spec": {"containers": [{"name": "main", "image": "busybox", "args": ["x" * (1 << 20)]}]}}
DEEP = {"spec": {"containers": [{"name": "main"}], "a": json.loads("[" * 80 + "]" * 80)}}


def again(job: GPUJob, **meta: Any) -> GPUJob:
    """The job as it comes over the wire a second time."""
    metadata = msgspec.structs.replace(job.metadata, **meta)
    return msgspec.json.decode(msgspec.json.encode(msgspec.structs.replace(job, metadata=metadata)), type=GPUJob)


def kept(state: State) -> GPUJob:
    return state.store.jobs["team/x"]


def test_a_template_does_not_keep_the_page_that_it_came_with() -> None:
    page = b'[%s,"%s"]' % (msgspec.json.encode(make_job()), b"x" * 1_000_000)
    job, _ = msgspec.json.decode(page, type=tuple[GPUJob, str])
    assert memoryview(job.spec.template.spec).obj is not page
    assert sys.getsizeof(bytes(job.spec.template.spec)) < 1_000


def test_all_versions_with_the_same_template_share_it() -> None:
    state = make_state()
    state.store.job_changed(make_job())
    first = kept(state).spec.template
    state.store.job_changed(again(make_job(), resource_version="11"))
    assert kept(state).spec.template is first
    assert state.store.lean(again(make_job(priority=99), resource_version="12", generation=2)).spec.template is first
    other = {"spec": {"containers": [{"name": "other"}]}}
    state.store.job_changed(again(make_job(template=other), resource_version="13", generation=3))
    assert spec_of(kept(state).spec.template) == other["spec"]


@pytest.mark.parametrize(
    ("template", "said"),
    [(LARGE, "spec has 1,048,"), (DEEP, "spec.template is nested 82 levels deep and may be 64 at most")],
)
def test_a_job_beyond_a_limit_is_invalid_and_none_of_its_template_is_kept(template: Any, said: str) -> None:
    state = make_state(a=1)
    state.store.job_changed(make_job(template=template))
    # Whoever sees it again, the watch or a write of ours, comes to the same.
    state.store.job_changed(again(make_job(template=template), resource_version="11"))
    assert spec_of(kept(state).spec.template) == {}
    obstacle = state.obstacle_of(kept(state), now=NOW)
    assert obstacle is not None
    assert (obstacle.reason, obstacle.message.startswith(said)) == ("Invalid", True)
    assert not survey(state, now=NOW).waiting


def test_a_job_that_is_made_smaller_is_planned() -> None:
    state = make_state(a=1)
    state.store.job_changed(make_job(template=LARGE))
    state.store.job_changed(again(make_job(status={"number": 1}), resource_version="11", generation=2))
    assert state.obstacle_of(kept(state), now=NOW) is None
    assert [each.name for each in survey(state, now=NOW).waiting] == ["team/x"]


def test_another_job_of_the_name_is_judged_by_itself() -> None:
    state = make_state(a=1)
    state.store.job_changed(make_job(template=LARGE))
    state.store.job_changed(again(make_job(), resource_version="11", uid="another"))
    assert state.obstacle_of(kept(state), now=NOW) is None


def test_the_limit_is_the_configured_one() -> None:
    state = make_state(job_limits=JobLimits(spec_bytes=4096), a=1)
    image = {"spec": {"containers": [{"name": "main", "image": "x" * 5000}]}}
    state.store.job_changed(make_job(template=image))
    obstacle = state.obstacle_of(kept(state), now=NOW)
    assert obstacle is not None
    assert "4,096 at most" in obstacle.message
