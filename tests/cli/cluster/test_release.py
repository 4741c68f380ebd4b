"""Where the release is: as its PriorityClass says, which every user may read."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail_cli.cluster import audit, scheduler_health
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.cluster.release import release_namespace
from tests.core.kube.api import Answer, Api, refusal

CLASS = "GET /apis/scheduling.k8s.io/v1/priorityclasses/dovetail-gpujob"
NOWHERE = {"metadata": {"name": "dovetail-gpujob"}}
ELSEWHERE = {"metadata": {"name": "dovetail-gpujob", "annotations": {"dovetail.dev/release-namespace": "gpus"}}}


@pytest.fixture
async def cluster(scripted: Api) -> AsyncIterator[Cluster]:
    async with Client(Connection(server=scripted.url)) as client:
        yield Cluster(client=client, namespace="default")


@pytest.mark.parametrize(
    ("answer", "namespace"),
    [
        (Answer(body=ELSEWHERE), "gpus"),
        (Answer(body=NOWHERE), "dovetail-system"),
        (refusal(403), "dovetail-system"),
        (refusal(404), "dovetail-system"),
    ],
)
async def test_the_class_names_the_namespace(scripted: Api, cluster: Cluster, answer: Answer, namespace: str) -> None:
    scripted.answer(CLASS, answer)
    assert await release_namespace(cluster) == namespace


async def test_commands_read_the_release_where_it_is(scripted: Api, cluster: Cluster) -> None:
    lease: dict[str, Any] = {"metadata": {"name": "dovetail-scheduler"}, "spec": {"holderIdentity": "x"}}
    scripted.answer(CLASS, Answer(body=ELSEWHERE), Answer(body=ELSEWHERE))
    scripted.answer("GET /apis/coordination.k8s.io/v1/namespaces/gpus/leases/dovetail-scheduler", Answer(body=lease))
    assert "Unknown" not in await scheduler_health.scheduler_status(cluster)
    config = {"metadata": {"name": "dovetail-config"}, "data": {"gpu_config.yaml": "tenants_per_device: 9\n"}}
    scripted.answer("GET /api/v1/namespaces/gpus/configmaps/dovetail-config", Answer(body=config))
    assert (await audit._rules(cluster)).turns_per_device == 9
