import msgspec
import pytest

from dovetail.api.gpujob import GPUJob
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_cli.cluster.connection import Cluster, leave_out, read_jobs
from tests.cli.builders import make_job
from tests.core.kube.api import Answer, Api

JOBS = "GET /apis/dovetail.dev/v1beta1/namespaces/team/gpujobs"
ODD = b'{"metadata":{"namespace":"team","name":"odd"},"spec":{"gpu":1,"priority":"high","template":{"spec":{}}}}'
DEEP = b'{"metadata":{"namespace":"team","name":"deep"},"spec":' + b'{"x":' * 9_000 + b"1" + b"}" * 9_001


def page(*items: bytes) -> Answer:
    return Answer(body=b'{"metadata":{"resourceVersion":"1"},"items":[' + b",".join(items) + b"]}")


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
