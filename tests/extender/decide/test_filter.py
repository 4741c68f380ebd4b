"""Filter over HTTP, against a real ledger that is fed by watching."""

import msgspec

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.engine.model.ranking import Ranking, Rankings
from dovetail.engine.model.settings import Limits, Weights
from dovetail_extender.decide.filter_score import Rules
from dovetail_extender.service import Options
from tests.background import eventually
from tests.extender.api_server import ApiServer
from tests.extender.builders import make_gpunode, make_node, make_pod, make_share
from tests.extender.harness import Face, watching

SOFT_NODE = {
    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]},
}


async def add_nodes(api: ApiServer, face: Face, *nodes: str, gpus: int = 8, model: str = "V100") -> None:
    for name in nodes:
        api.put("nodes", make_node(name))
        api.put("gpunodes", make_gpunode(name, gpus=gpus, model=model))
    await eventually(lambda: all(face.ledger.devices(name) for name in nodes))
    await eventually(lambda: set(nodes) <= set(face.ledger.nodes()))


async def test_nodes_that_fit_are_named_and_the_answer_has_gos_field_names(face: Face) -> None:
    assert await face.filter(make_pod(), "a", "b") == {
        "Nodes": None,
        "NodeNames": ["a", "b"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }


async def test_pack_names_the_first_of_equal_nodes_alone_whatever_the_order_of_the_question(face: Face) -> None:
    pod = make_pod()
    pod["metadata"]["annotations"][names.POLICY] = "Pack"
    for asked in (("a", "b"), ("b", "a")):
        assert (await face.filter(pod, *asked))["NodeNames"] == ["a"]


async def test_filter_may_be_asked_with_one_node(face: Face) -> None:
    assert (await face.filter(make_pod(), "b"))["NodeNames"] == ["b"]


async def test_filter_holds_nothing_where_scores_are_still_to_be_asked(face: Face) -> None:
    before = face.ledger.totals()
    assert len((await face.filter(make_pod(), "a", "b"))["NodeNames"]) == 2
    assert face.ledger.totals() == before


async def test_filter_holds_the_one_node_that_is_left_for_nobody_asks_its_score(api: ApiServer, face: Face) -> None:
    started = make_share("started", 500)
    api.put("pods", started)
    assert await face.bind(started, "b") == ""
    pod = make_share("next", 500)
    api.put("pods", pod)
    await face.sees("default/next")
    for _ in range(2):
        assert (await face.filter(pod, "a", "b"))["NodeNames"] == ["b"], "to ask again changes nothing"
        held = face.ledger.claim("uid-next")
        assert held is not None
        assert held.node == "b"
        assert face.ledger.is_hold("uid-next")
    assert face.ledger.totals().holds == 1
    assert (await face.filter(make_share("third", 500), "b"))["NodeNames"] == ["b"]
    assert await face.bind(pod, "b") == ""


async def test_a_wrong_model_cannot_be_mended_by_preemption(face: Face) -> None:
    answer = await face.filter(make_pod(gpu="1(A100)"), "a", "b")
    assert answer["NodeNames"] is None
    assert answer["FailedNodes"] == {}
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys("ab", "no GPU of model A100")


async def test_busy_devices_may_be_freed_by_preemption(api: ApiServer, face: Face) -> None:
    pod = make_pod("first", "8", milli=8000)
    api.put("pods", pod)
    assert await face.bind(pod, "a") == ""
    second = make_pod("second", "8", milli=8000)
    assert (await face.filter(second, "a"))["FailedNodes"] == {"a": "need 8 GPUs free, too many are busy"}
    assert (await face.filter(second, "a", "b"))["NodeNames"] == ["b"]


async def test_while_a_node_fits_the_others_need_no_reason(face: Face) -> None:
    answer = await face.filter(make_pod(), "a", "elsewhere")
    assert answer["NodeNames"] == ["a"]
    assert answer["FailedAndUnresolvableNodes"] == {}


async def test_a_node_that_is_not_known_gets_a_reason(face: Face) -> None:
    answer = await face.filter(make_pod(), "elsewhere")
    assert answer["NodeNames"] is None
    assert answer["FailedAndUnresolvableNodes"] == {"elsewhere": "node is not known yet"}


async def test_a_request_that_its_resources_contradict_fits_nowhere_and_says_why(face: Face) -> None:
    answer = await face.filter(make_pod(gpu="2", milli=1000), "a", "b")
    assert answer["NodeNames"] is None
    sentence = answer["FailedAndUnresolvableNodes"]["a"]
    assert "the request needs dovetail.dev/gpu-milli: 2000" in sentence
    assert answer["FailedAndUnresolvableNodes"] == dict.fromkeys("ab", sentence)


async def test_a_request_that_cannot_be_read_fits_nowhere_and_says_where(face: Face) -> None:
    answer = await face.filter(make_pod(gpu="8X,0.5"), "a")
    assert 'unknown memory unit "X"' in answer["FailedAndUnresolvableNodes"]["a"]


async def test_an_amount_that_is_no_quantity_fits_nowhere(face: Face) -> None:
    answer = await face.filter(make_pod(limits={names.GPU_MILLI: "much"}), "a")
    assert "no quantity" in answer["FailedAndUnresolvableNodes"]["a"]


async def test_an_init_container_that_no_annotation_names_is_refused(face: Face) -> None:
    init = {"name": "init", "resources": {"limits": {names.GPU_MILLI: "1000"}}}
    answer = await face.filter(make_pod(initContainers=[init]), "a")
    assert 'container "init": it asks for GPUs' in answer["FailedAndUnresolvableNodes"]["a"]


async def test_a_container_beside_the_one_that_asks_needs_an_annotation_of_its_own(face: Face) -> None:
    both = [{"name": name, "resources": {"limits": {names.GPU_MILLI: "1000"}}} for name in "xy"]
    answer = await face.filter(make_pod(gpu="1", containers=both), "a")
    assert 'container "y": it asks for GPUs, but no annotation says what' in answer["FailedAndUnresolvableNodes"]["a"]


async def test_a_pod_that_asks_nothing_of_ours_may_go_anywhere(face: Face) -> None:
    pod = make_pod(limits={"cpu": "1"})
    assert (await face.filter(pod, "a", "unknown"))["NodeNames"] == ["a", "unknown"]


async def test_at_most_the_best_few_are_named(api: ApiServer, face: Face) -> None:
    nodes = [f"n{at}" for at in range(80)]
    await add_nodes(api, face, *nodes)
    answer = await face.filter(make_share("next", 500), *nodes)
    assert len(answer["NodeNames"]) == 64
    assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}


