"""When the gateway may answer: each kind of object is listed, and no watch has been silent for too long."""

import asyncio

import pytest

from dovetail import names
from dovetail.config.settings import Settings
from dovetail.engine.score.mix_record import EXTENDER_CONFIGMAP, QUEUE_CONFIGMAP
from dovetail.gpu.device_indexes import CONFIGMAP_NAME
from dovetail.kube.errors import Unreachable
from dovetail_gateway.cluster.cache import OLDEST_SECONDS, ClusterCache
from tests.background import eventually
from tests.extender.builders import make_gpunode
from tests.gateway.api_server import GatewayApiServer
from tests.gateway.served import Face
from tests.gateway.test_cluster_machine import make_cache

HEALTH = "/api/v1/gpu/health"
KINDS = 11


def listed_but(missing: int) -> tuple[ClusterCache, str, asyncio.Event]:
    """A cache that has listed all kinds but one: its name, and what says that it is listed."""
    cache = make_cache(Settings())
    every = [(each.resource.plural, each.synced) for each in cache._reflectors]
    every += [("resourceslices", cache._slice_watch.settled), ("nodepools", cache._node_pool_watch.settled)]
    assert len(every) == KINDS, "a new kind"
    for each in cache._reflectors:
        each._contact()
    for _, event in every:
        event.set()
    name, event = every[missing]
    event.clear()
    return cache, name, event


@pytest.mark.parametrize("missing", range(KINDS))
async def test_each_kind_has_to_be_listed_before_there_is_an_answer(missing: int) -> None:
    cache, name, event = listed_but(missing)
    assert cache.obstacle == f"not listed yet: {name}"
    waiting = asyncio.ensure_future(cache.complete())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done()
    event.set()
    await waiting
    assert cache.obstacle == ""


@pytest.mark.parametrize("silent", range(KINDS - 2))
async def test_one_watch_that_is_silent_for_too_long_ends_the_answers(silent: int) -> None:
    cache, _, event = listed_but(0)
    event.set()
    ages = [1.0] * len(cache._reflectors)
    for at, each in enumerate(cache._reflectors):
        # From 0: the time of a machine that has run for long has no exact fractions.
        each._contact_at, each._clock = 0.0, lambda at=at: ages[at]  # type: ignore[misc]
    for ages[silent], obstacle in (
        (OLDEST_SECONDS, ""),
        (OLDEST_SECONDS + 1, "the API server has sent nothing for 301 s, more than 300 s"),
        (2.0, ""),
    ):
        assert (cache.obstacle, cache.age_seconds) == (obstacle, ages[silent])


@pytest.mark.parametrize("failing", range(KINDS - 2))
async def test_one_watch_with_an_error_says_that_the_api_server_is_not_reachable(failing: int) -> None:
    cache, _, _ = listed_but(0)
    assert cache.reachable
    cache._reflectors[failing].last_error = Unreachable("https://api", problem="reset")
    assert not cache.reachable


async def test_health_is_degraded_while_a_watch_fails_and_counts_the_nodes_whose_agents_report(
    api: GatewayApiServer, face: Face
) -> None:
    silent = make_gpunode("c")
    del silent["status"]["observedAt"]
    api.put("gpunodes", silent)
    await eventually(lambda: "c" in face.made.cache.gpunodes)
    face.made.cache._nodes.last_error = Unreachable("https://api", problem="reset")
    found = await face.get(HEALTH)
    assert (found.status, found.json["status"]) == (200, "degraded")
    assert (found.json["checks"]["api_server"], found.json["checks"]["nodes_reporting"]) == (False, 2)


async def test_health_says_why_there_is_no_answer_once_the_api_server_is_silent(face: Face) -> None:
    watch = face.made.cache._quotas
    watch._clock = lambda: (watch._contact_at or 0.0) + OLDEST_SECONDS + 5
    found = await face.get(HEALTH)
    sentence = "the API server has sent nothing for 305 s, more than 300 s"
    assert (found.status, found.json["status"]) == (503, f"unavailable: {sentence}")
    refused = await face.get("/api/v3/jobs", token="red-token")
    assert (refused.status, refused.json["detail"], refused.headers["Retry-After"]) == (
        503,
        f"not ready: {sentence}",
        "1",
    )


def test_of_objects_that_others_have_too_only_ours_are_followed() -> None:
    """The cluster may have tens of thousands of batch Jobs and ConfigMaps that no answer needs."""
    cache = make_cache(Settings())
    followed = (*cache._reflectors, cache._learned)
    found = {(each.resource.plural, each._namespace, *each._selectors.items()) for each in followed}
    configmaps = {
        ("configmaps", "dovetail-system", ("fieldSelector", f"metadata.name={name}"))
        for name in (CONFIGMAP_NAME, QUEUE_CONFIGMAP, EXTENDER_CONFIGMAP, names.ESTIMATES)
    }
    whole = {(kind, None) for kind in ("nodes", "gpunodes", "pods", "gpujobs", "gpuquotas")}
    assert found == {*whole, *configmaps, ("jobs", None, ("labelSelector", names.LABEL_JOB))}
