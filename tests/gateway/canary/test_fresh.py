"""After any field of any object has changed, a gateway that runs answers what one says that begins now.

The changes are drawn from the objects themselves, so a new field of a kind, or a new answer, is compared by itself.
"""

import copy
import itertools
import json
import math
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest

from dovetail.api.builtin import Job, Node, Pod, RoleBinding
from dovetail.api.gpujob import GPUJob
from dovetail.api.gpunode import GPUNode
from dovetail.api.gpuquota import GPUQuota
from dovetail.decoding import UnreadableError, decode
from dovetail_gateway.app import Options
from dovetail_gateway.cluster import answers as cluster_answers
from dovetail_gateway.cluster import prepared
from tests.gateway.canary.expected import differences
from tests.gateway.canary.objects import ONE, SETTINGS
from tests.gateway.canary.rbac import RbacApiServer
from tests.gateway.canary.test_marks import asked
from tests.gateway.openapi import table
from tests.gateway.served import Face, serving

TYPES: Final[dict[str, type[Any]]] = {
    "gpujobs": GPUJob, "pods": Pod, "nodes": Node, "gpunodes": GPUNode, "gpuquotas": GPUQuota, "jobs": Job,
    "rolebindings": RoleBinding,
}  # fmt: skip
TOKENS: Final = ("admin-token", "quokka-token")
_TAKE_LONG: Final = ("/dry-run", "/effects", "/explain", "/moves")
# What no two processes share, and what says nothing of the objects.
_OWN: Final = frozenset({"epoch", "seq", "cacheAgeSeconds"})
# What makes another object, or the age of a report, which counts from when it was seen.
_LEFT: Final = frozenset({"metadata.uid", "metadata.resourceVersion", "metadata.name", "metadata.namespace",
                          "status.observedAt", "apiVersion", "kind"})  # fmt: skip
_ORDERED: Final = frozenset({"items", "jobs", "nodes", "tasks", "devices"})
_NOT_ASKED: Final = ("/stream", "/history", "/logs", "/events", "/health")
# So many changes are one step at most: of one kind, each of another object.
AT_ONCE: Final = 10
# What takes long is asked at the first of so many steps.
LONG_STEPS: Final = 4

Path = tuple[str | int, ...]


def questions() -> list[tuple[str, str, str, dict[str, Any]]]:
    """Who asks what: every route that reads, and of those that take long one of each."""
    found = list[tuple[str, str, str, dict[str, Any]]]()
    for each in table():
        takes_long = each.path.endswith(_TAKE_LONG)
        if (each.method != "GET" and not takes_long) or each.path.endswith(_NOT_ASKED):
            continue
        for token, name in itertools.product(TOKENS[:1] if takes_long else TOKENS, names_of(each.path)):
            options = {} if each.method == "GET" else asked(each, ONE.namespace, name)[0]
            path = each.path.format(namespace=ONE.namespace, name=name, id=name)
            path += f"?jobs={ONE.namespace}/{name}" if path.endswith("/moves") else ""
            found.append((token, each.method, path, options))
    return found


def names_of(path: str) -> tuple[str, ...]:
    if path.endswith(("/explain", "/moves")):
        return ("waits",)
    if path.endswith("/effects") or ("{name}" not in path and "{id}" not in path):
        return ("train",)
    return ("one", "slices") if "/nodes/" in path else ("train", "waits")


class Readers:
    """Both readers of one gateway, who keep what they got and ask only for news, as a page does."""

    def __init__(self, face: Face) -> None:
        self._face = face
        self._kept: dict[str, tuple[str, Any]] = {}

    async def answers(self, *, at: int = 0) -> dict[str, Any]:
        """What they get, without what is a process's own; what takes long is asked in some steps."""
        self._face.made.feed.collect()
        found = dict[str, Any]()
        for token, method, path, options in questions():
            if path.partition("?")[0].endswith(_TAKE_LONG) and at % LONG_STEPS:
                continue
            key = f"{token} {method} {path}"
            tag, kept = self._kept.get(key, ("", None))
            reply = await self._face.ask(
                method, path, token=token, headers={"If-None-Match": tag} if tag else {}, **options
            )
            answer = kept if reply.status == 304 else {"status": reply.status, "answer": _shared(reply.json)}
            if tag := reply.headers.get("ETag", ""):
                self._kept[key] = tag, answer
            found[key] = answer
        return found


