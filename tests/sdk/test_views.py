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
from dovetail.sdk import Client, errors, notebook
from dovetail.sdk.blocking.jobs import Job
from dovetail.sdk.blocking.listing import Listing
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
    kind="GPUJob", name="train", namespace="red", number=7, state="waiting", summary=HOSTILE, details=[], fits=False,
    reason="Resources", asked=None, notes=[HOSTILE], note_details=[[]], basis="", basis_details=[],
    held=[], causes=[], around=[],
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

    def display(self, bundle: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert (raw, display_id) == (True, True)
        self.shown.append(bundle["text/html"])
        return python_types.SimpleNamespace(update=self._update)

    def _update(self, bundle: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.updated.append(bundle["text/html"])


@pytest.fixture
def display(monkeypatch: pytest.MonkeyPatch) -> Display:
    """A notebook."""
    shell, made = python_types.ModuleType("IPython"), Display()
    shell.get_ipython = lambda: python_types.SimpleNamespace(kernel=True)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", made)
    return made


def test_a_notebook_gets_one_view_that_follows(display: Display) -> None:
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


def test_a_card_has_devices_estimate_log_and_leads_to_its_page() -> None:
    row = msgspec.structs.replace(
        ROW, estimated_start="2026-11-01T01:00:00Z", earliest="2026-11-01T00:50:00Z", latest="2026-11-01T02:00:00Z"
    )
    html = row.card(gateway="https://gpu.example/", log=["epoch 1", HOSTILE])
    assert '<a href="https://gpu.example/console/job/red/train" target="_blank">' in html
    assert "2026-11-01T01:00:00Z (2026-11-01T00:50:00Z to 2026-11-01T02:00:00Z)" in html
    assert "epoch 1\n&lt;script&gt;" in html
    assert HOSTILE not in html


def test_no_title_leads_to_an_address_that_would_run_in_the_notebook() -> None:
    assert "<a" not in ROW.card(gateway="javascript:alert(1)//")


def test_lists_are_tables_that_say_what_they_leave_out() -> None:
    html = notebook.Listed([ROW] * (notebook.MOST_ROWS + 1))._repr_html_()
    assert html.count("<tr>") == 1 + notebook.MOST_ROWS
    assert "There are more." in html
    assert "There are more." not in notebook.Listed([ROW] * notebook.MOST_ROWS)._repr_html_()
    assert HOSTILE not in html
    assert "None" in notebook.Listed[JobRow]([])._repr_html_()


def test_a_bar_says_how_many_calls_have_ended_and_failed() -> None:
    html = notebook.bar(3, total=4, failed=1, title="Map 7: train")
    assert '<progress value="0.7500" max="1"' in html
    assert "3 of 4 calls have ended, 1 of them failed" in html


def test_an_error_is_one_sentence_in_a_notebook() -> None:
    error = errors.InvalidError('gpu "2(": no such request', status=422)
    assert error._render_traceback_() == ['InvalidError: gpu "2(": no such request']


def paged(pages: list[list[int]]) -> tuple[Listing[int], list[str]]:
    """Listing of these pages, and the cursors that were asked for."""
    asked: list[str] = []

    def page_at(cursor: str) -> Any:
        asked.append(cursor)
        at = int(cursor or 0)
        return python_types.SimpleNamespace(items=pages[at], next=str(at + 1) if at + 1 < len(pages) else None)

    return Listing(page_at, shown=lambda row: row), asked


def test_rows_are_read_as_far_as_they_are_needed_and_once() -> None:
    rows, asked = paged([[1, 2], [3, 4], [5]])
    assert (rows[0], rows[:2], asked) == (1, [1, 2], [""])
    assert (next(rows), next(rows)) == (1, 2)
    assert (list(rows), list(rows), rows[-1]) == ([1, 2, 3, 4, 5], [1, 2, 3, 4, 5], 5)
    assert asked == ["", "1", "2"]


def test_a_notebook_shows_the_rows_as_a_table(display: Display) -> None:
    page = python_types.SimpleNamespace(items=[ROW], next=None)
    Listing(lambda _: page, shown=lambda row: row)._ipython_display_()
    assert display.shown[0].count("<tr>") == 2


def test_outside_a_notebook_the_text_counts() -> None:
    rows, _ = paged([[1]])
    with pytest.raises(NotImplementedError):
        rows._ipython_display_()
    assert repr(rows) == "<0 rows, and more when they are read>"
