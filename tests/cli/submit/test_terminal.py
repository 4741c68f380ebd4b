"""gbatch --interactive: which jobs can have a terminal, and what their container gets."""

from dataclasses import replace

import pytest

from dovetail.api.gpujob import ArraySpec, spec_of
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_cli.app import run
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import manifest, on_cluster, terminal
from dovetail_cli.submit.local import Local
from dovetail_cli.submit.manifest import Submission, with_spec
from dovetail_cli.submit.on_cluster import Asked
from dovetail_cli.ui.errors import UsageError

PLAIN = Submission(name="shell", command=["bash"], request=None, image="train:1")


def test_without_a_command_it_is_a_shell() -> None:
    assert terminal.words(interactive=True) == list(terminal.SHELL)
    with pytest.raises(UsageError, match=r"Missing argument .* a command, or - for standard input"):
        terminal.words(interactive=False)


def test_a_submission_without_words_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gbatch", arguments=["-g", "1"], prog="gbatch") == 2
    assert "such as gbatch python train.py" in capsys.readouterr().err


def test_what_is_more_than_one_terminal_is_refused_with_the_options() -> None:
    terminal.check(PLAIN, files=Local())
    several = replace(PLAIN, workers=2, array=ArraySpec(indexes="0-3"))
    with pytest.raises(UsageError, match="one terminal in one container: leave --array, --nodes, --error out"):
        terminal.check(several, files=Local(error="e"))


@pytest.mark.parametrize(
    ("option", "submission", "files"),
    [
        ("--array", replace(PLAIN, array=ArraySpec(indexes="0-3")), Local()),
        ("--nodes", replace(PLAIN, workers=2), Local()),
        ("--max-retries", replace(PLAIN, max_retries=1), Local()),
        ("--output", PLAIN, Local(output="o")),
        ("--error", PLAIN, Local(error="e")),
    ],
)
def test_each_option_that_makes_more_of_it_is_refused_alone(option: str, submission: Submission, files: Local) -> None:
    with pytest.raises(UsageError, match=f"leave {option} out"):
        terminal.check(submission, files=files)


async def test_where_nothing_runs_it_is_refused() -> None:
    async with Client(Connection(server="http://127.0.0.1:1", simulated=True)) as client:
        cluster = Cluster(client=client, namespace="default")
        with pytest.raises(UsageError, match="on simulated nodes, nothing does"):
            await on_cluster.prepare(PLAIN, asked=Asked(interactive=True), files=Local(), cluster=cluster)


def test_the_container_has_standard_input_that_ends_with_the_session() -> None:
    job = manifest.build(PLAIN, namespace="default")
    (piped,) = spec_of(terminal.with_terminal(job, terminal=None).spec.template)["containers"]
    assert (piped["stdin"], piped["stdinOnce"], "tty" in piped) == (True, True, False)
    (shown,) = spec_of(terminal.with_terminal(job, terminal="xterm").spec.template)["containers"]
    assert (shown["tty"], shown["env"]) == (True, [{"name": "TERM", "value": "xterm"}])


def test_only_the_first_container_has_the_terminal_and_the_others_stay() -> None:
    job = manifest.build(PLAIN, namespace="default")
    spec = spec_of(job.spec.template)
    several = with_spec(job, spec={**spec, "containers": [*spec["containers"], {"name": "sidecar", "image": "log:1"}]})
    first, second = spec_of(terminal.with_terminal(several, terminal="xterm").spec.template)["containers"]
    assert (first["stdin"], first["stdinOnce"], first["tty"]) == (True, True, True)
    assert second == {"name": "sidecar", "image": "log:1"}
