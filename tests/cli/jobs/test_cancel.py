"""Ending jobs: what is asked of the API server, and what is said of each."""

import msgspec
import pytest

from dovetail.api.conversion import values_of
from dovetail.api.gpujob import Dependency, GPUJob
from dovetail.kube.errors import Forbidden
from dovetail.query.jobs import selection
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.jobs import cancel
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api, refusal

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"


async def test_a_job_that_goes_meanwhile_is_missing_and_hides_none_of_the_others(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, runs, done = (
        make_job("gone", number=1, phase="Queued"),
        make_job("runs", number=2, phase="Running"),
        make_job("done", number=3, phase="Succeeded"),
    )
    items = [values_of(job) for job in (gone, runs, done)]
    api.answer(f"GET {JOBS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": items}))
    api.answer(f"PATCH {JOBS}/gone", refusal(404, message="not found"))
    api.answer(f"PATCH {JOBS}/runs", Answer(body=items[1]))
    wanted = selection.parse_ids(["1-3,9"], field="gcancel")
    assert await cancel.cancel_those(cluster, wanted=wanted, dry_run=False) == ["9", "gone"]
    assert capsys.readouterr().out == "Job 2 cancelled.\nJob 3 has ended already (Succeeded).\n"
    assert [seen.body for seen in api.of(f"PATCH {JOBS}/runs")] == [{"spec": {"cancel": True}}]


def test_only_a_job_that_this_cancels_takes_those_with_it_that_wait_for_it() -> None:
    ended, runs = make_job("ended", number=1, phase="Succeeded"), make_job("runs", number=2, phase="Running")
    waiting = [_waits_for(name, number=number) for number, name in ((3, "ended"), (4, "runs"))]
    found = cancel.those_that_fall([ended, runs, *waiting], chosen=[ended, runs], dry_run=True)
    assert list(found) == ["Job 4 would fall with it: it waits for job 2."]


def _waits_for(name: str, *, number: int) -> GPUJob:
    job = make_job(f"after-{name}", number=number, phase="Queued")
    needs = [Dependency(name=name, condition="Failed" if name == "ended" else "Succeeded")]
    return msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, dependencies=needs))


async def test_a_dry_run_changes_nothing_and_says_what_would_fall(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [values_of(make_job("runs", number=2, phase="Running")), values_of(_waits_for("runs", number=4))]
    api.answer(f"GET {JOBS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": items}))
    wanted = selection.parse_ids(["2"], field="gcancel")
    assert await cancel.cancel_those(cluster, wanted=wanted, dry_run=True) == []
    assert capsys.readouterr().out == ("Job 2 would be cancelled.\nJob 4 would fall with it: it waits for job 2.\n")
    assert [seen.method for seen in api.seen] == ["GET"]


async def test_a_job_that_is_cancelled_itself_does_not_fall_too(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [values_of(make_job("runs", number=2, phase="Running")), values_of(_waits_for("runs", number=4))]
    api.answer(f"GET {JOBS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": items}))
    for name, item in (("runs", items[0]), ("after-runs", items[1])):
        api.answer(f"PATCH {JOBS}/{name}", Answer(body=item))
    await cancel.cancel_those(cluster, wanted=selection.parse_ids(["2,4"], field="gcancel"), dry_run=False)
    assert capsys.readouterr().out == "Job 2 cancelled.\nJob 4 cancelled.\n"


async def test_a_job_that_goes_meanwhile_takes_none_with_it(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    items = [values_of(make_job("runs", number=2, phase="Running")), values_of(_waits_for("runs", number=4))]
    api.answer(f"GET {JOBS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": items}))
    api.answer(f"PATCH {JOBS}/runs", refusal(404))
    wanted = selection.parse_ids(["2"], field="gcancel")
    assert await cancel.cancel_those(cluster, wanted=wanted, dry_run=False) == ["runs"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("ended", [5, 6])
def test_of_many_that_have_ended_only_the_number_is_said(ended: int) -> None:
    jobs = [make_job(f"done-{at}", number=at, phase="Succeeded") for at in range(1, ended + 1)]
    runs = make_job("runs", number=99, phase="Running")
    said = list(cancel.sentences([*jobs, runs], dry_run=False))
    if ended == 5:
        assert said == [*(f"Job {at} has ended already (Succeeded)." for at in range(1, 6)), "Job 99 cancelled."]
    else:
        assert said == ["Job 99 cancelled.", "6 other jobs have ended already."]


async def test_a_refusal_is_no_missing_job(api: Api, cluster: Cluster) -> None:
    api.answer(f"PATCH {JOBS}/runs", refusal(403, message="you may not"))
    with pytest.raises(Forbidden):
        await cancel.cancel_one(cluster, job=make_job("runs", number=1, phase="Running"))
