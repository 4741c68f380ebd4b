"""Objects that an API server takes from anybody and that a reader is easily ended by: hypothesis strategies.

They go through a Reflector as bytes, as they come over the wire. Metadata that the API server checks (names, labels,
UIDs) is valid; all else is free text.
"""

import itertools
import json
from typing import Any, Final

from hypothesis import strategies as st

from dovetail import names
from dovetail.kube.reflector import Reflector

# Beyond Python's stack (1,000 levels), and just below the 10,000 levels of the API server.
MIN_LEVELS: Final = 900
MAX_LEVELS: Final = 9_999
MOST_DIGITS: Final = 300_000
MOST_BYTES: Final = 3 << 19
# Annotations of pods, batch Jobs and GPUJobs that some part of Dovetail reads.
FREE_TEXTS: Final = (
    names.REQUEST, names.MODE, names.POLICY, names.MEMORY_STRATEGY, names.WORKLOAD, names.PRIORITY, names.USER,
    names.ALLOCATION, names.VISIBLE_DEVICES, names.MPS_PERCENTAGE, names.MPS_MEMORY, names.TERM, names.ATTEMPT,
    names.TEMPLATE, names.HOSTFILE, names.PARAMETERS, names.HELD_WITH, names.AS_ARRAY_SAYS, names.DEVICE,
    names.HANDED_TO, names.MEMORY_ESTIMATE, names.PLAN, names.COMPLETION_INDEX, names.PREEMPTING_AT, names.GPU_RESOURCE,
    names.RUN_SECONDS, names.EXIT_CODE, names.per_container(names.VISIBLE_DEVICES, index=0),
)  # fmt: skip
LABELS: Final = (
    names.LABEL_JOB, names.LABEL_JOB_NUMBER, names.LABEL_RESERVATION, names.LABEL_ARRAY, names.LABEL_TASK,
    names.LABEL_PROJECT, names.LABEL_CONFIG, names.LABEL_POOL, names.LABEL_MODEL,
)  # fmt: skip
# Where `text_of` puts a value that json.dumps, which recurses, could not write.
_MARK: Final = "THE DEEP VALUE"
_versions: Final = itertools.count(1)


def nested(levels: int, *, key: str = "x") -> str:
    """An object in an object, that many levels deep."""
    return f'{{"{key}":' * levels + "1" + "}" * levels


def listed(levels: int) -> str:
    """A list in a list, that many levels deep."""
    return "[" * levels + "]" * levels


_LEVELS = st.integers(MIN_LEVELS, MAX_LEVELS)
_DIGITS = st.integers(1, MOST_DIGITS).map(lambda count: "9" * count) | st.sampled_from(["9" * 19, "9" * 4_301])
_DEEP = st.one_of(
    _LEVELS.map(nested),
    _LEVELS.map(listed),
    st.tuples(_LEVELS, st.sampled_from(["job", "node", "nodes", "containers", "factors"])).map(
        lambda drawn: f'{{"{drawn[1]}":{listed(drawn[0])}}}'
    ),
)
_NUMBERS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-", "+", "1e", "0.", "0x", " "]),
    _DIGITS,
    st.sampled_from(["", "M", "Gi", "*2", ".5"]),
)
_ODD = st.one_of(
    st.text(alphabet=st.sampled_from('\x00\u202e\u200b\ufffd\U0001f4a3٣²½a1/,:*{}[]"\\\n '), max_size=40),
    st.text(max_size=40),
    st.sampled_from(
        ["", "a/b", "/", "a/b/c", "null", "[]", "{}", '"x"', "true", "NaN", "Infinity", "1e999", "-0", "²", "٣"]
    ),
)
_LONG = st.integers(1, MOST_BYTES).map(lambda size: "x" * size)
_DEVICE = '{"uuid":"a-0","index":0,"shareMilli":1000,"memoryMiB":1}'
# What is nearly an allocation, a plan, or what a promise of memory rests on; `?` is anything.
_NEARLY = st.builds(
    lambda template, value: template.replace("?", value),
    st.sampled_from(
        [
            '{"node":"a","mode":"Fractional","containers":[{"index":?,"devices":[DEVICE]}],"version":1}',
            '{"node":"/","mode":"Exclusive","containers":[{"index":0,"devices":[DEVICE,?]}],"version":1}',
            '{"node":"a","mode":"TimeShared","containers":[],"guardFraction":?,"version":1}',
            '{"node":"a","mode":"Exclusive","containers":[],"version":?}',
            '{"job":"uid","generation":?,"nodes":["a"]}',
            '{"job":"uid","generation":1,"nodes":[?]}',
            '{"strategy":"Adaptive","estimateMiB":?}',
        ]
    ).map(lambda template: template.replace("DEVICE", _DEVICE)),
    st.one_of(st.sampled_from(["1", "-1", "null", '"a/b"', "1e999", "0.5", "9" * 400]), _DIGITS, _DEEP),
)
texts = st.one_of(_DEEP, _NUMBERS, _ODD, _NEARLY, _LONG)
_MIB = st.integers(0, 2**31)
_label_values = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z|\A\Z") | st.just("9" * 63)
# The API server refuses what is below zero, and caps what is above 2^63 - 1.
_quantities = st.sampled_from(
    ["0", "1", "1e3", "1.5Gi", "9" * 18, "9223372036854775000", "9223372036854775807", "100m", "0.000000001"]
)


