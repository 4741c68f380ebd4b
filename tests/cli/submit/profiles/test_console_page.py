from pathlib import Path

import pytest

from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit.profiles import console_page
from tests.cli.builders import make_job


@pytest.mark.parametrize(
    ("variable", "of_context", "page"),
    [
        ("https://gpu.example/", "http://local", "https://gpu.example/console/job/red/train"),
        ("", "http://local", "http://local/console/job/red/train"),
        ("", "", None),
    ],
)
async def test_a_job_has_a_page_where_a_gateway_is_named(
    variable: str, of_context: str, page: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOVETAIL_GATEWAY", variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with Client(Connection(server="http://api", gateway_url=of_context)) as client:
        job = make_job("train", namespace="red")
        assert console_page.page_of(Cluster(client=client, namespace="red"), job=job) == page
