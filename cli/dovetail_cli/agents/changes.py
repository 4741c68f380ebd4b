"""The tools that preview a change, and those that carry a preview out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace as with_fields

from dovetail import names
from dovetail.answers.jobs import job_row
from dovetail.api.gpujob import GPUJob
from dovetail.api.resources import GPUJOBS
from dovetail.kube.errors import Conflict, Forbidden
from dovetail.query.action_effects import effects_of
from dovetail.query.dry_run import dry_run, prepare
from dovetail.query.jobs.states import is_unfinished, phase_of
from dovetail_cli.agents.previews import Preview
from dovetail_cli.agents.reads import Answer
from dovetail_cli.agents.session import Session, find
from dovetail_cli.cluster import identity, snapshot
from dovetail_cli.cluster.connection import Cluster
from dovetail_cli.submit import create, manifest, on_cluster, pod_options
from dovetail_cli.submit.local import Local, for_local_node
from dovetail_cli.ui import job_names, times
from dovetail_cli.ui.errors import CommandError, UsageError

_UNKNOWN = "what it would do to others is not known: that takes the right to list the cluster's nodes and pods"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job as an agent asks for it, in gbatch's words.

    command       the program and its arguments
    gpus          the GPUs of each worker, such as `2(V100)`; None for none
    name          the name; None for two words and a number
    image         the container image; None for that of the profile
    env           variables
    workdir       the working directory
    workers       the number of workers
    priority      the priority
    time_limit    the time limit, such as `02:00:00`; None for none
    cpu_fallback  whether it runs on the CPU if no node could ever have its GPUs
    cpus          the CPUs of each worker; None for no request
    memory        the host memory of each worker; None for no request
    """

    command: Sequence[str]
    gpus: str | None = None
    name: str | None = None
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str | None = None
    workers: int = 1
    priority: int = 10
    time_limit: str | None = None
    cpu_fallback: bool = False
    cpus: str | None = None
    memory: str | None = None

    def submission(self) -> manifest.Submission:
        """The checked options. Raises `UsageError`."""
        if not self.command or not self.command[0].strip():
            raise UsageError('command: must name a program, such as ["python", "train.py"]')
        if any("\0" in word for word in self.command):
            raise UsageError("command: no word of a command has the character NUL")
        request = manifest.request_of(self.gpus, gpu_memory=None, shared=False, mode=None)
        manifest.check_about_gpus({"--cpu-fallback": self.cpu_fallback or None}, request=request)
        return manifest.Submission(
            name=job_names.random_name() if self.name is None else job_names.check_name(self.name),
            command=list(self.command),
            request=request,
            image="" if self.image is None else manifest.check_image(self.image),
            env=pod_options.variables([f"{name}={value}" for name, value in self.env.items()]),
            workdir=self.workdir,
            workers=manifest.check_workers(self.workers),
            priority=manifest.check_priority(self.priority),
            limit_seconds=None if self.time_limit is None else times.limit_seconds(self.time_limit),
            fallback=manifest.fallback_of(True if self.cpu_fallback else None, after=None),
            host_resources=manifest.host_resources(cpus=self.cpus, memory=self.memory),
        )


async def preview_submit(session: Session, *, asked: JobRequest, may_wait: bool, namespace: str | None) -> Answer:
    """Let the API server check a job, and say where and when it would start."""
    cluster, submission = session.at(namespace), asked.submission()
    job = await _built(cluster, submission=submission, dry_run=True)
    await create.check_free(cluster, name=job.metadata.name)
    checked = await create.create(cluster, job=job, dry_run=True)
    answer = None
    try:
        objects = await snapshot.take(cluster, say=lambda _: None)
        answer = dry_run(checked, objects=objects, now=times.utc_now())
    except Forbidden:
        pass
    if answer is not None and answer.outcome == "Invalid":
        raise CommandError(answer.text)
    preview = Preview(
        kind="submit",
        caller=await identity.username(cluster),
        namespace=cluster.namespace,
        submission=submission,
        manifest=_comparable(job),
        may_wait=may_wait,
    )
    return {
        "preview_id": session.previews.keep(preview),
        "manifest": create.as_manifest(job),
        "outcome": "Unknown" if answer is None else answer.outcome,
        "text": _UNKNOWN if answer is None else answer.text,
    }


