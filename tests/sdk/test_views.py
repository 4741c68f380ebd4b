"""What notebooks and terminals show."""

import sys
import types as python_types
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest

from dovetail.answers.jobs import JobRow
from dovetail.answers.questions import ExplainedChange, ExplainedNode, Explanation
from dovetail.answers.v1 import NodeRow
from dovetail.sdk import Client
from dovetail.sdk.blocking.jobs import Job
from dovetail.sdk.progress import sentence, shower

HOSTILE = "<script>alert('&')</script>"
ROW = JobRow(
    namespace="red", name="train", display_name="train", uid="u", number=7, user="rita", project="p", phase="Queued",
    reason="Resources", message=HOSTILE, details=[], request="2(V100)", gpus=2, device=None, simulated=False, workers=1,
    priority=10, reservation=False, position=3, estimated_start=None, earliest=None, latest=None, basis="",
    dependencies=[], nodes=[], devices=[], time_limit_seconds=None, submitted_at="2026-11-01T00:00:00Z",
    started_at=None, completed_at=None, lease_ends_at=None, ends_by=None, idle="",
)  # fmt: skip
EXPLANATION = Explanation(
    kind="GPUJob", name="train", namespace="red", number=7, state="waiting", summary=HOSTILE, fits=False,
    reason="Resources", asked=None, notes=[HOSTILE], basis="", held=[], causes=[], around=[],
    changes=[ExplainedChange(kind="k", text=HOSTILE, node="", request="")],
    nodes=[
        ExplainedNode(
            node=HOSTILE, fits=False, reason="r", message=HOSTILE, text="", score=None, terms={}, devices=[], note=""
        )
    ],
)  # fmt: skip
NODE = NodeRow(node_name=HOSTILE, gpu_type="V100", available_gpus=1, memory_per_gpu=32, utilization=0.0)


class Tags(HTMLParser):
    """The tags and attributes of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen |= {tag, *(name for name, _ in attrs)}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("value", [ROW, EXPLANATION, NODE], ids=lambda value: type(value).__name__)
def test_a_view_is_static_and_escapes_each_text(value: Any) -> None:
    html = value._repr_html_()
    tags = Tags(html)
    assert tags.seen <= {"div", "strong", "p", "ul", "li", "table", "tr", "th", "td", "style"}
    assert (tags.open, HOSTILE in html) == ([], False)


def test_a_job_shows_itself_in_both_forms() -> None:
    with Client("http://127.0.0.1:1", token="") as client:
        job = Job(ROW, transport=client._transport)
        bundle = job._repr_mimebundle_(include=None, exclude=None)
    assert bundle["text/plain"] == f"<Job 7 is Queued (position 3): {HOSTILE}>"
    assert "<td" in bundle["text/html"]


def test_a_terminal_gets_a_line_for_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    show = shower(True)
    running = msgspec.structs.replace(ROW, phase="Running", message="", position=None, nodes=["a", "b"])
    for row in (ROW, ROW, running, msgspec.structs.replace(running, phase="Succeeded")):
        show(row)
    assert capsys.readouterr().err.splitlines() == [
        f"Job 7 is Queued (position 3): {HOSTILE}",
        "Job 7 is Running on a, b",
        "Job 7 is Succeeded",
    ]


@pytest.mark.parametrize("progress", [None, False])
def test_where_no_one_looks_nothing_is_shown(capsys: pytest.CaptureFixture[str], progress: Any) -> None:
    shower(progress)(ROW)
    assert capsys.readouterr().err == ""


def test_a_job_without_a_number_is_called_by_its_name() -> None:
    assert sentence(msgspec.structs.replace(ROW, number=None, position=None, message="")) == "Job train is Queued"


class Display(python_types.ModuleType):
    """IPython's module of displays, as a kernel has it."""

    def __init__(self) -> None:
        super().__init__("IPython.display")
        self.shown: list[str] = []
        self.updated: list[str] = []

    def HTML(self, text: str) -> str:
        return text

    def display(self, text: str, *, display_id: bool) -> Any:
        assert display_id
        self.shown.append(text)
        return python_types.SimpleNamespace(update=self.updated.append)


def test_a_notebook_gets_one_view_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, display = python_types.ModuleType("IPython"), Display()
    shell.get_ipython = lambda: python_types.SimpleNamespace(kernel=True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    show = shower(None)
    for row in (ROW, ROW, msgspec.structs.replace(ROW, phase="Running")):
        show(row)
    assert (len(display.shown), len(display.updated)) == (1, 1)


@pytest.mark.parametrize("shell", ["a terminal's", "none", "a kernel's without displays"])
def test_without_a_notebook_nothing_is_imported_for_it(monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    for name in ("IPython", "IPython.display"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    if shell != "none":
        made = python_types.ModuleType("IPython")
        running = python_types.SimpleNamespace(**({} if shell == "a terminal's" else {"kernel": True}))
        made.get_ipython = lambda: running  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", made)
    shown = list[JobRow]()
    assert shower(shown.append) == shown.append
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert type(shower(None)).__name__ == "_Lines"
    assert "IPython.display" not in sys.modules


def test_the_shell_of_a_terminal_is_no_notebook_whatever_it_has_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, display = python_types.ModuleType("IPython"), Display()
    shell.get_ipython = python_types.SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    shower(True)(ROW)
    assert display.shown == []


def test_where_no_one_may_look_a_terminal_is_left_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shower(False)(ROW)
    assert capsys.readouterr().err == ""