async def test_a_node_that_nothing_of_kube_schedulers_could_lift_to_the_best_is_left_out(
    api: ApiServer, face: Face
) -> None:
    nodes = [f"n{at}" for at in range(80)]
    await add_nodes(api, face, *nodes)
    started = make_share("started", 500)
    api.put("pods", started)
    assert await face.bind(started, "n79") == ""
    answer = await face.filter(make_share("next", 500), *nodes)
    assert answer["NodeNames"] == ["n79"], "a share goes where a device is started, whatever the others' images"
    assert answer["FailedNodes"] == answer["FailedAndUnresolvableNodes"] == {}


async def test_all_are_named_when_the_pod_prefers_nodes(api: ApiServer, face: Face) -> None:
    nodes = [f"n{at}" for at in range(80)]
    await add_nodes(api, face, *nodes)
    assert len((await face.filter(make_pod(affinity=SOFT_NODE), *nodes))["NodeNames"]) == 80


async def test_all_are_named_when_the_pod_would_like_to_be_spread(api: ApiServer, face: Face) -> None:
    nodes = [f"n{at}" for at in range(80)]
    await add_nodes(api, face, *nodes)
    wish = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    assert len((await face.filter(make_pod(topologySpreadConstraints=[wish]), *nodes))["NodeNames"]) == 80
    must = wish | {"whenUnsatisfiable": "DoNotSchedule"}
    assert len((await face.filter(make_pod(topologySpreadConstraints=[must]), *nodes))["NodeNames"]) == 64