async def submit(session: Session, *, preview_id: str) -> Answer:
    """Submit the job of a preview.

    Raises `PreviewError`, and `CommandError` if it would be another job by now.
    """
    caller = await identity.username(session.cluster)
    preview = session.previews.take(preview_id, kind="submit", caller=caller)
    cluster = session.at(preview.namespace)
    assert preview.submission is not None
    job = await _built(cluster, submission=preview.submission, dry_run=False)
    if _comparable(job) != preview.manifest:
        raise CommandError("a profile has changed since the preview, and the job with it: preview_submit shows it")
    created = await create.create(cluster, job=job)
    numbered = await create.until_numbered(cluster, job=created)
    answer = await create.until_answered(cluster, job=numbered)
    if not preview.may_wait:
        await create.refuse_if_hopeless(cluster, job=numbered, answer=answer)
    return {
        "job": msgspec.to_builtins(job_row(numbered)),
        "text": "the queue has not decided yet" if answer is None else answer.text,
    }


async def preview_cancel(session: Session, *, job: str, namespace: str | None) -> Answer:
    """What it would do to cancel a job."""
    return await _previewed(session, job=job, namespace=namespace, patch={"cancel": True})


async def preview_change(
    session: Session, *, job: str, namespace: str | None, held: bool | None, priority: int | None
) -> Answer:
    """What it would do to hold, release or reprioritize a job. Raises `UsageError`."""
    patch: dict[str, Any] = {}
    if held is not None:
        patch["suspend"] = held
    if priority is not None:
        patch["priority"] = manifest.check_priority(priority)
    if not patch:
        raise UsageError("say what to change: held, priority, or both")
    return await _previewed(session, job=job, namespace=namespace, patch=patch)


async def carry_out(session: Session, *, preview_id: str, cancels: bool) -> Answer:
    """Cancel or change the job of a preview, if it is still the version that was shown.

    Raises `PreviewError`, and `CommandError` for a job that has changed.
    """
    caller = await identity.username(session.cluster)
    preview = session.previews.take(preview_id, kind="cancel" if cancels else "change", caller=caller)
    # The API server itself refuses a patch of another version or object.
    bound = {"metadata": {"uid": preview.uid, "resourceVersion": preview.resource_version}}
    try:
        changed = await session.cluster.client.patch(
            GPUJOBS,
            name=preview.name,
            patch={**bound, "spec": dict(preview.patch)},
            as_type=GPUJob,
            namespace=preview.namespace,
        )
    except Conflict as error:
        message = f"job {preview.name} has changed since the preview: preview_{preview.kind} shows it as it is now"
        raise CommandError(message) from error
    return {"job": msgspec.to_builtins(job_row(changed))}


async def _previewed(session: Session, *, job: str, namespace: str | None, patch: Mapping[str, Any]) -> Answer:
    cluster = session.at(namespace)
    found = await find(cluster, job=job)
    if not is_unfinished(found):
        raise CommandError(f"job {job} has ended already ({phase_of(found)})")
    preview = Preview(
        kind="cancel" if "cancel" in patch else "change",
        caller=await identity.username(cluster),
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        uid=found.metadata.uid,
        resource_version=found.metadata.resource_version,
        patch=patch,
    )
    return {
        "preview_id": session.previews.keep(preview),
        "job": msgspec.to_builtins(job_row(found)),
        "change": dict(patch),
        **await _effects(cluster, job=found, patch=patch),
    }


async def _effects(cluster: Cluster, *, job: GPUJob, patch: Mapping[str, Any]) -> Answer:
    """What the change would do to the job and to others."""
    try:
        objects = await snapshot.take(cluster, say=lambda _: None)
    except Forbidden:
        return {"effects": None, "text": _UNKNOWN}
    changed = with_fields(job, spec=with_fields(job.spec, **patch))
    found = effects_of(prepare(objects, now=times.utc_now()), job=job, changed=changed)
    return {
        "effects": msgspec.to_builtins(found),
        "text": f"{found.sooner} jobs would start sooner, {found.later} later",
    }


async def _built(cluster: Cluster, *, submission: manifest.Submission, dry_run: bool) -> GPUJob:
    """The job of a submission on this cluster. No directory goes along, as an agent has none."""
    data = cluster.client.connection.local_data
    if data is not None:
        wanted = for_local_node(submission, asked=Local(), data=data, dry_run=dry_run)
    else:
        asked = on_cluster.Asked(upload=False)
        wanted = (await on_cluster.prepare(submission, asked=asked, files=Local(), cluster=cluster)).submission
    return manifest.build(wanted, namespace=cluster.namespace)


def _comparable(job: GPUJob) -> Mapping[str, Any]:
    """The manifest without the name of the environment's file, which is another one each time."""
    found = create.as_manifest(job)
    annotations = found["spec"]["template"].get("metadata", {}).get("annotations", {})
    annotations.pop(names.ENVIRONMENT, None)
    found.get("metadata", {}).get("annotations", {}).pop(names.ENVIRONMENT, None)
    return found
