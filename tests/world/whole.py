"""The whole operator as one of the parts: everything that `app` builds, in scenes in which its watchers have work."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest import mock

from prometheus_client import CollectorRegistry

from dovetail import names
from dovetail.jobs.idle import IdleRules
from dovetail.kube.client import Client
from dovetail.kube.leader_election import Leadership
from dovetail.queue.growing.pools import GrowingPool, GrowingRules
from dovetail_operator import app
from dovetail_operator.app import Operator, build_operator
from dovetail_operator.job.drain import DrainRules
from dovetail_operator.options import Options
from tests.world import rebuilt
from tests.world.cluster import Cluster
from tests.world.stage import Part, Site, Stage, Step, change, drop, put

HOME: Final = "dovetail-system"
_POOL: Final = GrowingPool(
    name="grows", labels={"pool": "grows"}, max_nodes=2, gpus=4, model="A100", gpu_memory_mib=40960,
    cpu_milli=64_000, memory_mib=262_144,
)  # fmt: skip
OPTIONS: Final = Options(
    namespace=HOME,
    idle=IdleRules(after_seconds=60.0, grace_seconds=60.0, action="Suspend"),
    growing=GrowingRules(pools=(_POOL,), after_seconds=1.0),
    drain=DrainRules(restarts=True, grace_seconds=2.0),
)


class Whole:
    """The operator with its roots: what tables are looked for in."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self.part = operator.informers
        self.informers = (*operator._early, *operator._parts)

    async def run(self) -> None:
        # It would look for garbage in all that the process of the tests has, twice.
        with mock.patch.object(app.heap, "keep_for_good"):
            await self._operator.run()


def make(client: Client, stage: Stage) -> Whole:
    """Its clock is the stage's, and it holds its Lease."""
    office = cast("Leadership", SimpleNamespace(term=1, holder="one", remaining_seconds=10.0))
    options = replace(OPTIONS, history_url=f"sqlite:///{stage.folder}/history.db")
    with mock.patch.object(app, "_now", stage.now):
        return Whole(build_operator(client, options=options, office=office, registry=CollectorRegistry()))


