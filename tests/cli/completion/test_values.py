"""Jobs, devices and namespaces as candidates, read from an API server."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dovetail import names
from dovetail.api.conversion import values_of
from dovetail_cli.completion import values
from dovetail_cli.completion.values import FRESH_SECONDS, cached
from tests.cli.builders import make_gpunode, make_job
from tests.core.kube.api import Answer, Api

JOBS = "GET /apis/dovetail.dev/v1beta1/namespaces/default/gpujobs"


def listed(*objects: Any) -> Answer:
    return Answer(body={"metadata": {}, "items": [values_of(each) for each in objects]})


async def ask(kind: str, incomplete: str, *, kubeconfig: str) -> list[str]:
    found = await asyncio.to_thread(getattr(values, kind), incomplete, given={"kubeconfig": kubeconfig})
    return [value for value, _ in found]


def called(name: str, *, number: int) -> Any:
    job = make_job(f"job-{number}", number=number, phase="Running")
    return msgspec.structs.replace(
        job, metadata=msgspec.structs.replace(job.metadata, annotations={names.DISPLAY_NAME: name})
    )


@pytest.mark.parametrize(
    ("kind", "incomplete", "found"),
    [
        ("jobs", "", ["12", "7", "1"]),
        ("jobs", "1", ["12", "1"]),
        ("jobs", "t", ["train"]),
        ("unfinished_jobs", "", ["12", "7"]),
    ],
)
async def test_jobs_are_offered_by_number_and_by_name_once_one_is_begun(
    api: Api, kubeconfig: str, kind: str, incomplete: str, found: list[str]
) -> None:
    api.answer(JOBS, listed(make_job("old", number=1, phase="Failed"), make_job("train", number=7, phase="Queued"),
                            make_job("serve", number=12, phase="Running")))  # fmt: skip
    assert await ask(kind, incomplete, kubeconfig=kubeconfig) == found


@pytest.mark.parametrize("name", ["a b", "a$(touch x)", "a`id`", "a\\$(id)", "a'b", "a*", "a;b"])
async def test_a_name_that_a_shell_would_interpret_is_offered_by_number_alone(
    api: Api, kubeconfig: str, name: str
) -> None:
    api.answer(JOBS, listed(called(name, number=7)))
    found = await asyncio.to_thread(values.jobs, "", given={"kubeconfig": kubeconfig})
    assert [value for value, _ in found] == ["7"]
    assert not set("$`\\'*;()").intersection(found[0][1])
    assert await ask("jobs", "a", kubeconfig=kubeconfig) == []


async def test_single_devices_are_offered_once_the_node_is_clear(api: Api, kubeconfig: str) -> None:
    api.answer("GET /apis/dovetail.dev/v1beta1/gpunodes", listed(make_gpunode("a-1"), make_gpunode("b-1")))
    assert await ask("devices", "", kubeconfig=kubeconfig) == ["a-1:all", "b-1:all"]
    assert await ask("devices", "b", kubeconfig=kubeconfig) == ["b-1:all", "b-1:0", "b-1:1"]


async def test_namespaces_are_offered(api: Api, kubeconfig: str) -> None:
    body = {"metadata": {}, "items": [{"metadata": {"name": "default"}}, {"metadata": {"name": "vision"}}]}
    api.answer("GET /api/v1/namespaces", Answer(body=body))
    assert await ask("namespaces", "v", kubeconfig=kubeconfig) == ["vision"]


async def test_several_tabs_read_once(api: Api, kubeconfig: str, cache: Path) -> None:
    api.answer(JOBS, listed(make_job("train", number=7, phase="Queued")))
    for incomplete in ("", "t", "tr"):
        await ask("jobs", incomplete, kubeconfig=kubeconfig)
    assert len(api.of(JOBS)) == 1
    assert [file.stat().st_mode & 0o777 for file in cache.iterdir()] == [0o600]  # noqa: ASYNC240 - local files


def test_what_is_old_or_cannot_be_read_is_read_again(cache: Path) -> None:
    answers = iter([[("one", "")], [("two", "")], [("three", "")]])
    assert cached(["k"], read=lambda: next(answers), now=lambda: 0) == [("one", "")]
    (file,) = cache.iterdir()
    written = file.stat().st_mtime
    assert cached(["k"], read=lambda: next(answers), now=lambda: written + 1) == [("one", "")]
    assert cached(["k"], read=lambda: next(answers), now=lambda: written + FRESH_SECONDS) == [("two", "")]
    file.write_text("{")
    assert cached(["k"], read=lambda: next(answers), now=lambda: file.stat().st_mtime) == [("three", "")]


def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert cached(["k"], read=lambda: [("one", "")]) == [("one", "")]


PARTS = ("kubeconfig", "context", "namespace", "KUBECONFIG")
CLUSTERS = st.fixed_dictionaries(dict.fromkeys(PARTS, st.sampled_from(["", "one", "two"])))
KINDS = ("jobs", "unfinished_jobs", "devices", "namespaces")


@given(asked=st.lists(st.tuples(st.sampled_from(KINDS), CLUSTERS), min_size=2, max_size=6))
@example(asked=[("jobs", dict.fromkeys(PARTS, "")), ("jobs", dict.fromkeys(PARTS, "") | {"namespace": "one"})])
def test_no_answer_is_that_of_another_question(asked: list[tuple[str, dict[str, str]]]) -> None:
    """Each question is read once, whatever was asked before it of another kind, cluster or namespace."""
    read = list[tuple[Any, ...]]()

    def work(task: Any, **options: Any) -> list[tuple[str, str]]:
        options.pop("brief")
        read.append((os.environ["KUBECONFIG"], *(options[name] or "" for name in PARTS[:3])))
        return [(f"{len(read)}", "")]

    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setenv("XDG_CACHE_HOME", folder)
        patch.setattr(values, "work", work)
        patch.setattr("dovetail_cli.completion.values.FRESH_SECONDS", 1e9)
        found = dict[tuple[str, ...], Any]()
        for kind, cluster in asked:
            patch.setenv("KUBECONFIG", cluster["KUBECONFIG"])
            given_options = {name: cluster[name] or None for name in PARTS[:3]}
            answer = values._asked(kind, read=values._namespaces, given=given_options)
            before = len(found)
            assert found.setdefault((kind, *(cluster[name] for name in PARTS)), answer) == answer
            assert len(read) == len(found)
            if len(found) > before:
                assert answer == [(f"{len(read)}", "")]
                assert read[-1] == (cluster["KUBECONFIG"], *(cluster[name] for name in PARTS[:3]))


async def test_each_kind_of_value_has_its_own_answer(api: Api, kubeconfig: str) -> None:
    api.answer(JOBS, *[listed(make_job("old", number=1, phase="Failed"), make_job("new", number=2))] * 2)
    api.answer("GET /api/v1/namespaces", Answer(body={"metadata": {}, "items": [{"metadata": {"name": "vision"}}]}))
    api.answer("GET /apis/dovetail.dev/v1beta1/gpunodes", listed(make_gpunode("a-1")))
    found = {kind: await ask(kind, "", kubeconfig=kubeconfig) for kind in KINDS}
    assert found == {
        "jobs": ["2", "1"],
        "unfinished_jobs": ["2"],
        "devices": ["a-1:all", "a-1:0", "a-1:1"],
        "namespaces": ["vision"],
    }


def test_what_was_read_is_its_users_alone(cache: Path) -> None:
    cached(["jobs"], read=lambda: [("7", "train R")])
    (file,) = cache.iterdir()
    assert [path.stat().st_mode & 0o777 for path in (file, cache)] == [0o600, 0o700]


@pytest.mark.parametrize(("later", "reads"), [(0.0, 1), (FRESH_SECONDS - 0.1, 1), (FRESH_SECONDS, 2), (-60.0, 2)])
def test_what_is_older_than_some_seconds_or_of_another_clock_is_read_again(
    cache: Path, later: float, reads: int
) -> None:
    asked = list[None]()

    def read() -> list[tuple[str, str]]:
        asked.append(None)
        return [("7", "train R")]

    assert cached(["jobs"], read=read) == [("7", "train R")]
    (file,) = cache.iterdir()
    at = file.stat().st_mtime + later
    assert cached(["jobs"], read=read, now=lambda: at) == [("7", "train R")]
    assert len(asked) == reads


def test_a_cache_that_cannot_be_read_or_written_is_no_error(cache: Path) -> None:
    cached(["jobs"], read=list)
    (file,) = cache.iterdir()
    file.write_text("{")
    assert cached(["jobs"], read=lambda: [("7", "")]) == [("7", "")]
    for path in (file, cache):
        path.unlink() if path.is_file() else path.rmdir()
    cache.write_text("in the way")
    assert cached(["jobs"], read=lambda: [("8", "")]) == [("8", "")]
