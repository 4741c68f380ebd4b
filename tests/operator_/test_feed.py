import random
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.kube.client import Client
from dovetail.kube.connection import Connection
from dovetail_operator.feed import Feed, decode_job
from dovetail_operator.watch import GPUJobWatch
from tests.core.kube.api import Api, listing, refusal
from tests.operator_.builders import make_job, make_state

LIST = "GET /apis/dovetail.dev/v1alpha1/gpujobs"


class Recorder:
    """What the feed tells."""

    def __init__(self) -> None:
        self.state = make_state()
        self.gone: list[str] = []

    def job_changed(self, job: GPUJob) -> None:
        self.state.put_job(job)

    def job_gone(self, job: GPUJob) -> None:
        self.gone.append(job.metadata.name)


def wire(job: GPUJob) -> dict[str, Any]:
    content: dict[str, Any] = msgspec.to_builtins(job)
    return content


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def feed(api: Api, client: Client, recorder: Recorder) -> Feed:
    feed = Feed(client, Connection(server=api.url), rng=random.Random(7))
    feed._changes = recorder  # type: ignore[assignment]  # it stands in for one
    return feed


async def test_a_comparison_finds_what_is_new_and_what_went_unseen(api: Api, feed: Feed, recorder: Recorder) -> None:
    recorder.state.put_job(make_job("went"))
    api.answer(LIST, listing(wire(make_job("new")), version=50))
    await feed._compare()
    assert recorder.gone == ["went"]
    assert "team/new" in recorder.state.jobs


async def test_a_comparison_is_tried_until_it_succeeds(api: Api, feed: Feed, recorder: Recorder) -> None:
    # At the first start the CRD may not be there yet.
    api.answer(LIST, refusal(404), listing(wire(make_job()), version=50))
    await feed._compare()
    assert "team/x" in recorder.state.jobs


async def test_a_job_that_cannot_be_read_blocks_no_other(api: Api, feed: Feed, recorder: Recorder) -> None:
    odd = wire(make_job("odd"))
    odd["spec"]["workers"] = "many"
    api.answer(LIST, listing(odd, wire(make_job()), version=50))
    await feed._compare()
    assert list(recorder.state.jobs) == ["team/x"]


async def test_a_job_that_can_be_read_no_more_stays_as_it_was_known(api: Api, feed: Feed, recorder: Recorder) -> None:
    recorder.state.put_job(make_job())
    odd = wire(make_job())
    odd["status"]["phase"] = "SomethingNew"
    api.answer(LIST, listing(odd, version=50))
    await feed._compare()
    assert (recorder.gone, list(recorder.state.jobs)) == ([], ["team/x"])


async def test_a_change_is_taken_over_and_a_deletion_too(feed: Feed, recorder: Recorder) -> None:
    feed._changed("ADDED", wire(make_job()))
    assert "team/x" in recorder.state.jobs
    assert not feed._relisted.is_set()
    feed._changed("DELETED", wire(make_job()))
    assert recorder.gone == ["x"]


async def test_a_sign_of_a_new_list_calls_for_a_comparison(feed: Feed) -> None:
    feed._changed(None, wire(make_job()))
    assert feed._relisted.is_set()


def test_a_job_without_spec_cannot_be_read() -> None:
    assert decode_job({"metadata": {"name": "x"}}) is None


def watch(connection: Connection) -> GPUJobWatch:
    return GPUJobWatch(connection, on_change=lambda _type, _raw: None)


def test_kopf_logs_in_as_the_connection_says() -> None:
    login = watch(Connection(server="https://api:6443", namespace="gpu", token="secret", insecure=True))._login()
    assert (login.server, login.default_namespace, login.token, login.insecure) == (
        "https://api:6443",
        "gpu",
        "secret",
        True,
    )
    assert login.expiration is None


def test_a_token_that_changes_is_read_again() -> None:
    login = watch(Connection(server="https://api:6443", token_source=lambda: "fresh"))._login()
    assert login.token == "fresh"
    assert login.expiration is not None


async def test_a_kopf_that_worked_for_long_is_started_again_soon_when_it_stops() -> None:
    told: list[str | None] = []
    found = GPUJobWatch(Connection(server="https://api:6443"), on_change=lambda type_, _raw: told.append(type_))
    found._failures = 9
    await found._changed({"type": "MODIFIED", "object": {}})
    assert (told, found._failures) == (["MODIFIED"], 0)
