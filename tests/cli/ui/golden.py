"""What the commands show on terminals of several widths: `python -m tests.cli.ui.golden` writes the files anew."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from unittest import mock

from dovetail.answers.doctor import CheckResult
from dovetail.query.doctor.findings import diagnosis_of
from dovetail.query.explain import subjects
from dovetail.query.explain.rows import explanation_row
from dovetail.query.jobs.columns import View
from dovetail.query.quotas.listing import quota_list
from dovetail_cli.doctor import findings
from dovetail_cli.explain import render
from dovetail_cli.jobs import details
from dovetail_cli.jobs.listing import Question
from dovetail_cli.nodes import inventory, quotas
from dovetail_cli.ui import output
from tests.cli.builders import NOW, ago, make_gpunode, make_job
from tests.cli.nodes.test_inventory import taken
from tests.core.answers.test_nodes import job_pod
from tests.core.query.explain.test_explain import SETTINGS, explain, filled, raw_pod
from tests.core.query.test_quotas import EACH, VISION

WIDTHS: Final = (60, 80, 120, 200)
FOLDER: Final = Path(__file__).parent / "golden"
_LONG: Final = "fine-tune-llama-with-a-name-as-people-give-them"
_JOBS: Final = [
    make_job("eval", number=7, phase="Running", gpus=1, request="0.5", devices=[("a100-0", 0, 500)],
             nodes=["a100-0"], start_time=ago(seconds=5)),
    make_job(_LONG, number=1234, phase="Running", gpus=32, request="8", workers=4, start_time=ago(hours=71),
             nodes=["a100-0", "a100-1"], devices=[(node, at) for node in ("a100-0", "a100-1") for at in range(8)]),
    make_job("深度学习训练-北京-第二次", number=1235, phase="Queued", gpus=16, request="16", reason="Resources",
             message="Need 16 GPUs, only 8 available on one node of pool a100"),
    make_job("export", number=1236, phase="Queued", gpus=2, request="2(V100)", reason="Dependency",
             message="waits for job 1234 to succeed"),
]  # fmt: skip
_FINDINGS: Final = [
    CheckResult(level="ok", check="kinds", subject="gpujobs", message="installed"),
    CheckResult(
        level="warning",
        check="pod-security",
        message="default: a privileged pod or a host path there sees every card, since nothing enforces baseline",
        fix="kubectl label namespace default pod-security.kubernetes.io/enforce=baseline",
    ),
]


def _gqueue() -> str:
    return Question().answer(_JOBS, view=View(now=NOW), form="table")


def _gjob() -> str:
    page = "http://127.0.0.1:8000/console/job/default/train"
    return output.wrapped(details.shown(_JOBS[2], events=None, now=NOW, page=page))


def _ginfo() -> str:
    nodes = [make_gpunode(f"rack-{at}-a100", gpus=2, used_mib=1024, utilization=0.5) for at in range(3)]
    sick = make_gpunode("rack-4-a100", health="Unhealthy", health_reason="XID 79: the GPU has fallen off the bus")
    return inventory.text_by_node(taken(*nodes, sick, pods=[job_pod(5, node="rack-1-a100")]))


def _quota() -> str:
    found = quota_list([VISION, EACH]).items
    return output.render(list(quotas.rows(found)), columns=quotas.COLUMNS, form="table")


def _explain() -> str:
    found = explain(subjects.of_pod(raw_pod(), settings=SETTINGS), filled())
    return render.render(explanation_row(found), form="table", everything=False)


def _doctor() -> str:
    return findings.render(diagnosis_of(_FINDINGS), form="table")


VIEWS: Final[Mapping[str, Callable[[], str]]] = {
    "gqueue": _gqueue, "gjob": _gjob, "ginfo": _ginfo, "quota": _quota, "explain": _explain, "doctor": _doctor,
}  # fmt: skip


def shown(name: str, *, width: int) -> str:
    """What a terminal of `width` columns shows, without colours."""
    with (
        mock.patch.object(output, "terminal_width", return_value=width),
        mock.patch.object(output, "in_colour", return_value=False),
    ):
        return VIEWS[name]()


def golden(name: str) -> str:
    """The same for all widths, each below its title."""
    return "\n".join(f"{f' {width} columns ':=^{width}}\n{shown(name, width=width)}\n" for width in WIDTHS)


if __name__ == "__main__":
    for each in VIEWS:
        (FOLDER / f"{each}.txt").write_text(golden(each), encoding="utf-8")