def _shared(answer: Any, *, at: str = "items") -> Any:
    """Without what is a process's own; of lists within a row no order is promised."""
    if isinstance(answer, dict):
        return {key: _shared(each, at=key) for key, each in answer.items() if key not in _OWN}
    if not isinstance(answer, list):
        return answer
    items = [_shared(each, at="") for each in answer]
    return items if at in _ORDERED else sorted(items, key=str)


# --- changes -------------------------------------------------------------------------------------------------------


def leaves(value: Any, *, at: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict | list) and value:
        steps = value.items() if isinstance(value, dict) else enumerate(value)
        for step, each in steps:
            yield from leaves(each, at=(*at, step))
    else:
        yield at, value


def pattern(path: Path) -> str:
    """The field, whichever item of a list it is of."""
    return ".".join("*" if isinstance(step, int) else step for step in path)


def fields(api: RbacApiServer) -> dict[tuple[str, str], list[tuple[str, Path, Any]]]:
    """Every field of every kind, with the objects that have it."""
    found: dict[tuple[str, str], list[tuple[str, Path, Any]]] = {}
    for kind in TYPES:
        for key, each in api.objects[kind].items():
            for path, value in leaves(each):
                if "broken" not in key and pattern(path) not in _LEFT:
                    found.setdefault((kind, pattern(path)), []).append((key, path, value))
    return found


def another(value: Any, *, others: list[Any], rng: random.Random) -> Any:
    """Another value of the field: that of another object, if there is one."""
    if different := [each for each in others if each != value and type(each) is type(value)]:
        return rng.choice(different)
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1 if value >= 1 else value + 0.25
    if isinstance(value, str):
        is_time, is_amount = value.startswith("2026-"), value[:1].isdigit()
        return f"2025-{value[5:]}" if is_time else f"2{value}" if is_amount else f"{value}2"
    return value


def changed(api: RbacApiServer, kind: str, key: str, *, path: Path, value: Any) -> bool:
    """Put the object with the field changed; False where it could not be read then."""
    made = copy.deepcopy(api.objects[kind][key])
    holder: Any = made
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    try:
        decode(json.dumps(made), as_type=TYPES[kind])
    except UnreadableError:
        return False
    api.put(kind, made)
    return True


def steps(api: RbacApiServer, *, rng: random.Random) -> Iterator[list[str]]:
    """Change each field of each kind once, and take an object of each kind away; what a step has changed."""
    found = fields(api)
    for kind in TYPES:
        for key in sorted(api.objects[kind])[:1]:
            gone = copy.deepcopy(api.objects[kind][key])
            api.delete(kind, key)
            yield [f"{kind} {key} is gone"]
            api.put(kind, gone)
    for kind in TYPES:
        left = sorted(name for each, name in found if each == kind)
        rng.shuffle(left)
        while left:
            now, objects = list[str](), set[str]()
            for name in list(left):
                places = [each for each in found[kind, name] if each[0] not in objects]
                if not places or len(now) == AT_ONCE:
                    continue
                left.remove(name)
                key, path, value = rng.choice(places)
                new = another(value, others=[each for _, _, each in found[kind, name]], rng=rng)
                if new != value and changed(api, kind, key, path=path, value=new):
                    objects.add(key)
                    now.append(f"{kind} {key} {name}: {value!r} is {new!r}")
            if now:
                yield now


@pytest.mark.parametrize("seed", [1])
async def test_a_running_gateway_answers_like_one_that_begins_now(
    cluster: RbacApiServer, face: Face, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Answers that may be of some seconds ago.
    monkeypatch.setattr(prepared, "CHEAP_SECONDS", math.inf)
    monkeypatch.setattr(cluster_answers, "_FINDINGS_SECONDS", 0.0)
    options = Options(rates=None, allocation_namespace=ONE.namespace)
    readers = Readers(face)
    await readers.answers()
    wrong = list[str]()
    for at, step in enumerate(steps(cluster, rng=random.Random(seed))):
        await face.until_like(cluster)
        have = await readers.answers(at=at)
        async with serving(cluster, options=options, settings=SETTINGS, wait_seconds=0.1) as fresh:
            await fresh.until_like(cluster)
            want = await Readers(fresh).answers(at=at)
        if found := differences(have, want, at=""):
            wrong += ["; ".join(step), *found[:8]]
    assert not wrong, "\n".join(wrong)
