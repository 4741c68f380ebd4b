"""A running extender beside one that starts now, which lists the same objects: both know the same.

Nodes, pods, GPUJobs and quotas come, change, are replaced under their names and go, in any order. Objects of two
namespaces have the same names. When every object is deleted, nothing is kept of them.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import hypothesis.strategies as st
import msgspec
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dovetail import names
from dovetail.api.builtin import Pod
from dovetail.api.meta import ObjectMeta
from dovetail.engine.model.claims import Ask
from dovetail.kube.auth.connection import Connection
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.kube.reflector import Reflector
from dovetail_extender.service import Extender, Options
from tests.clock import Clock
from tests.extender.builders import make_bound, make_gpunode, make_node, make_pod
from tests.extender.holds.test_planned_workers import make_job, make_worker
from tests.world.tables import Table, tables

# More devices than all that is drawn takes, so that no order of events decides who gets a hold.
GPUS: Final = 40
NODES: Final = ("a", "b")
NAMESPACES: Final = ("one", "two")
JOBS: Final = ("train", "tune")
QUOTAS: Final = ("p", "q")
# After this time, what pods have left on reserved nodes is no longer kept for them.
LOOKED_AT_SECONDS: Final = 6.0
# Whose tables are compared, and empty in the end.
PARTS: Final[dict[str, Callable[[Extender], object]]] = {
    "plans": lambda extender: extender.plans,
    "nominations": lambda extender: extender.nominations,
    "quotas": lambda extender: extender.quotas,
    "tenancies": lambda extender: extender._decisions.tenancies,
    "waiting": lambda extender: extender._waiting,
}

_QUOTAS: Final[tuple[dict[str, Any], ...]] = (
    {"namespaces": ["one"], "limit": {"gpus": 3}},
    {"namespaces": ["one", "two"], "limit": {"gpus": 4}},
    {"per": "Namespace", "limit": {"gpus": 2}, "maxPriority": 5},
    {"maxPriority": 30},
    {"namespaces": ["two"], "pools": ["fast"]},
    {"users": ["ada"], "limit": {"gpus": 1}, "maxPriority": 20},
    {},
)


def make_extender(clock: Clock) -> Extender:
    """An extender whose informers are fed by hand."""
    client = Client(Connection(server="http://127.0.0.1:9"))
    leadership = Leadership(client, namespace="dovetail-system", name=names.EXTENDER_LEASE, identity="one")
    return Extender(client, options=Options(), leadership=leadership, clock=clock)


def reflectors(extender: Extender) -> dict[str, Reflector[Any]]:
    """Its informers, by plural."""
    return {each.resource.plural: each for each in extender.watching._reflectors}


class ExtenderMachine(RuleBasedStateMachine):
    """Objects beside an extender that sees each of their changes once."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.live = make_extender(self.clock)
        self.objects: dict[str, dict[str, dict[str, Any]]] = {plural: {} for plural in reflectors(self.live)}
        self.count = 0

    @initialize()
    def begin(self) -> None:
        """The nodes are there."""
        for name in NODES:
            self.node_comes(name)

    # --- changes -----------------------------------------------------------------------------------------------

    def put(self, plural: str, made: dict[str, Any]) -> None:
        """The object is there or has changed; one with another UID has replaced the one of its name."""
        self.count += 1
        meta = made["metadata"] | {"resourceVersion": str(self.count)}
        seen = made | {"metadata": meta}
        self.objects[plural][_key(meta)] = seen
        feed(self.live, plural, seen)

    def drop(self, plural: str, key: str) -> None:
        gone = self.objects[plural].pop(key, None)
        if gone is not None:
            self.count += 1
            meta = gone["metadata"] | {"resourceVersion": str(self.count)}
            reflectors(self.live)[plural]._drop(msgspec.convert(meta, ObjectMeta))

    @rule(name=st.sampled_from(NODES), pool=st.sampled_from(["", "fast"]))
    def node_comes(self, name: str, pool: str = "") -> None:
        node = make_node(name)
        node["metadata"]["labels"] |= {names.LABEL_POOL: pool} if pool else {}
        self.put("nodes", node)
        self.put("gpunodes", make_gpunode(name, gpus=GPUS))

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.drop("gpunodes", name)
        self.drop("nodes", name)

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        name=st.sampled_from(JOBS),
        change=st.sampled_from(["plan", "next plan", "no plan", "release", "wait", "wait elsewhere", "rank"]),
        on=st.lists(st.sampled_from(NODES), min_size=1, max_size=2),
        replaced=st.sampled_from([False, False, False, True]),
    )
    def job_changes(self, namespace: str, name: str, change: str, on: list[str], replaced: bool) -> None:
        known = self.objects["gpujobs"].get(f"{namespace}/{name}")
        uid = known["metadata"]["uid"] if known is not None and not replaced else f"job-{self.count}"
        status: dict[str, Any] = dict(known["status"]) if known is not None and not replaced else {"plans": 0}
        spec: dict[str, Any] = dict(known.get("spec", {})) if known is not None and not replaced else {}
        match change:
            case "plan" | "next plan":
                plans = status["plans"] + (change == "next plan" or not status["plans"])
                status = make_job(*((node, 1) for node in on), gpu="1", generation=plans)["status"]
            case "no plan":
                status.pop("placement", None)
            case "release" if "placement" in status:
                status["placement"] = status["placement"] | {"released": [0]}
            case "wait" | "wait elsewhere":
                nodes = [{"name": node, "workers": 1} for node in dict.fromkeys(on)]
                kept = [{"name": node["name"], "keeps": ["1"]} for node in nodes] if change == "wait" else []
                reserved = {"time": f"2026-01-01T00:00:{self.count % 60:02}Z", "nodes": nodes, "kept": kept}
                status["queue"] = {"position": 1, "reserved": reserved}
            case "rank":
                spec = {"priority": 10 * len(on)} | ({"reservation": {}} if on[0] == "a" else {})
                status.pop("queue", None)
        self.put(
            "gpujobs", {"metadata": {"name": name, "namespace": namespace, "uid": uid}, "spec": spec, "status": status}
        )

    @rule(namespace=st.sampled_from(NAMESPACES), name=st.sampled_from(JOBS))
    def job_goes(self, namespace: str, name: str) -> None:
        self.drop("gpujobs", f"{namespace}/{name}")

    @rule(
        namespace=st.sampled_from(NAMESPACES),
        job=st.sampled_from(["", *JOBS]),
        worker=st.integers(0, 1),
        late=st.booleans(),
        node=st.sampled_from(["", *NODES]),
        nominated=st.sampled_from(["", *NODES]),
    )
    def pod_comes(self, namespace: str, job: str, worker: int, late: bool, node: str, nominated: str) -> None:
        """A pod of nobody's plan or a worker, also one of a plan before or that is not seen yet."""
        self.count += 1
        owner = self.objects["gpujobs"].get(f"{namespace}/{job}")
        name = f"pod-{self.count % 4}"
        if job:
            pod = make_worker(worker, job=job, gpu="1", uid=f"-{self.count}")
            said: dict[str, Any] = {"job": owner["metadata"]["uid"] if owner else "job-?", "generation": 1, "nodes": []}
            if owner is not None and late:
                said["generation"] = owner["status"]["plans"]
            pod["metadata"]["annotations"][names.PLAN] = json.dumps(said)
        else:
            pod = make_pod(name)
        pod["metadata"] |= {"name": name, "namespace": namespace, "uid": f"uid-{self.count}"}
        pod["status"] |= {"nominatedNodeName": nominated} if nominated and not node else {}
        self.put("pods", running(pod, node=node) if node else pod)

    @rule(data=st.data(), what=st.sampled_from(["bound", "leaving", "Succeeded", "Failed", "nominated", "gone"]))
    def pod_changes(self, data: st.DataObject, what: str) -> None:
        if not self.objects["pods"]:
            return
        key = data.draw(st.sampled_from(sorted(self.objects["pods"])))
        pod = self.objects["pods"][key]
        if what == "gone":
            # A worker that has succeeded counts as long as its plan is the latest, also after its pod is gone.
            if pod["status"]["phase"] != "Succeeded" or names.PLAN not in pod["metadata"]["annotations"]:
                self.drop("pods", key)
            return
        node = pod["spec"].get("nodeName", "")
        if what == "bound" and not node:
            pod = running(pod, node=data.draw(st.sampled_from(NODES)))
        elif what == "leaving":
            pod = pod | {"metadata": pod["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
        elif what == "nominated" and not node:
            pod = pod | {"status": pod["status"] | {"nominatedNodeName": data.draw(st.sampled_from(["", *NODES]))}}
        elif what in {"Succeeded", "Failed"} and pod["status"]["phase"] not in {"Succeeded", "Failed"}:
            pod = pod | {"status": pod["status"] | {"phase": what}}
        self.put("pods", pod)

    @rule(
        name=st.sampled_from(QUOTAS),
        spec=st.sampled_from(_QUOTAS),
        keeps=st.sampled_from([[], [], ["1"], ["2", "1"]]),
        node=st.sampled_from(NODES),
    )
    def quota_changes(self, name: str, spec: dict[str, Any], keeps: list[str], node: str) -> None:
        kept = [{"name": node, "keeps": keeps}] if keeps else []
        self.put("gpuquotas", {"metadata": {"name": name, "uid": name}, "spec": spec, "status": {"kept": kept}})

    @rule(name=st.sampled_from(QUOTAS))
    def quota_goes(self, name: str) -> None:
        self.drop("gpuquotas", name)

    @rule(namespace=st.sampled_from(NAMESPACES))
    def pod_is_refused(self, namespace: str) -> None:
        """The pods that wait are refused by kube-scheduler's filter: they are woken while they wait."""
        for pod in self.objects["pods"].values():
            if pod["metadata"]["namespace"] == namespace and not pod["spec"].get("nodeName"):
                uid = pod["metadata"]["uid"]
                self.live._waiting.refused(uid, ask=ask_of(self.live, pod), nodes=NODES)

    # --- what is checked ---------------------------------------------------------------------------------------

    def started_now(self) -> Extender:
        """An extender that lists the objects, the kinds in another order each time."""
        fresh = make_extender(self.clock)
        plurals = sorted(self.objects)
        first = self.count % len(plurals)
        for plural in (*plurals[first:], *plurals[:first]):
            reflector = reflectors(fresh)[plural]
            reflector._take([msgspec.convert(seen, reflector._as_type) for seen in self.objects[plural].values()])
            assert not reflector.unreadable, reflector.unreadable
        return fresh

    @invariant()
    def one_that_starts_now_knows_the_same(self) -> None:
        live, fresh = self.live, self.started_now()
        self.clock.now += LOOKED_AT_SECONDS
        for each in (live, fresh):
            each.background.let_time_pass()
        waiting = {pod["metadata"]["uid"] for pod in self.objects["pods"].values() if not pod["spec"].get("nodeName")}
        assert self.live._waiting._pods.keys() <= waiting
        jobs = {job["metadata"]["uid"] for job in self.objects["gpujobs"].values()}
        for part in ("plans", "nominations", "quotas", "tenancies"):
            ours, theirs = (own_tables(PARTS[part](extender)) for extender in (live, fresh))
            for path in sorted((ours.keys() | theirs.keys()) - {"Plans._missing"}):
                have, want = (side[path].content if path in side else {} for side in (ours, theirs))
                if path == "Plans._settled":
                    # A job that is gone is forgotten before its pods are.
                    have, want = ({uid: each for uid, each in side.items() if uid in jobs} for side in (have, want))
                assert _plain(have) == _plain(want), path
        assert promises(live) == promises(fresh)
        assert places(live) == places(fresh)
        for pod in self.objects["pods"].values():
            assert answers(live, pod) == answers(fresh, pod), pod["metadata"]

    def teardown(self) -> None:
        """When every object is deleted, nothing is kept of them."""
        plurals = sorted(self.objects)
        first = self.count % len(plurals)
        for plural in (*plurals[first:], *plurals[:first]):
            for key in list(self.objects[plural]):
                self.drop(plural, key)
        self.clock.now += LOOKED_AT_SECONDS
        self.live.background.let_time_pass()
        for part in PARTS.values():
            for path, table in own_tables(part(self.live)).items():
                assert not table.content, f"{path} still has {table.content}"
        assert not self.live.ledger.claims()


def own_tables(part: object) -> dict[str, Table]:
    """Its tables without those of the ledger and its caches, which have `tests/core/cluster/test_view_machine.py`."""
    found = tables(part)
    return {
        path: each for path, each in found.items() if not {"_ledger", "ledger", "_fit_cache"} & set(path.split("."))
    }


def feed(extender: Extender, plural: str, seen: dict[str, Any]) -> None:
    """The informer of that kind sees the object, and nothing goes wrong."""
    reflector = reflectors(extender)[plural]
    reflector._put(msgspec.convert(seen, reflector._as_type))
    assert not reflector.unreadable, reflector.unreadable


def ask_of(extender: Extender, pod: dict[str, Any]) -> Ask:
    ask = extender._decisions.ask(msgspec.convert(pod, Pod))
    assert ask is not None
    return ask


def answers(extender: Extender, pod: dict[str, Any]) -> tuple[object, ...]:
    """What quotas say to the pod, and what it is to other tenants."""
    seen = msgspec.convert(pod, Pod)
    quotas, ask = extender.quotas, ask_of(extender, pod)
    return quotas.refusal(seen, ask=ask), quotas.allowed(seen, nodes=NODES), extender._decisions.tenancies.tenancy(seen)


def running(pod: dict[str, Any], *, node: str) -> dict[str, Any]:
    """The pod on the node, with a device of its own."""
    return make_bound(pod, node=node, at=int(pod["metadata"]["uid"].rpartition("-")[2]) % GPUS)


def promises(extender: Extender) -> dict[str, tuple[str, int, bool]]:
    """Node and share of each claim on a node that is there; which devices a hold has depends on the order of events."""
    ledger = extender.ledger
    claims = [claim for node in ledger.nodes() for claim in ledger.claims_on(node)]
    return {each.key: (each.node, each.milli, ledger.is_hold(each.key)) for each in claims}


def places(extender: Extender) -> dict[str, str]:
    """The node of each worker that is not bound yet: its room is held, or missing while its node is gone."""
    plans, there = extender.plans, extender.ledger.nodes()
    missing = [place for places in plans._missing.values() for place in places]
    assert not [place for place in missing if place.node in there], "there is room, and no hold"
    every = [place for uid in plans._plans for place in plans._places(uid)]
    return {place.key: place.node for place in every if place in missing or extender.ledger.is_hold(place.key)}


def _key(meta: dict[str, Any]) -> str:
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _plain(content: Any) -> Any:
    """A table without its order, and rooms without their estimated times, which nobody reads."""
    if isinstance(content, dict):
        return {key: _plain(value) for key, value in content.items()}
    if hasattr(content, "kept") and hasattr(content, "time"):
        return content.nodes, content.kept
    return content


TestExtender = ExtenderMachine.TestCase
TestExtender.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
