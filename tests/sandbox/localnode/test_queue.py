"""A queue that cannot be continued is refused in one sentence, and stays as it is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail_cli.app import main
from dovetail_sandbox import cluster, state
from dovetail_sandbox.cluster import Cluster
from dovetail_sandbox.errors import KeptQueueError
from dovetail_sandbox.localnode import queue
from dovetail_sandbox.state import Kept, State


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """What `gflowd down` leaves."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    made = cluster.get()
    (queue.etcd_data(made.folder) / "member").mkdir(parents=True)
    write(made, kept=queue.current())
    return made


def write(made: Cluster, **more: object) -> None:
    known = {"name": made.name, "format": state.FORMAT, "phase": "stopped", "local_node": True, **more}
    state.write(made.folder, state=State(**known))


def of_format(number: int) -> Callable[[Cluster], None]:
    return lambda made: write(made, format=number, kept=queue.current())


def forget_format(made: Cluster) -> None:
    """As a Dovetail left it that had the format of the queue in `kept` alone."""
    file = made.folder / "state.json"
    known = json.loads(file.read_text())
    known["kept"]["format"] = known.pop("format") - 1
    file.write_text(json.dumps(known))


def truncate(made: Cluster) -> None:
    (made.folder / "state.json").write_text('{"name": "def')


def test_what_this_version_left_can_be_continued(left: Cluster) -> None:
    queue.check(left.folder, known=left.state())


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (of_format(9), "another version of Dovetail wrote it. To remove"),
        (of_format(2), "another version of Dovetail wrote it. To remove"),
        (forget_format, "another version of Dovetail wrote it. To remove"),
        (lambda made: write(made, kept=Kept(kubernetes="v1.99.0")), "Kubernetes v1.99.0 wrote it, and this Dovetail"),
        (truncate, "its state.json is missing or unreadable"),
        (lambda made: (made.folder / "state.json").unlink(), "its state.json is missing or unreadable"),
        (lambda made: (queue.etcd_data(made.folder) / "member").rmdir(), "etcd's data are missing in "),
    ],
)
def test_a_queue_that_cannot_be_continued_says_why_and_how_to_remove_it(
    left: Cluster, damage: Callable[[Cluster], None], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(left)
    before = sorted(left.folder.rglob("*"))
    assert main(["sandbox", "up", "--local"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"dovetail: The queue in {left.folder} cannot be continued: {problem}")
    assert said.endswith(" To remove it: gflowd down --purge\n")
    assert said.count("\n") == 1
    assert sorted(left.folder.rglob("*")) == before


def test_a_queue_of_another_name_is_removed_by_that_name(left: Cluster) -> None:
    with pytest.raises(KeptQueueError, match=r"To remove it: dovetail sandbox down --purge --name mine$"):
        queue.check(left.folder, known=State(name="mine", kept=queue.current()))


def test_an_older_kubernetes_may_have_written_it(left: Cluster) -> None:
    queue.check(left.folder, known=State(name="default", format=state.FORMAT, kept=Kept(kubernetes="v1.35.9")))


def test_down_keeps_a_broken_queue_and_purge_removes_it(left: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    truncate(left)
    assert main(["sandbox", "down"]) == 0
    assert queue.etcd_data(left.folder).exists()
    assert main(["sandbox", "down", "--purge"]) == 0
    assert not left.folder.exists()


def test_a_queue_that_was_never_ready_is_none(left: Cluster) -> None:
    write(left, kept=None, phase="failed")
    assert not queue.is_kept(left.folder, known=left.state())


def test_simulated_nodes_are_refused_while_it_is_kept(left: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "up"]) == 1
    assert capsys.readouterr().err == (
        "dovetail: Sandbox 'default' has the queue of this machine. For simulated nodes, use another name (dovetail "
        "sandbox up --name simulated), or remove the queue: dovetail sandbox down --purge --name default\n"
    )


def test_a_stopped_sandbox_says_how_to_go_on(left: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sandbox", "status", "-o", "json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["phase"], shown["message"]) == ("Stopped", "`gflowd up` continues the queue.")


def test_only_what_is_made_again_is_removed_before_it_continues(left: Cluster) -> None:
    plane = left.kwok_folder
    for stays in (plane / "pki", left.folder / "local-node" / "runs", left.folder / "volumes"):
        stays.mkdir(parents=True)
    for goes in (plane / "pids", plane / "bin", left.folder / "logs", left.folder / "kubeconfigs"):
        goes.mkdir(parents=True)
    (plane / "kwok.yaml").touch()
    (left.folder / "observed.json").touch()
    queue.prepare(left.folder, control_plane=plane)
    assert [path.name for path in plane.iterdir()] == ["pki"]
    assert sorted(path.name for path in left.folder.iterdir()) == [
        "kwok", "local-node", "queue", "state.json", "volumes",
    ]  # fmt: skip
