"""Functions from Python on the queue of a machine: real processes call them, and their values come back."""

import getpass
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.sdk import Client, Executor, FunctionFailedError, as_completed
from dovetail.sdk.errors import ConflictError, NotFoundError
from tests.local_node.machine import Machine
from tests.local_node.notebooks import executed, outputs_of
from tests.polling import until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "python.md"
BLOCK = re.compile(r"^```python\n(?P<source>.*?)^```\n\n```text\n(?P<printed>.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
PATIENCE = 60.0


@pytest.fixture
def client(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, machine.environment[name])
    for name in ("KUBECONFIG", "DOVETAIL_GATEWAY", "DOVETAIL_TOKEN", "DOVETAIL_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    with Client() as made:
        yield made


def where() -> tuple[str, str, int]:
    return str(Path.cwd()), os.environ["LR"], os.getpid()


def killed() -> None:
    os.kill(os.getpid(), 9)


def fails_once(folder: str) -> str:
    marker = Path(folder, "tried")
    if marker.exists():
        return "the second time"
    marker.touch()
    raise RuntimeError("the first time")


def rank() -> tuple[str, str]:
    return os.environ["RANK"], os.environ["WORLD_SIZE"]


def outcome_files(machine: Machine) -> list[Path]:
    return list(Path(machine.environment["XDG_DATA_HOME"], "gflow", "calls").rglob("outcome-*"))


def test_a_function_runs_in_a_process_of_its_own_where_it_was_submitted(
    client: Client, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LR", "0.1")
    job = client.submit(where, gpu=0)
    assert job.answer is not None
    assert (job.answer.outcome, str(job.answer)) == ("Starts", "It starts now.")
    directory, rate, process = job.result(timeout_seconds=PATIENCE)
    assert (directory, rate) == (str(Path.cwd()), "0.1")
    assert process != os.getpid()
    assert job.done()
    assert outcome_files(machine) == []


def test_a_killed_worker_has_no_result_and_says_how_it_ended(client: Client) -> None:
    with pytest.raises(FunctionFailedError, match=r"has no result: .* exit code 137"):
        client.submit(killed, gpu=0).result(timeout_seconds=PATIENCE)


def test_what_the_function_raises_is_raised_here(client: Client) -> None:
    job = client.submit(lambda: {}["lr"], gpu=0)
    assert isinstance(job.exception(timeout_seconds=PATIENCE), KeyError)


def test_a_function_that_raises_is_tried_again(client: Client, tmp_path: Path) -> None:
    job = client.submit(fails_once, str(tmp_path), gpu=0, retries=1)
    assert job.result(timeout_seconds=PATIENCE) == "the second time"


def test_a_hundred_megabytes_go_there_and_back(client: Client) -> None:
    found = client.submit(lambda data: data[::-1], b"ab" * 50_000_000, gpu=0).result(timeout_seconds=PATIENCE)
    assert (len(found), found[:2]) == (100_000_000, b"ba")


def test_another_version_of_python_is_named(client: Client, tmp_path: Path) -> None:
    other = tmp_path / "python"
    # The runner reads its own version; everything else is the real interpreter.
    other.write_text(
        f'#!/bin/sh\nshift\nsource="import sys; sys.version_info = (3, 6, 15); $1"\nshift\n'
        f'exec {sys.executable} -c "$source" "$@"\n'
    )
    other.chmod(0o700)
    with pytest.raises(FunctionFailedError, match=r"was sent from Python 3\.\d+, and the job runs Python 3\.6"):
        client.submit(where, gpu=0, python=str(other)).result(timeout_seconds=PATIENCE)


def test_a_job_that_is_found_by_name_or_number_brings_the_values(client: Client) -> None:
    job, calls = client.submit(pow, 2, 10, gpu=0), client.map(abs, [-1, -2], gpu=0)
    calls.wait(timeout_seconds=PATIENCE, progress=False)
    for name in (job.name, job.refresh().number):
        assert name is not None
        found: Any = client.job(name)
        assert found.result(timeout_seconds=PATIENCE) == 1024
    several: Any = client.job(calls.name)
    assert several.results(timeout_seconds=PATIENCE) == [1, 2]
    task: Any = client.job(f"{calls.name}-t1")
    assert task.result(timeout_seconds=PATIENCE) == 2
    assert job.result(timeout_seconds=PATIENCE) == 1024, "who submitted it reads it last"
    with pytest.raises(FunctionFailedError, match="its result was read before"):
        found.__class__.result(client.job(job.name), timeout_seconds=PATIENCE)
    with pytest.raises(NotFoundError, match="no job 999999 in namespace default"):
        client.job(999999)


def test_the_same_call_with_the_same_key_is_the_same_job(client: Client) -> None:
    first, again = [client.submit(os.getpid, gpu=0, key="once") for _ in range(2)]
    assert (again.name, again.result(timeout_seconds=PATIENCE)) == (first.name, first.result(timeout_seconds=PATIENCE))
    later = client.submit(os.getpid, gpu=0, key="once")
    assert (later.name, later.result(timeout_seconds=PATIENCE)) == (first.name, first.result())
    with pytest.raises(ConflictError, match="another request created GPUJob"):
        client.submit(os.getppid, gpu=0, key="once")
    assert first.result() == later.result(), "a refused submission removes nothing of theirs"


def test_a_gang_returns_what_each_worker_did(client: Client) -> None:
    found: Any = client.submit(rank, gpu=0, workers=3).result(timeout_seconds=PATIENCE)
    assert found == [("0", "3"), ("1", "3"), ("2", "3")]


def test_a_map_is_one_array_and_a_failed_call_leaves_the_others_alone(client: Client, machine: Machine) -> None:
    made = client.map(lambda x: killed() if x == 2 else x * x, range(4), gpu=0, at_once=2)
    ended = {call.index: call for call in made.as_completed(timeout_seconds=PATIENCE)}
    assert [ended[index].value() for index in (0, 1, 3)] == [0, 1, 9]
    with pytest.raises(FunctionFailedError, match=r"call 2 of .*: it is Failed and has no result"):
        made.results()
    assert f" {made.name} " in machine("gqueue", "-a")


def test_jobs_are_given_as_they_end(client: Client) -> None:
    slow, quick = client.submit(time.sleep, 3, gpu=0), client.submit(abs, -1, gpu=0)
    assert [job.name for job in as_completed([slow, quick], timeout_seconds=PATIENCE)] == [quick.name, slow.name]


def test_what_no_node_can_serve_is_answered_never_as_a_value(client: Client) -> None:
    job = client.submit(where, gpu="64")
    assert job.answer is not None
    assert (job.answer.outcome, job.answer.reason) == ("Never", "ExceedsCapacity")
    never = "it can never start here: Need 64 GPUs, only 0 available: this machine has no GPU. Without a GPU: gpu=0"
    with pytest.raises(FunctionFailedError, match=never):
        job.result()
    assert job.done()
    assert job.phase == "Queued"
    with Executor(client, gpu="64") as executor:
        assert never in str(executor.submit(where).exception(PATIENCE))
        with pytest.raises(FunctionFailedError, match="this machine has no GPU"):
            next(executor.map(abs, [1, 2]))
    # Nobody else knows the executor's jobs, so they do not wait for ever.
    until(lambda: [each.name for each in client.jobs(unfinished=True)] == [job.name])
    made = client.map(abs, [1, 2], gpu="64")
    with pytest.raises(FunctionFailedError, match="this machine has no GPU"):
        made.results()
    for each in client.jobs(unfinished=True):
        each.cancel()
    until(lambda: job.refresh().phase == "Cancelled")
    with pytest.raises(FunctionFailedError, match="it is Cancelled and has no result"):
        job.result(timeout_seconds=PATIENCE)


def test_an_executor_gives_futures(client: Client) -> None:
    with Executor(client, gpu=0) as executor:
        futures = [executor.submit(divmod, 7, by) for by in (2, 0)]
        assert futures[0].result(PATIENCE) == (3, 1)
        assert isinstance(futures[1].exception(PATIENCE), ZeroDivisionError)
        assert list(executor.map(max, [1, 5], [4, 2], timeout=PATIENCE)) == [4, 5]
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_a_map_of_an_executor_is_submitted_at_once_and_its_end_waits_for_all_values(client: Client) -> None:
    with Executor(client, gpu=0, spec={"suspend": True}) as executor:
        values = executor.map(abs, [-1, -2])
        late = executor.map(abs, [-3], timeout=0.1)
        with pytest.raises(TimeoutError, match=r"1 of 1 calls of .* have not ended"):
            next(late)
        for job in client.jobs(unfinished=True):
            job.release()
    assert list(values) == [1, 2]


def test_a_cancelled_future_cancels_a_job_that_waits(client: Client) -> None:
    with Executor(client, gpu=0, spec={"suspend": True}) as executor:
        future = executor.submit(abs, 1)
        assert future.cancel()
    until(lambda: next(client.jobs(unfinished=True), None) is None)


def test_the_notebook_of_the_examples_shows_cards_bars_tables_and_sentences(client: Client, tmp_path: Path) -> None:
    # The kernel finds the queue by the environment of this process, which `client` set.
    assert client.me().username
    shown = outputs_of(executed(tmp_path))
    (card,) = shown["job"]
    assert all(part in card.data["text/html"] for part in ("Succeeded", "epoch 3: loss", "/console/job/default/"))
    assert shown["job.result()"][0].data["text/plain"] == "0.296"
    bar, values = shown["losses.results()"]
    assert '<progress value="1.0000" max="1"' in bar.data["text/html"]
    assert values.data["text/plain"] == "[0.751, 0.579, 0.364, 0.171]"
    (jobs,) = shown["client.jobs()"]
    assert jobs.data["text/html"].count("<tr>") >= 7
    (refusal,) = shown['client.submit(["python", "train.py"], gpu="2(")']
    assert len(refusal.traceback) == 1
    assert refusal.traceback[0].startswith('InvalidError: gpu "2(": ')


def test_whoami_shows_both_identities(machine: Machine) -> None:
    header, commands, python = machine("whoami").splitlines()
    assert header.split() == ["FROM", "AT", "USER", "NAMESPACE", "BY"]
    assert commands.startswith("commands  https://127.0.0.1:")
    assert re.match(rf"Python +http://127\.0\.0\.1:\d+ +{getpass.getuser()} +default ", python)


def test_a_job_by_python_or_rest_is_the_persons_own(client: Client, machine: Machine) -> None:
    with Client(token=machine("sandbox", "token").strip()) as rest:
        for each in (client, rest):
            job = each.submit(["true"], gpu=0)
            assert job.wait(timeout_seconds=PATIENCE, progress=False) == "Succeeded"
            own = json.loads(machine("gqueue", "-a", "-u", getpass.getuser(), "-o", "json"))
            assert job.name in {row["name"] for row in own}
            after = machine.show(machine.submit("-d", "@", "true"))
            assert [dependency["name"] for dependency in after["dependencies"]] == [job.name]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_page_prints_what_the_page_says(machine: Machine, number: int) -> None:
    block = BLOCKS[number]
    script = machine.work / "block.py"
    script.write_text(block["source"], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        check=False,
        env=dict(machine.environment),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == block["printed"]


def test_each_block_of_python_is_followed_by_what_it_prints() -> None:
    assert len(BLOCKS) == PAGE.read_text(encoding="utf-8").count("```python\n") > 0