@st.composite
def metadata(draw: st.DrawFn, *, name: str = "mallory", namespace: str = "evil") -> dict[str, Any]:
    """Valid names; everything else as its author likes."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "annotations": draw(st.dictionaries(st.sampled_from(FREE_TEXTS), texts, min_size=1, max_size=3)),
        "labels": draw(st.dictionaries(st.sampled_from(LABELS), _label_values, max_size=3)),
    }
    if draw(st.booleans()):
        controller = {"apiVersion": "batch/v1", "kind": "Job", "name": draw(_ODD), "uid": "uid-job", "controller": True}
        meta["ownerReferences"] = [controller]
    if draw(st.booleans()):
        meta["managedFields"] = [{"manager": "m", "fieldsV1": _MARK}]
    return meta


@st.composite
def pods(draw: st.DrawFn, *, node: str = "a") -> bytes:
    """A pod, bound or not."""
    amounts = st.dictionaries(
        st.sampled_from([names.GPU_MILLI, names.GPU_MEMORY_MIB, names.GPU_TURN, "nvidia.com/gpu", "cpu", "memory"]),
        _quantities,
        max_size=3,
    )
    container = {"name": "main", "image": "x", "resources": {"limits": draw(amounts), "requests": draw(amounts)}}
    status = {"phase": draw(st.sampled_from(["Pending", "Running", "Failed"])), "message": draw(_ODD)}
    spec = {"nodeName": draw(st.sampled_from([node, ""])), "schedulerName": "dovetail", "containers": [container]}
    return text_of({"metadata": draw(metadata()), "spec": spec, "status": status}, deep=draw(_DEEP))


@st.composite
def gpujobs(draw: st.DrawFn) -> bytes:
    """A GPUJob whose template, where no schema looks, is anything."""
    template = draw(st.sampled_from([_MARK, {"containers": [{"name": "main", "image": "x", "args": _MARK}]}]))
    spec = {"gpu": draw(_ODD | _NUMBERS), "template": {"spec": template}}
    return text_of({"metadata": draw(metadata()), "spec": spec}, deep=draw(_DEEP | texts.map(json.dumps)))


@st.composite
def jobs(draw: st.DrawFn) -> bytes:
    """A batch Job that says it is a GPUJob's."""
    meta = draw(metadata())
    meta["labels"][names.LABEL_JOB] = draw(_label_values)
    return text_of({"metadata": meta, "spec": {"suspend": True}, "status": {"active": 1}}, deep=draw(_DEEP))


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """An event that says that pods cannot be made."""
    about = {"kind": "Job", "namespace": "evil", "name": draw(_ODD), "uid": draw(_ODD)}
    value = {"metadata": draw(metadata()), "reason": "FailedCreate", "message": draw(texts), "involvedObject": about}
    return text_of(value, deep=draw(_DEEP))


@st.composite
def gpunodes(draw: st.DrawFn, *, node: str = "a") -> bytes:
    """A report of an agent whose token was stolen."""
    device = {
        "index": 0,
        "uuid": "a-0",
        "vendor": "nvidia",
        "model": draw(_ODD),
        "memoryMiB": draw(st.integers(0, 2**31)),
    }
    overuse = {
        "namespace": "evil", "name": draw(_ODD), "uid": draw(_ODD), "device": "a-0", "index": draw(_MIB),
        "promisedMiB": 1, "usedMiB": 2, "since": draw(_ODD), "evict": True,
    }  # fmt: skip
    assignment = {"namespace": "evil", "name": "x", "uid": draw(_ODD), "devices": [draw(_ODD)]}
    status = {
        "devices": [device], "overuses": [overuse], "assignments": [assignment],
        "observedAt": draw(_ODD | st.just("2100-01-01T00:00:00Z")),
    }  # fmt: skip
    return text_of({"metadata": {"name": node, "uid": "gpunode-a"}, "status": status}, deep="1")


def text_of(value: dict[str, Any], *, deep: str = "1") -> bytes:
    """The object as the API server sends it, with a resourceVersion of its own."""
    value["metadata"]["resourceVersion"] = str(next(_versions))
    return json.dumps(value).replace(f'"{_MARK}"', deep).encode()


def feed(reflector: Reflector[Any], text: bytes, *, event: str = "MODIFIED") -> None:
    """What the reflector does with one line of its watch."""
    reflector._handle(b'{"type":"' + event.encode() + b'","object":' + text + b"}")


def unhandled(reflector: Reflector[Any]) -> list[str]:
    """The objects at which a handler failed; those that cannot be read are not among them."""
    return [found.problem for found in reflector.unreadable.values() if not found.problem.startswith("cannot be read")]
