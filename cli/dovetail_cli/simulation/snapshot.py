"""A snapshot of the cluster: nodes, claims and jobs, on request under other names."""

import hashlib
import secrets
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from dovetail import names
from dovetail.api.builtin import Pod, is_terminated
from dovetail.api.gpujob import GPUJob
from dovetail.cluster.objects import ClusterObjects
from dovetail.cluster.view import ClusterView
from dovetail.engine.model.claims import Ask, Claim
from dovetail.engine.model.inventory import DeviceFacts
from dovetail.engine.model.ranking import Rankings
from dovetail.engine.model.topology import Level
from dovetail.formats.quantities import QuantityError
from dovetail.gpu.request import RequestError
from dovetail.pods.demand import ask_of_job, ask_of_pod
from dovetail.simulator.snapshot import (
    Snapshot,
    SnapshotClaim,
    SnapshotDevice,
    SnapshotJob,
    SnapshotNode,
    SnapshotShare,
    to_json,
    to_yaml,
)
from dovetail_cli.cluster import snapshot as reading
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import CommandError, MissingError
from dovetail_cli.ui.progress import patiently
from dovetail_cli.ui.times import utc_now

_FORMS: Final = ("json", "yaml")
_SUFFIXES: Final = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}
Rename = Callable[[str, str], str]


def check_file(name: str | None) -> Path | None:
    """Where it goes. Raises before the cluster is read, not after."""
    if name is None:
        return None
    path = Path(name)
    if not path.parent.is_dir():
        raise MissingError(f'-f "{name}": there is no folder {path.parent}')
    return path


def check_form(form: str | None, *, file: Path | None) -> str:
    """The requested format, else the one of the file's name, else JSON. Raises `UsageError`."""
    if form is not None:
        return output.check_format(form, allowed=_FORMS)
    return _SUFFIXES.get(file.suffix, "json") if file is not None else "json"


def take(*, kubeconfig: str | None, context: str | None, anonymous: bool) -> Snapshot:
    """The snapshot of the cluster that the options name."""

    async def task(cluster: Cluster) -> Snapshot:
        with patiently() as say:
            taken = await reading.take(cluster, say=say)
            say("Writing the snapshot …")
            salt = secrets.token_hex(16) if anonymous else ""
            return snapshot_of(taken, now=utc_now(), salt=salt)

    return work(task, kubeconfig=kubeconfig, context=context)


def write(snapshot: Snapshot, *, form: str, path: Path | None) -> None:
    """Print it, or write the file and say what is in it."""
    text = to_json(snapshot) if form == "json" else to_yaml(snapshot).rstrip("\n")
    if path is None:
        print(text)
        return
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    print(f"{path}: {summary(snapshot)}", file=sys.stderr)


def summary(snapshot: Snapshot) -> str:
    """What is in it, in one line."""
    devices = [device for node in snapshot.nodes for device in node.devices]
    instances = sum(bool(device.mig_profile) for device in devices)
    beside = f" and {instances} MIG instances" if instances else ""
    waiting = sum(job.phase == "Queued" for job in snapshot.jobs)
    return (
        f"{len(snapshot.nodes)} nodes with {len(devices) - instances} GPUs{beside}, "
        f"{len(snapshot.claims)} pods that hold some, "
        f"{len(snapshot.jobs)} jobs of which {waiting} wait"
    )


def snapshot_of(taken: ClusterObjects, *, now: datetime, salt: str = "") -> Snapshot:
    """The snapshot of a picture; with a `salt`, names are hashed with it."""
    rename: Rename = _hashed(salt) if salt else lambda _kind, name: name
    view = taken.view()
    claims = [(pod, claim) for pod in taken.pods if (claim := view.ledger.claim(pod.metadata.uid)) is not None]
    known = {node.metadata.name for node in taken.nodes}
    holding = [(pod, claim) for pod, claim in claims if (claim.devices or claim.picked) and claim.node in known]
    others = [claim for _, claim in claims if not claim.devices and not claim.picked]
    rankings, levels = taken.settings.rankings, taken.settings.levels
    found = (_job(each, rankings=rankings, levels=levels, rename=rename) for each in taken.jobs)
    jobs = [job for job in found if job is not None]
    return Snapshot(
        taken_at=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        anonymous=bool(salt),
        turns_per_device=taken.settings.tenants_per_device,
        nodes=_nodes(view, others=others, rename=rename),
        claims=[_claim(pod, claim=claim, rename=rename) for pod, claim in holding],
        jobs=[*jobs, *_waiting_pods(taken, rename=rename)],
    )