async def test_a_cordoned_device_takes_nothing(api: ApiServer, face: Face) -> None:
    api.put("gpunodes", make_gpunode("a", gpus=1) | {"spec": {"cordoned": ["a-0"]}})
    await eventually(lambda: len(face.ledger.devices("a")) == 1)
    assert (await face.filter(make_pod(), "a"))["FailedAndUnresolvableNodes"] == {"a": "fewer than 1 GPU not cordoned"}


async def test_a_node_that_is_not_ready_takes_nothing(api: ApiServer, face: Face) -> None:
    api.put("nodes", make_node("a", conditions=[{"type": "Ready", "status": "Unknown"}]))
    await eventually(lambda: face.ledger.obstacle("a") != "")
    assert (await face.filter(make_pod(), "a"))["FailedAndUnresolvableNodes"] == {"a": "node is not ready"}


async def test_nothing_is_answered_before_the_caches_are_there(api: ApiServer) -> None:
    api.listing.clear()
    async with watching(api) as face:
        await eventually(lambda: "listed" in face.extender.obstacle())
        for verb in ("filter", "prioritize", "bind"):
            status, text = await face.ask(verb, {})
            assert status == 503
            assert (
                "nodes, gpunodes, pods, gpujobs, gpuquotas, poddisruptionbudgets, resourceslices are not listed yet"
                in text
            )
        api.listing.set()
        await face.ready()
        assert (await face.filter(make_pod(), "a"))["NodeNames"] == ["a"]


async def test_filter_answers_from_the_cache_while_the_api_server_is_silent(api: ApiServer, face: Face) -> None:
    api.answering.clear()
    assert (await face.filter(make_pod(), "a", "b"))["NodeNames"] == ["a", "b"]


async def test_what_was_measured_too_long_ago_does_not_keep_a_pod_off(api: ApiServer, face: Face) -> None:
    api.put("nodes", make_node("s"))
    api.put("gpunodes", make_gpunode("s", gpus=1, foreignMiB=30000))
    await eventually(lambda: bool(face.ledger.devices("s")))
    pod = make_pod(gpu="0.5", milli=500)
    assert (await face.filter(pod, "s"))["NodeNames"] is None
    face.clock.now += 700
    await face.chores()
    assert (await face.filter(pod, "s"))["NodeNames"] == ["s"]


async def test_an_extender_that_starts_has_learned_from_the_pods_that_are_bound(api: ApiServer) -> None:
    for number in range(3):
        api.put("pods", make_share(f"bound-{number}", 500, nodeName="a"))
    api.put("pods", make_share("waiting", 300))
    async with watching(api) as face:
        await face.ready()
        await eventually(lambda: face.extender._decisions.fragments.measure().arrivals == 3)
        await face.filter(make_share("bound-1", 500), "a")
        assert face.extender._decisions.fragments.measure().arrivals == 3


async def test_a_new_configuration_counts_for_pods_that_were_asked_before(face: Face) -> None:
    decisions, pod = face.extender._decisions, msgspec.convert(make_pod(), Pod)
    pod = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, resource_version="1"))
    before = decisions.ask(pod)
    face.extender.configure(
        Options(
            rules=Rules(rankings=Rankings(by_namespace={"default": Ranking(policy="Pack", weights=Weights(cpu=9))})),
            limits=Limits(training_per_device=3, inference_per_device=5),
        )
    )
    after = decisions.ask(pod)
    assert before is not None
    assert after is not None
    assert (before.policy, after.policy) == ("Balanced", "Pack")
    limits = face.ledger.limits
    assert (limits.training_per_device, limits.inference_per_device, after.weights.cpu) == (3, 5, 9)
