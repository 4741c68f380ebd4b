"""An API server that refuses or fails: every command that asks it says so in one sentence, with the documented code."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from dovetail_cli import app
from tests.cli.test_api_server_away import LINES
from tests.cli.ui.test_live_screen import KUBECONFIG

Answer = Callable[[], web.Response]
# These two follow the job or the table, and try again.
ONCE: Final = [line for line in LINES if line not in {"gqueue -w", "gjob log -f 7"}]


def status(code: int, reason: str, message: str) -> Answer:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": {}}
    return lambda: web.json_response(body, status=code)


NO_CHART: Final = "this cluster has no "
NO_RESOURCE: Final = "the server could not find the requested resource"
# The answer to everything, the exit code, and how the sentence begins.
ANSWERS: Final[dict[str, tuple[Answer, int, str]]] = {
    "no credentials": (status(401, "Unauthorized", "no token"), 4, "the API server does not know you: no token"),
    "no rights": (status(403, "Forbidden", "you may not"), 1, "not allowed: you may not"),
    "no chart": (status(404, "NotFound", NO_RESOURCE), 3, NO_CHART),
    "a failure": (status(500, "InternalError", "etcd is away"), 1, "etcd is away"),
    "a page": (lambda: web.Response(text="<html>log in</html>"), 4, "the API server's answer"),
    "half an answer": (lambda: web.Response(text='{"items": ['), 4, "the API server's answer"),
}  # fmt: skip
NO_IMAGE, NO_CONFIG = "the job has no container image", "there is no ConfigMap dovetail-config that you may read"
# What a command does all the same, or says in another way.
# It may say before that it leaves the limits of devices out.
NOTED: Final = "dovetail: you may not list GPUNodes: devices' own limits are not shown"
OTHERWISE: Final[dict[tuple[str, str], tuple[int, str]]] = {
    # It says what it may not see and what is missing, and goes on.
    ("no rights", "doctor"): (0, ""),
    ("no chart", "doctor"): (1, ""),
    # A look needs no chart, and says which rights it needs.
    ("no rights", "observe"): (1, "you may list neither nodes nor pods"),
    ("no rights", "observe report"): (1, "you may not list nodes"),
    ("no chart", "observe"): (0, ""),
    ("no chart", "observe report"): (1, "this cluster has no pod with GPUs"),
    ("no rights", "adopt a"): (1, "you may not list nodes"),
    ("no chart", "adopt a"): (1, "there is no node a"),
    # A user without a profile may submit, but names an image.
    **{
        (case, line): (2, NO_IMAGE) for case in ("no rights", "no chart") for line in LINES if line.startswith("gbatch")
    },
    **{("no chart", f"limits {line}"): (3, NO_CONFIG) for line in ("set policy=Pack", "unset policy")},
}


@pytest.fixture
async def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Answer]]:
    """An API server that answers everything with the last of the list."""
    answers: list[Answer] = []

    async def answer(_request: web.Request) -> web.Response:
        return answers[-1]()

    made = web.Application()
    made.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(made)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(url=f"http://127.0.0.1:{runner.addresses[0][1]}"))
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.delenv("DOVETAIL_GATEWAY", raising=False)
    # The pauses between attempts are no matter of this test.
    monkeypatch.setattr("dovetail.kube.retry.Backoff.seconds", lambda *_args, **_options: 0.0)
    yield answers
    await runner.cleanup()


def typed(line: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = app.main(line.split())
    return code, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("case", ANSWERS)
async def test_every_command_says_in_one_sentence_what_it_was_answered(
    server: list[Answer], case: str, subtests: pytest.Subtests
) -> None:
    answer, usual_code, usual = ANSWERS[case]
    server.append(answer)
    for line in ONCE:
        with subtests.test(line):
            code, out, err = await asyncio.to_thread(typed, line)
            expected, sentence = OTHERWISE.get((case, line), (usual_code, usual))
            assert code == expected, err
            assert "should not happen" not in err
            if sentence:
                (said,) = [each for each in err.splitlines() if each != NOTED]
                assert (out, said.startswith(f"dovetail: {sentence}")) == ("", True)
            else:
                assert (bool(out), err) == (True, "")
