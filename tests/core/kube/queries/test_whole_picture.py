"""Each part of a picture comes from its own objects, and each refusal hides its own part alone."""

import json
from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import fields
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

import pytest

from dovetail import names
from dovetail.api.resources import Resource
from dovetail.cluster.picture import LEASED, RIGHTS, Picture, Right, Unseen
from dovetail.decoding import decode
from dovetail.kube.client import Listing
from dovetail.kube.errors import Forbidden, NotFound, Status
from dovetail.kube.queries.picture import read_picture, read_pods
from dovetail.kube.watch_stream import ListMeta, Page

NOW: Final = datetime(2026, 11, 29, tzinfo=UTC)
RELEASE, OWN, AGENTS = "release", "own", "agents"
CRDS: Final = ("rayjobs.ray.io", "jobsets.jobset.x-k8s.io", "others.example.com")
OURS: Final = {"app.kubernetes.io/name": "dovetail"}
Values = dict[str, Any]


def made(name: str, *, namespace: str = "", labels: Values | None = None, **content: Any) -> Values:
    meta = {"name": name, "labels": labels or {}} | ({"namespace": namespace} if namespace else {})
    return {"metadata": meta, **content}


def pod(name: str, *, limits: Values, node: str = "", phase: str = "Pending", inits: Values | None = None) -> Values:
    def container(asked: Values) -> Values:
        return {"name": "main", "image": "nvidia/cuda:12.4.1-base", "resources": {"limits": asked}}

    spec = {"nodeName": node, "containers": [container(limits)], "initContainers": [container(inits or {})]}
    return made(name, namespace="red" if name < "m" else "blue", spec=spec, status={"phase": phase})


OBJECTS: Final[dict[str, list[Values]]] = {
    "gpujobs": [made("a", namespace=OWN), made("b", namespace="red"), made("c", namespace="red")],
    "gpunodes": [made("n-1", status={"devices": []})],
    "gpunodetenants": [],
    "gpuquotas": [made("q")],
    "historyqueries": [made("h", namespace=OWN)],
    "nodes": [made("n-1"), made("n-2")],
    "leases": [made(f"dovetail-{each}", namespace=RELEASE, spec={"holderIdentity": each}) for each in LEASED],
    "configmaps": [made(names.CONFIG, namespace=RELEASE, data={"x": "1"}), made(names.CONFIG, namespace=OWN)],
    "runtimeclasses": [made("nvidia", handler="nvidia")],
    "priorityclasses": [made(names.PRIORITY_CLASS, value=1)],
    "mutatingwebhookconfigurations": [made("dovetail", webhooks=[]), made("another")],
    "validatingadmissionpolicies": [made("dovetail-a"), made("theirs")],
    "validatingadmissionpolicybindings": [made("dovetail-b")],
    "deployments": [
        made("dovetail-webhook", namespace=RELEASE, labels=OURS),
        made("dovetail-webhook", namespace=OWN, labels={"app.kubernetes.io/name": "theirs"}),
    ],
    "daemonsets": [
        made("theirs", namespace=OWN, labels={"app.kubernetes.io/component": "agent"}),
        made("dovetail-agent", namespace=AGENTS, labels={**OURS, "app.kubernetes.io/component": "agent"}),
    ],
    "clusterpolicies": [made("cluster-policy")],
    "resourceslices": [made("slice", spec={"driver": names.GPU_DRIVERS[0], "nodeName": "n-1"})],
    "namespaces": [made(OWN), made("red")],
    "pods": [
        pod("early", limits={"nvidia.com/gpu": "1"}, node="n-1", phase="Running"),
        pod("waits", limits={"amd.com/gpu": "1"}),
    ],
    "storageclasses": [made("fast")],
    "podmonitors": [made("metrics", namespace=OWN)],
    "customresourcedefinitions": [made(CRDS[0]), made(CRDS[1])],
}


