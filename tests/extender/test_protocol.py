"""Bodies that are not what kube-scheduler sends: each is a 400 with a sentence, and the extender goes on."""

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from dovetail import names
from dovetail_extender.protocol import WireError, read_binding_args, read_filter_args
from tests.extender.builders import asking, binding, make_pod
from tests.extender.harness import Face

BAD_BODIES = {
    "nothing": (b"", "the body cannot be read"),
    "half a body": (b'{"Pod": {"metadata"', "the body cannot be read"),
    "no JSON": (b"\xff\xfe", "the body cannot be read"),
    "a list": (b"[]", "Expected `object`, got `array`"),
    "no pod": (b'{"Pod": null, "NodeNames": ["a"]}', "Pod is missing"),
    "a pod without a UID": (b'{"Pod": {"metadata": {}}, "NodeNames": ["a"]}', "Pod.metadata.uid is missing"),
    "full nodes": (b'{"Pod": {}, "Nodes": {"items": []}, "NodeNames": null}', "needs nodeCacheCapable: true"),
    "no nodes at all": (b'{"Pod": {}}', "NodeNames is null and so is Nodes"),
    "names that are numbers": (b'{"Pod": {}, "NodeNames": [1]}', "$.NodeNames[0]"),
    "a depth without end": (b'{"Pod": {"x": ' + b"[" * 100_000, "nested too deeply"),
    "a field of another type": (b'{"Pod": {"spec": {"containers": "x"}}, "NodeNames": []}', "$.Pod.spec.containers"),
}


@pytest.mark.parametrize(("body", "said"), BAD_BODIES.values(), ids=BAD_BODIES.keys())
@pytest.mark.parametrize("verb", ["filter", "prioritize"])
async def test_a_bad_body_is_400_with_a_sentence(face: Face, verb: str, body: bytes, said: str) -> None:
    status, text = await face.ask(verb, body)
    assert status == 400
    assert said in text
    assert text.count("\n") == 1


async def test_a_bad_bind_is_400_with_a_sentence(face: Face) -> None:
    status, text = await face.ask("bind", {"PodName": "p", "PodNamespace": "n", "PodUID": "", "Node": "a"})
    assert (status, text) == (400, "the body cannot be read: PodUID is empty\n")


async def test_a_bad_body_is_counted_and_the_next_good_one_answered(face: Face) -> None:
    await face.ask("filter", b"{")
    assert (await face.filter(make_pod(), "a"))["NodeNames"] == ["a"]
    bad = face.extender.metrics.registry.get_sample_value("dovetail_extender_bad_requests_total", {"verb": "filter"})
    assert bad == 1


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_body_crashes_the_reader(body: bytes) -> None:
    for read in (read_filter_args, read_binding_args):
        with pytest.raises(WireError):
            read(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(["metadata", "spec", "status"]), st.sampled_from(["annotations", "containers", "uid"]), JSON)
def test_no_pod_crashes_the_reader(part: str, name: str, value: object) -> None:
    pod = make_pod()
    pod[part] = {**pod[part], name: value}
    try:
        args = read_filter_args(msgspec.json.encode(asking(pod, "a")))
    except WireError:
        return
    assert args.nodes == ["a"]


def test_a_whole_request_is_read() -> None:
    args = read_filter_args(msgspec.json.encode(asking(make_pod("p", "2", milli=2000), "a", "b")))
    assert (args.pod.metadata.name, args.nodes) == ("p", ["a", "b"])
    bind = read_binding_args(msgspec.json.encode(binding(make_pod("p"), "a")))
    assert (bind.pod_namespace, bind.pod_name, bind.pod_uid, bind.node) == ("default", "p", "uid-p", "a")


@pytest.mark.parametrize("verb", ["filter", "prioritize", "preempt"])
@pytest.mark.parametrize(("part", "amount"), [("containers", "-5"), ("containers", -0.5), ("initContainers", " -1k")])
async def test_a_negative_amount_is_400_with_a_sentence(face: Face, verb: str, part: str, amount: object) -> None:
    pod = make_pod("x", "1")
    containers = [{"name": "main", "resources": {"requests": {names.GPU_MILLI: amount}}}]
    pod["spec"] |= {"containers": [], part: containers}
    status, answer = await face.ask(verb, {"Pod": pod, "NodeNames": ["n"], "NodeNameToMetaVictims": {}})
    assert status == 400
    assert "an amount is 0 or more" in str(answer)
