import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.errors import KubeconfigError
from dovetail.process import identity
from dovetail.process.identity import ProcessId
from dovetail_cli.cluster.connection import Cluster, leave_out, load, read_jobs
from dovetail_cli.ui.errors import NoConnectionError
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api

JOBS = "GET /apis/dovetail.dev/v1beta1/namespaces/team/gpujobs"
ODD = b'{"metadata":{"namespace":"team","name":"odd"},"spec":{"gpu":1,"priority":"high","template":{"spec":{}}}}'
DEEP = b'{"metadata":{"namespace":"team","name":"deep"},"spec":' + b'{"x":' * 9_000 + b"1" + b"}" * 9_001


def page(*items: bytes) -> Answer:
    return Answer(body=b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join(items) + b"]}")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("other", "there is no queue yet: `gflowd up` starts one on this machine; for a cluster, name its kubeconfig"),
        ("dovetail/sandboxes/default", "the queue of this machine is stopped: `gflowd up` continues it"),
    ],
)
def test_without_any_cluster_it_names_the_queue_of_this_machine_first(
    there: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"HOME": tmp_path, "XDG_STATE_HOME": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / there).mkdir(parents=True)
    with pytest.raises(NoConnectionError) as raised:
        load(None, context=None)
    assert str(raised.value).startswith(said)
    # A file that is named is what it is about.
    with pytest.raises(KubeconfigError, match="/nonexistent"):
        load("/nonexistent", context=None)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"phase": "starting", "starter": "me"}, "still starts"),
        ({"phase": "starting", "starter": "gone"}, "is stopped"),
        ({"phase": "stopped", "starter": None}, "is stopped"),
        ("{", "is stopped"),
    ],
)
def test_a_queue_that_starts_for_the_first_time_is_not_called_stopped(
    state: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "dovetail" / "sandboxes" / "default"
    folder.mkdir(parents=True)
    me = identity.identify(os.getpid())
    assert me is not None
    if isinstance(state, dict):
        processes = {"me": me, "gone": ProcessId(me.pid, me.started - 1)}
        state = msgspec.json.encode(state | {"starter": processes.get(state["starter"])}).decode()
    (folder / "state.json").write_text(state)
    with pytest.raises(NoConnectionError, match=said):
        load(None, context=None)


async def test_a_job_that_cannot_be_read_is_named_and_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    api = Api()
    await api.start()
    api.answer(JOBS, page(ODD, msgspec.json.encode(make_job()), DEEP))
    async with Client(Connection(server=api.url), on_unreadable=leave_out) as client:
        jobs = await read_jobs(Cluster(client=client, namespace="team"), namespace="team")
    await api.stop()
    assert [type(job) for job in jobs] == [GPUJob]
    said = capsys.readouterr().err
    assert "GPUJob team/odd is left out: it cannot be read: Expected `int`" in said
    assert "$.spec.priority" in said
    assert "GPUJob team/deep is left out: it cannot be read: it is nested too deeply" in said
