import msgspec
import pytest

from dovetail.kube.client import Listing
from dovetail_cli.cluster import Cluster, read_jobs
from tests.cli.builders import make_job


class Shelf:
    """Gives a fixed listing where a client would ask the API server: no schema lets an unreadable job in there."""

    def __init__(self, *items: bytes) -> None:
        self.items = [msgspec.Raw(item) for item in items]

    async def list(self, *_: object, **__: object) -> Listing[msgspec.Raw]:
        return Listing(items=self.items, resource_version="1")


async def test_a_job_that_cannot_be_read_is_named_and_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    good = msgspec.json.encode(make_job())
    bad = b'{"metadata":{"namespace":"team","name":"odd"},"spec":{"gpu":1,"priority":"high","template":{"spec":{}}}}'
    jobs = await read_jobs(Cluster(client=Shelf(bad, good), namespace="team"))  # type: ignore[arg-type]
    assert len(jobs) == 1
    said = capsys.readouterr().err
    assert "GPUJob team/odd cannot be read and is left out" in said
    assert "$.spec.priority" in said
