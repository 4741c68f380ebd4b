"""TrainJobs and their JobSets, which both informers bring in any order."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from dovetail import names
from dovetail.api.gpujob import job_of
from dovetail.jobs.guests.kind import Guest
from dovetail.jobs.guests.record import record_of
from dovetail.jobs.guests.trainjob import TrainJob, TrainJobs
from dovetail.kube.client import Client
from dovetail_operator.watchers.guests.train_jobs import TrainJobWatch
from tests.core.jobs.guests.examples import guest, job_set_of, kind_named
from tests.core.kube.api import Api
from tests.operator_.watchers.guests.test_keeper import Rig

KIND: Final = kind_named("TrainJob")
KEY: Final = "team/trainjob-finetune"


class Rigged(Rig):
    """A keeper with the watch of TrainJobs, whose events the test gives."""

    def __init__(self, client: Client) -> None:
        super().__init__(client)
        assert isinstance(KIND, TrainJobs)
        self.passed: list[tuple[str, TrainJob]] = []
        self.watch = TrainJobWatch(client, kind=KIND, on_event=self._pass_on)

    def _pass_on(self, type_: Any, found: Guest, kind: Any) -> None:
        assert isinstance(found, TrainJob)
        self.passed.append((type_, found))
        self.keeper._on_guest(type_, found, kind)

    @property
    def growing(self) -> list[bool]:
        """Of each TrainJob that was passed on, whether its JobSet was missing."""
        return [found.is_growing for _, found in self.passed]


@pytest.fixture
def rig(client: Client) -> Rigged:
    return Rigged(client)


def train_job(**metadata: Any) -> Guest:
    """A TrainJob as the webhook has left it."""
    return guest(KIND, annotations={names.RUN: "r", names.USER: "ada"}, **metadata)


async def test_a_trainjob_is_passed_on_with_its_jobset_whichever_comes_first(rig: Rigged, client: Client) -> None:
    rig.watch.train_job_event("ADDED", train_job())
    rig.watch.job_set_event("ADDED", job_set_of(train_job()))
    assert rig.growing == [True, False]
    late = TrainJobWatch(client, kind=rig.watch._kind, on_event=rig._pass_on)
    late.job_set_event("ADDED", job_set_of(train_job()))
    late.train_job_event("ADDED", train_job())
    assert rig.growing == [True, False, False]


async def test_a_jobset_that_did_not_change_what_it_says_is_not_passed_on(rig: Rigged) -> None:
    rig.watch.train_job_event("ADDED", train_job())
    rig.watch.job_set_event("ADDED", job_set_of(train_job()))
    rig.watch.job_set_event("MODIFIED", job_set_of(train_job(), version=4))
    assert len(rig.passed) == 2
    rig.watch.job_set_event("MODIFIED", job_set_of(train_job(), version=5, nodes=3))
    assert len(rig.passed) == 3


async def test_a_jobset_of_another_trainjob_of_this_name_counts_for_nothing(rig: Rigged) -> None:
    rig.watch.job_set_event("ADDED", job_set_of(train_job(uid="uid-before")))
    rig.watch.train_job_event("ADDED", train_job())
    assert rig.growing == [True]
    rig.watch.job_set_event("ADDED", job_set_of(train_job(uid="uid-before"), version=4))
    assert rig.growing == [True]


async def test_a_deleted_jobset_says_what_it_said_until_its_trainjob_goes(rig: Rigged) -> None:
    made = job_set_of(train_job())
    rig.watch.train_job_event("ADDED", train_job())
    rig.watch.job_set_event("ADDED", made)
    rig.watch.job_set_event("DELETED", made)
    rig.watch.train_job_event("MODIFIED", train_job(resourceVersion="9"))
    assert rig.growing == [True, False, False]
    rig.watch.train_job_event("DELETED", train_job())
    rig.watch.train_job_event("ADDED", train_job(resourceVersion="12"))
    assert rig.growing[-1]


async def test_a_trainjob_without_a_jobset_is_told_after_a_moment(rig: Rigged, api: Api) -> None:
    at = 100.0
    rig.keeper._clock = lambda: at
    rig.watch.train_job_event("ADDED", train_job())
    await rig.keep(KEY)
    assert rig.said == []
    at = 121.0
    await rig.keep(KEY)
    (news,) = rig.said
    assert (news.about.name, news.of.kind, news.reason) == ("finetune", "TrainJob", "NotQueued")
    assert news.message.startswith("Is not queued: no JobSet of it has the label dovetail.dev/run: this needs Kubeflow")
    assert not api.seen


async def test_an_ended_trainjob_whose_jobset_has_gone_is_followed_without_a_word(rig: Rigged) -> None:
    """The operator was away when the Trainer deleted the JobSet."""
    made = record_of(guest(KIND), kind=KIND)
    meta = {**made["metadata"], "uid": "uid-record", "resourceVersion": "5", "generation": 1}
    rig.state.store.job_changed(job_of({**made, "metadata": meta, "status": {"phase": "Running"}}))
    over = {"conditions": [{"type": "Complete", "status": "True"}]}
    rig.watch.train_job_event("ADDED", replace(train_job(), status=over))
    rig.keeper._clock = lambda: 1e6
    await rig.keep(KEY)
    assert rig.said == []
    assert [each.type for each in rig.shown[-1][1].status.conditions] == ["Complete"]


async def test_a_jobset_that_is_deleted_says_what_it_said_until_its_trainjob_goes(rig: Rigged) -> None:
    rig.watch.train_job_event("ADDED", train_job())
    rig.watch.job_set_event("ADDED", job_set_of(train_job()))
    rig.watch.job_set_event("DELETED", job_set_of(train_job(), version=9, nodes=3))
    assert len(rig.passed) == 2, "nobody is told"
    rig.watch.train_job_event("MODIFIED", train_job())
    assert rig.passed[-1][1].spec == rig.passed[1][1].spec


async def test_a_jobset_in_another_namespace_is_of_no_trainjob_of_this_one(rig: Rigged) -> None:
    made = job_set_of(train_job())
    rig.watch.train_job_event("ADDED", train_job())
    rig.watch.job_set_event("ADDED", replace(made, metadata=replace(made.metadata, namespace="lab")))
    assert rig.growing == [True]
    rig.watch.job_set_event("ADDED", made)
    assert rig.growing == [True, False]


async def test_of_trainjobs_and_jobsets_that_have_gone_nothing_is_kept(rig: Rigged) -> None:
    for first, second in (("job", "set"), ("set", "job")):
        rig.watch.train_job_event("ADDED", train_job())
        rig.watch.job_set_event("ADDED", job_set_of(train_job()))
        for which in (first, second):
            if which == "job":
                rig.watch.train_job_event("DELETED", train_job())
            else:
                rig.watch.job_set_event("DELETED", job_set_of(train_job()))
        assert (rig.watch._train_jobs, rig.watch._job_sets) == ({}, {})