class Server:
    """The objects; what is `refused` is answered with that error, and every request is remembered."""

    def __init__(self, objects: dict[str, list[Values]], *, refused: tuple[str, str] | None = None) -> None:
        self.objects = objects
        self.refused = refused
        self.error: type[Forbidden | NotFound] = Forbidden
        self.asked: list[tuple[str, str]] = []
        self.reviewed: list[Values] = []
        self.allowed: set[tuple[str, str]] = set()

    def _note(self, resource: Resource, what: str) -> None:
        self.asked.append((resource.plural, what))
        if self.refused == self.asked[-1]:
            raise self.error(Status(code=403, reason="", message="it is refused"))

    async def get(self, resource: Resource, *, name: str, as_type: Any, namespace: str | None = None) -> Any:
        self._note(resource, name)
        for each in self.objects[resource.plural]:
            if (each["metadata"]["name"], each["metadata"].get("namespace")) == (name, namespace):
                return decode(json.dumps(each), as_type=as_type)
        raise NotFound(Status(code=404, reason="NotFound", message=f"{name} is not there"))

    async def list(
        self,
        resource: Resource,
        *,
        as_type: Any,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> Any:
        self._note(resource, label_selector or field_selector or "")
        labels = dict(part.split("=") for part in (label_selector or "").split(",") if part)
        driver = (field_selector or "").removeprefix("spec.driver=")
        items = [
            decode(json.dumps(each), as_type=as_type)
            for each in self.objects[resource.plural]
            if namespace in {None, each["metadata"].get("namespace")}
            and labels.items() <= each["metadata"]["labels"].items()
            and driver in {"", each.get("spec", {}).get("driver")}
        ]
        return Listing(items=items, resource_version="1")

    async def pages(self, resource: Resource, *, as_type: Any) -> AsyncIterator[Any]:
        """One object a page."""
        self._note(resource, "pages")
        for each in self.objects[resource.plural]:
            yield Page(metadata=ListMeta(), items=[decode(json.dumps(each), as_type=as_type)])
        yield Page(metadata=ListMeta(), items=None)

    async def create(self, resource: Resource, *, body: Values, as_type: Any) -> Any:
        spec = body["spec"]
        self._note(resource, f"{spec['user']} {sorted(spec['resourceAttributes'].items())}")
        self.reviewed.append(spec)
        allowed = (spec["user"], spec["resourceAttributes"]["resource"]) in self.allowed
        return decode(json.dumps({"status": {"allowed": allowed}}), as_type=as_type)


async def read(server: Server) -> Picture:
    return await read_picture(server, release=RELEASE, namespace=OWN, crds=CRDS, now=lambda: NOW)  # type: ignore[arg-type] # what it calls of one


def name_of(found: Any) -> str:
    return str(found["metadata"]["name"] if isinstance(found, dict) else found.metadata.name)


async def test_each_part_is_of_its_own_objects() -> None:
    found = await read(Server(OBJECTS))
    assert (found.now, found.release, set(found.kinds.values())) == (NOW, RELEASE, {None})
    assert list(found.kinds) == ["gpujobs", "gpunodes", "gpunodetenants", "gpuquotas", "historyqueries"]
    assert {
        each: lease.spec.holder_identity for each, lease in found.leases.items() if not isinstance(lease, Unseen)
    } == {each: each for each in LEASED}
    assert not isinstance(found.config, Unseen)
    assert found.config.data == {"x": "1"}
    for part, name in (
        ("runtime_class", "nvidia"), ("priority_class", names.PRIORITY_CLASS), ("webhook", "dovetail"),
        ("webhook_pods", "dovetail-webhook"), ("agents", "dovetail-agent"),
    ):  # fmt: skip
        assert name_of(getattr(found, part)) == name, part
    for part, wanted in (
        ("nodes", ["n-1", "n-2"]), ("gpunodes", ["n-1"]), ("namespaces", [OWN, "red"]), ("slices", ["slice"]),
        ("cluster_policies", ["cluster-policy"]), ("storage_classes", ["fast"]), ("pod_monitors", ["metrics"]),
        ("workloads", ["dovetail-webhook", "dovetail-agent"]),
    ):  # fmt: skip
        assert list(map(name_of, getattr(found, part))) == wanted, part
    assert not isinstance(found.workloads, Unseen)
    assert [each["kind"] for each in found.workloads] == ["Deployment", "DaemonSet"]
    assert (found.policies, found.bound_policies) == (["dovetail-a", "theirs"], ["dovetail-b"])
    assert (found.neighbours, found.job_namespaces) == ({CRDS[0], CRDS[1]}, {OWN, "red"})
    assert found.resources_asked == {"red": {"nvidia.com/gpu"}, "blue": {"amd.com/gpu"}}
    assert found.resources_waited_for == {"blue": {"amd.com/gpu"}}
    assert not isinstance(found.built_containers, Unseen)
    assert [(each.namespace, each.pod, each.node) for each in found.built_containers] == [("red", "early", "n-1")]


async def test_each_refusal_hides_its_own_part_alone() -> None:
    whole = await read(asked := Server(OBJECTS))
    # All that is read of pods comes from one list, and where the agents are says whose rights are reviewed.
    together = {
        frozenset({"resources_asked", "resources_waited_for", "built_containers"}),
        frozenset({"agents", "rights"}),
    }
    hidden = set[str]()
    for request in dict.fromkeys(asked.asked):
        for error, missing in ((Forbidden, False), (NotFound, True)):
            server = Server(OBJECTS, refused=request)
            server.error = error
            found = await read(server)
            other = {each.name for each in fields(Picture) if getattr(found, each.name) != getattr(whole, each.name)}
            if not other:
                # The kind is there in another version, or another driver's slices are.
                assert missing, request
                assert request[0] in {"resourceslices", "customresourcedefinitions"}, request
                continue
            # A kind of ours is counted too.
            assert len(other - {"kinds"}) <= 1 or any(other <= each for each in together), (request, other)
            hidden |= other
            for part in other:
                value = getattr(found, part)
                parts = list(value.values()) if part in {"kinds", "leases", "rights"} else [value]
                unseen = [each for each in parts if isinstance(each, Unseen)]
                if unseen:
                    assert {each.missing for each in unseen} == {missing}, (request, part)
                else:
                    assert part in {"neighbours", "rights", "slices"}, (request, part)
    assert hidden == {each.name for each in fields(Picture)} - {"now", "release"}


@pytest.mark.parametrize("home", [AGENTS, RELEASE])
async def test_the_rights_are_those_of_each_component_where_it_is(home: str) -> None:
    objects = OBJECTS | {} if home == AGENTS else {**OBJECTS, "daemonsets": []}
    server = Server(objects)
    await read(server)
    homes = {"agent": home}
    wanted = {
        (f"system:serviceaccount:{homes.get(each.account, RELEASE)}:dovetail-{each.account}", str(each.act.attributes))
        for each in RIGHTS
    }
    reviewed = {(each["user"], str(each["resourceAttributes"])) for each in server.reviewed}
    assert wanted <= reviewed
    assert {user for user, _ in reviewed} == {user for user, _ in wanted}


@pytest.mark.parametrize("instead", [True, False])
async def test_an_agent_that_may_read_pods_needs_no_other_list(instead: bool) -> None:
    server = Server(OBJECTS)
    agent = f"system:serviceaccount:{AGENTS}:dovetail-agent"
    server.allowed = {(agent, "pods")} if instead else {(agent, "gpunodetenants")}
    found = (await read(server)).rights
    assert [right for right, allowed in found.items() if allowed] == [
        Right("agent", each.act) for each in RIGHTS if each.act.resource == "gpunodetenants"
    ]


async def test_the_facts_of_pods_are_those_of_a_plain_count() -> None:
    rng = Random(3)
    resources = ("nvidia.com/gpu", "dovetail.dev/gpu-milli", "amd.com/gpu", "cpu")
    pods, asked, waited, built = [], defaultdict(set), defaultdict(set), []
    for number in range(200):
        limits, inits = ({rng.choice(resources): rng.choice(["0", "1", "500"])} for _ in range(2))
        node, phase = rng.choice(["", "n-1"]), rng.choice(["Pending", "Running", "Succeeded", "Failed"])
        name = f"{rng.choice('az')}{number}"
        pods.append(pod(name, limits=limits, node=node, phase=phase, inits=inits))
        # Few pods in each, so that each of them tells.
        pods[-1]["metadata"]["namespace"] = f"ns-{number // 2}"
        namespace, lives = pods[-1]["metadata"]["namespace"], phase in {"Pending", "Running"}
        extended = {each for some in (limits, inits) for each, amount in some.items() if "/" in each and amount != "0"}
        asked[namespace] |= extended
        if lives and not node:
            waited[namespace] |= extended
        own = {each for each, amount in limits.items() if "/" in each and amount != "0"}
        if lives and node and own & {"nvidia.com/gpu", "dovetail.dev/gpu-milli"}:
            built.append(name)
    found = await read_pods(Server({"pods": pods}))  # type: ignore[arg-type] # what it calls of one
    for of, wanted in ((found.resources_asked, asked), (found.resources_waited_for, waited)):
        assert {key: each for key, each in of.items() if each} == {key: each for key, each in wanted.items() if each}
    assert [each.pod for each in found.built_containers] == built
