"""The jobs that a new one waits for, as gbatch's options name them."""

from typing import Any

import msgspec
import pytest

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail.api.gpujob import GPUJob
from dovetail.query.errors import InvalidQueryError
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import dependencies
from dovetail_cli.ui.errors import MissingError, UsageError
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api

JOBS = "/apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def read(one: str | None = None, *, all_of: str | None = None, any_of: str | None = None) -> dependencies.Wanted | None:
    return dependencies.read(None if one is None else [one], all_of=all_of, any_of=any_of)


def test_a_second_job_is_refused_and_not_dropped() -> None:
    with pytest.raises(UsageError, match=r"^-d 7 -d 8: -d names one job; use --depends-on-all 7,8$"):
        dependencies.read(["7", "8"], all_of=None, any_of=None)


def test_the_options_name_one_all_or_any() -> None:
    assert read() is None
    assert read("7") == dependencies.Wanted(words=("7",))
    assert read(all_of="3, train,3") == dependencies.Wanted(words=("3", "train"))
    assert read(any_of="@,@~1") == dependencies.Wanted(words=("@", "@~1"), any_one=True)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"one": "3", "any_of": "4"}, "-d and --depends-on-any go not together"),
        ({"one": "3,4"}, '-d "3,4": name a job by number or name'),
        ({"all_of": " , "}, "name a job by number or name"),
        ({"all_of": "1-5"}, "name each job by itself, such as 1,2,3"),
        ({"one": "1..2"}, "neither a number"),
    ],
)  # fmt: skip
def test_what_names_no_job_is_refused_in_a_sentence(options: dict[str, str], problem: str) -> None:
    with pytest.raises((UsageError, InvalidQueryError), match=problem):
        read(**options)  # type: ignore[arg-type]


def owned(name: str, *, number: int, user: str) -> GPUJob:
    job = make_job(name, number=number)
    return msgspec.structs.replace(job, metadata=msgspec.structs.replace(job.metadata, annotations={names.USER: user}))


async def resolved(api: Api, cluster: Cluster, *words: str) -> list[str]:
    jobs = [owned("a", number=1, user="me"), owned("b", number=2, user="me"), owned("c", number=3, user="you")]
    items: list[Any] = [values_of(job) for job in jobs]
    api.answer(f"GET {JOBS}", Answer(body={"metadata": {"resourceVersion": "1"}, "items": items}))
    api.answer(f"POST {REVIEWS}", Answer(body={"status": {"userInfo": {"username": "me"}}}))
    found = await dependencies.resolve(dependencies.Wanted(words=words), cluster=cluster)
    return [each.name for each in found]


async def test_numbers_and_names_become_names(api: Api, cluster: Cluster) -> None:
    assert await resolved(api, cluster, "3", "a", "1") == ["c", "a"]


async def test_the_last_job_is_the_user_s_own(api: Api, cluster: Cluster) -> None:
    assert await resolved(api, cluster, "@", "@~1") == ["b", "a"]


@pytest.mark.parametrize(("word", "problem"), [("9", "no job 9"), ("@~2", "no job @~2 of me")])
async def test_what_means_no_job_is_missing(api: Api, cluster: Cluster, word: str, problem: str) -> None:
    with pytest.raises(MissingError, match=problem):
        await resolved(api, cluster, word)


async def test_a_job_may_be_named_before_it_is_there(
    api: Api, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await resolved(api, cluster, "later") == ["later"]
    assert "no job later yet" in capsys.readouterr().err