def node(
    site: Site, name: str, *, gpus: int = 2, model: str = "V100", memory: int = 32768, **labels: str
) -> list[Step]:
    full = site.node(name)
    status = {
        "allocatable": {"cpu": "64", "memory": "256Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    devices = [
        {"index": at, "uuid": f"GPU-{full}-{at}", "vendor": "nvidia", "model": model, "memoryMiB": memory}
        for at in range(gpus)
    ]
    labels = {names.LABEL_MANAGED: "true", "site": site.word, **labels}
    return [
        put("nodes", {"metadata": {"name": full, "labels": labels}, "spec": {}, "status": status}),
        put("gpunodes", {"metadata": {"name": full}, "spec": {}, "status": {"devices": devices}}),
    ]


def job(site: Site, name: str, gpu: str = "1", *, selector: dict[str, str] | None = None, **spec: Any) -> Step:
    """A GPUJob for nodes of its site, unless the `selector` says otherwise."""
    where = {"site": site.word} if selector is None else selector
    template = {"spec": {"nodeSelector": where, "containers": [{"name": "main", "image": "busybox"}]}}
    metadata = {"name": name, "namespace": site.namespace, "annotations": {names.USER: f"{site.word}-user"}}
    return put("gpujobs", {"metadata": metadata, "spec": {"gpu": gpu, "template": template, **spec}, "status": {}})


def edit(site: Site, name: str, **spec: Any) -> Step:
    return change("gpujobs", f"{site.namespace}/{name}", lambda each: each["spec"].update(spec))


def finish(site: Site, name: str, *, exit_code: int = 0, most: int | None = None) -> Step:
    """Its pods end."""

    def step(stage: Stage) -> None:
        cluster = cast("Cluster", stage.cluster)
        found = stage.server.find("jobs", f"{site.namespace}/{name}")
        running = [] if found is None else cluster._pods_of(found)
        for pod in [each for each in running if each["status"]["phase"] == "Running"][:most]:
            cluster.end_worker(f"{site.namespace}/{pod['metadata']['name']}", exit_code=exit_code)

    return step


def quota(site: Site, name: str, **spec: Any) -> Step:
    body = {"metadata": {"name": f"{site.word}-{name}"}, "spec": {"namespaces": [site.namespace], **spec}, "status": {}}

    def step(stage: Stage) -> None:
        if stage.server.find("gpuquotas", body["metadata"]["name"]) is None:
            put("gpuquotas", body)(stage)
        else:
            stage.server.change("gpuquotas", body["metadata"]["name"], lambda each: each.update(spec=body["spec"]))

    return step


def _queue(site: Site) -> list[Step]:
    """A gang with a Service, a limit, jobs that wait for others, restarts, ends, and names that are used again."""
    return [
        *node(site, "n1"),
        quota(site, "q", limit={"gpus": 3}),
        job(site, "gang", workers=2, distributed={"framework": "PyTorch"}),
        job(site, "next", "2", dependencies=[{"name": "gang"}]),
        drop("services", f"{site.namespace}/gang"),
        *node(site, "n2"),
        job(site, "one", "1", restart="Worker", backoffLimit=2),
        job(site, "over", "1"),
        finish(site, "one", exit_code=1),
        quota(site, "q", limit={"gpus": 4}),
        finish(site, "gang"),
        job(site, "tasks", "1", array={"indexes": "0-1"}),
        edit(site, "over", suspend=True),
        finish(site, "one"),
        drop("gpujobs", f"{site.namespace}/one"),
        job(site, "one", "2", priority=60),
        edit(site, "next", cancel=True),
        drop("jobs", f"{site.namespace}/one"),
        edit(site, "over", suspend=False),
        drop("gpujobs", f"{site.namespace}/gang"),
    ]


def report(site: Site, name: str, *, used: float, **devices: Any) -> Step:
    """The agent measures the same utilization of all devices now."""

    def step(stage: Stage) -> None:
        def measured(values: dict[str, Any]) -> None:
            values["status"] |= {"observedAt": stage.time(), "measuredAt": stage.time()}
            for each in values["status"]["devices"]:
                each |= {"utilization": used, **devices}

        change("gpunodes", site.node(name), measured)(stage)

    return step


def _devices(site: Site) -> list[Step]:
    """Jobs that leave their GPUs idle, GPUs that fail, a node that is drained, and one that is replaced."""
    return [
        *node(site, "n1"),
        job(site, "lazy"),
        job(site, "busy", restart="Worker", backoffLimit=3),
        report(site, "n1", used=0.01),
        *node(site, "n2"),
        report(site, "n1", used=0.0),
        report(site, "n1", used=0.0, health="Unhealthy", healthReason="Xid79FellOffTheBus"),
        report(site, "n1", used=0.02, health="Healthy", healthReason=""),
        report(site, "n1", used=0.0),
        edit(site, "lazy", suspend=False),
        report(site, "n1", used=0.9),
        report(site, "n2", used=0.9),
        change("nodes", site.node("n1"), lambda each: each["spec"].update(unschedulable=True)),
        drop("nodes", site.node("n1")),
        drop("gpunodes", site.node("n1")),
        *node(site, "n1", gpus=1),
        finish(site, "busy"),
    ]


def _growing(site: Site) -> list[Step]:
    """Jobs for which nodes are requested: the nodes come, the job goes before, or it asks for fewer."""

    def big(name: str, **spec: Any) -> Step:
        return job(site, name, "4(A100)", selector={}, **spec)

    return [
        *node(site, "n1"),
        big("first"),
        drop("jobs", f"{site.namespace}/first"),
        big("second", workers=2),
        *node(site, "grown", gpus=4, model="A100", memory=40960, pool="grows"),
        drop("gpujobs", f"{site.namespace}/second"),
        big("third"),
        finish(site, "first"),
        quota(site, "q", limit={"gpus": 2}),
        big("second"),
    ]


def surroundings(stage: Stage) -> Any:
    stage.cluster = Cluster(stage.server, now=stage.now)
    return stage.cluster.step


_NOT_EMPTY: Final = rebuilt.NOT_EMPTY | {
    "Handlers._handlers": "who follows, not what",
    "Informers._reflectors": "who follows, not what",
    "TrainJobWatch._watches": "who follows, not what",
    "Counts._known": "of the last look while there was a quota",
    "UsedCollector._used": "a metric that only grows",
    "LastingMisses._kept": "what was learned of estimates",
    "DeviceIndexes._given": "a number is never given again",
    "DeviceIndexes._numbered": "a number is never given again",
}
# Numbers are given in the order of arrival, and what takes longer ends later. What was learned of estimates is kept
# every five minutes, and says in the basis whether it has moved one.
_VARIES: Final = frozenset({
    "number", "dovetail.dev/job-number", "dovetail.dev/template", "devices", "elapsed", "deviceSeconds",
    "earlierRunSeconds", "position", "meanUtilization", "peakMiB", "basis", "basisDetails",
})  # fmt: skip


def _whole(scene: Callable[[Site], list[Step]], *, varies: frozenset[str] = frozenset(), **more: Any) -> Part:
    return Part(
        make=make,
        scene=scene,
        writes=["gpujobs", "jobs", "services", "gpunodetenants", "gpuquotas"],
        owns=["jobs", "services", "gpunodetenants"],
        varies=_VARIES | varies,
        settle_seconds=25.0,
        surroundings=surroundings,
        not_empty=_NOT_EMPTY,
        # A new process has other estimates of starts.
        renews=("PUT gpujobs", "POST events", "PATCH events", "PATCH pods"),
        most_points=1,
        compares_tables=False,
        is_of_last_state=False,
        **more,
    )


WHOLE: Final[dict[str, Part]] = {
    "the operator: its queue": _whole(_queue),
    "the operator: devices": _whole(_devices, varies=frozenset({"conditions"}), is_of_time=True),
    "the operator: nodes that grow": _whole(_growing, is_of_sites=False),
}
