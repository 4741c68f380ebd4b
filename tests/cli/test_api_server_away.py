"""No API server answers: every command that needs one says so in one sentence, and what was tried."""

import json
from pathlib import Path

import pytest
import yaml

from dovetail_cli import app
from tests.cli.ui.test_live_screen import KUBECONFIG

# Nothing listens on the port of `discard`.
AWAY = "http://127.0.0.1:9"
LINES = [
    "gqueue",
    "gqueue -w",
    "gqueue -a --since 1d",
    "ginfo",
    "ginfo --by-job",
    "gstats",
    "top",
    "quota",
    "quota plan examples/departments.yaml",
    "quota set q --gpus 1",
    "quota delete q",
    "limits",
    "limits set policy=Pack",
    "limits unset policy",
    "observe",
    "observe report",
    "adopt a",
    "audit",
    "snapshot",
    "doctor",
    "explain 7",
    "explain pod p",
    "explain request 1",
    "move plan 7",
    "gjob show 7",
    "gjob events 7",
    "gjob log 7",
    "gjob log -f 7",
    "gjob hold 7",
    "gjob release 7",
    "gjob update 7 -p 1",
    "gjob resize 7",
    "gjob renew 7",
    "gjob redo 7",
    "gjob fetch 7",
    "gcancel 7",
    "cordon a:1",
    "uncordon a:1",
    "whoami",
    "gbatch sleep 5",
    "gbatch --dry-run sleep 5",
]
DOCUMENTS = [
    "gqueue", "ginfo", "ginfo --by-job", "gstats", "top", "quota", "limits", "observe", "audit", "snapshot", "doctor",
    "explain 7",
    "explain request 1", "move plan 7", "gjob show 7", "cordon a:1", "adopt a",
]  # fmt: skip
# They need no cluster, bring up their own, or ask it only when somebody asks them.
WITHOUT = {
    "completion", "config", "console", "demo", "gflowd", "mcp", "migrate", "replay", "sandbox", "simulate", "uninstall",
}  # fmt: skip


@pytest.fixture(autouse=True)
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=AWAY))
    monkeypatch.setenv("KUBECONFIG", str(file))
    # The pauses between attempts are no matter of this test.
    monkeypatch.setattr("dovetail.kube.retry.Backoff.seconds", lambda *_args, **_options: 0.0)
    return str(file)


def test_every_command_that_needs_a_cluster_is_tried() -> None:
    tried = {app.resolved(word, arguments=rest)[0] for word, *rest in map(str.split, LINES)}
    assert tried == set(app.COMMANDS) - WITHOUT


@pytest.mark.parametrize("line", LINES)
def test_an_api_server_that_is_away_is_one_sentence_with_what_was_tried(
    line: str, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(line.split()) == 4
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"dovetail: cannot reach the API server at {AWAY}: Connection refused; "
        f'tried context "test" of {kubeconfig}\n'
    )  # fmt: skip


def test_the_queue_of_this_machine_says_how_to_start_it(kubeconfig: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = yaml.safe_load(Path(kubeconfig).read_text())
    extension = {"name": "dovetail.dev/local-node", "extension": {"data": "/home/alice/.local/share/gflow"}}
    document["contexts"][0]["context"]["extensions"] = [extension]
    Path(kubeconfig).write_text(yaml.safe_dump(document))
    assert app.main(["gqueue"]) == 4
    assert capsys.readouterr().err.endswith("; to start the queue of this machine: gflowd up\n")


@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
@pytest.mark.parametrize("line", DOCUMENTS)
def test_a_program_gets_the_error_in_the_format_that_it_asked_for(
    line: str, form: str, load: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main([*line.split(), "-o", form]) == 4
    assert callable(load)
    error = load(capsys.readouterr().out)["error"]
    assert error["code"] == 4
    assert error["message"].startswith(f"cannot reach the API server at {AWAY}: Connection refused; tried context")


@pytest.mark.parametrize("words", ["gqueue --nope -o json", "ginfo -o json --namespace", "gjob show -o json"])
def test_a_command_line_that_is_refused_is_a_document_too(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(words.split()) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == 2


def test_csv_has_no_errors_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["gqueue", "-o", "csv"]) == 4
    assert capsys.readouterr().out == ""