def _nodes(view: ClusterView, *, others: Sequence[Claim], rename: Rename) -> list[SnapshotNode]:
    cpu: dict[str, int] = {}
    memory: dict[str, int] = {}
    for claim in others:
        cpu[claim.node] = cpu.get(claim.node, 0) + claim.cpu_milli
        memory[claim.node] = memory.get(claim.node, 0) + claim.memory_mib
    nodes = [view.facts_of(name) for name in sorted(view.nodes)]
    return [
        SnapshotNode(
            name=rename("node", facts.name),
            managed=facts.managed,
            obstacle=facts.obstacle,
            cordoned=facts.cordoned,
            cpu_milli=facts.cpu_milli,
            memory_mib=facts.memory_mib,
            other_cpu_milli=cpu.get(facts.name, 0),
            other_memory_mib=memory.get(facts.name, 0),
            devices=[_device(device, rename=rename) for device in view.ledger.everything(facts.name)],
        )
        for facts in nodes
    ]


def _device(device: DeviceFacts, *, rename: Rename) -> SnapshotDevice:
    return SnapshotDevice(
        index=device.index,
        uuid=rename("GPU", device.uuid),
        vendor=device.vendor,
        model=device.model,
        memory_mib=device.memory_mib,
        reserved_mib=device.reserved_mib,
        foreign_mib=device.foreign_mib,
        healthy=device.healthy,
        cordoned=device.cordoned,
        mig_profile=device.mig,
    )


def _claim(pod: Pod, *, claim: Claim, rename: Rename) -> SnapshotClaim:
    meta = pod.metadata
    job = meta.labels.get(names.LABEL_JOB, "")
    return SnapshotClaim(
        pod=rename("pod", meta.name),
        namespace=rename("namespace", meta.namespace),
        job=rename("job", job) if job else "",
        node=rename("node", claim.node),
        mode=claim.mode,
        cpu_milli=claim.cpu_milli,
        memory_mib=claim.memory_mib,
        devices=[
            SnapshotShare(index=device.index, share_milli=device.share_milli, memory_mib=device.memory_mib)
            for device in claim.devices
        ],
        unnamed=claim.unnamed,
        instances=dict(claim.instances),
    )


def _job(job: GPUJob, *, rankings: Rankings, levels: tuple[Level, ...], rename: Rename) -> SnapshotJob | None:
    """None for a job whose request cannot be read: it asks for nothing that could be simulated."""
    try:
        ask = ask_of_job(job, ranking=rankings.of(job.metadata.namespace), levels=levels)
    except (RequestError, QuantityError):
        return None
    meta, status = job.metadata, job.status
    return SnapshotJob(
        kind="GPUJob",
        name=rename("job", meta.name),
        namespace=rename("namespace", meta.namespace),
        phase=status.phase or "Queued",
        request=_request(ask),
        mode=ask.mode,
        policy=ask.policy,
        workers=job.spec.workers,
        priority=job.spec.priority,
        cpu_milli=ask.cpu_milli,
        memory_mib=ask.memory_mib,
        submitted_at=meta.creation_timestamp,
        started_at=status.start_time,
        ended_at=status.completion_time,
        limit_seconds=job.spec.active_deadline_seconds,
    )


def _waiting_pods(taken: ClusterObjects, *, rename: Rename) -> list[SnapshotJob]:
    """Pods of no job that wait for a place."""
    settings, rankings = taken.settings, taken.settings.rankings
    waiting = []
    for pod in taken.pods:
        meta = pod.metadata
        if pod.spec.node_name or is_terminated(pod) or names.LABEL_JOB in meta.labels:
            continue
        try:
            ask = ask_of_pod(pod, ranking=rankings.of(meta.namespace), vendors=settings.vendors)
        except (RequestError, QuantityError):
            continue
        if ask is not None and ask.gpu is not None:
            waiting.append(
                SnapshotJob(
                    kind="Pod",
                    name=rename("pod", meta.name),
                    namespace=rename("namespace", meta.namespace),
                    phase="Queued",
                    request=_request(ask),
                    mode=ask.mode,
                    policy=ask.policy,
                    workers=1,
                    priority=pod.spec.priority or 0,
                    cpu_milli=ask.cpu_milli,
                    memory_mib=ask.memory_mib,
                    submitted_at=meta.creation_timestamp,
                )
            )
    return waiting


def _request(ask: Ask) -> str:
    return "cpu" if ask.gpu is None else str(ask.gpu)


def _hashed(salt: str) -> Rename:
    def rename(kind: str, name: str) -> str:
        return f"{kind}-{hashlib.sha256(f'{salt}/{kind}/{name}'.encode()).hexdigest()[:12]}"

    return rename
