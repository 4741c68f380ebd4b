"""A job submitted once more."""

import secrets

import msgspec

from dovetail import names
from dovetail.api.gpujob import GPUJob, GPUJobStatus, ReservationSpec
from dovetail.api.meta import ObjectMeta
from dovetail.query.jobs.selection import parse_one
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.jobs import details
from dovetail_cli.submit import attachments, create
from dovetail_cli.submit.workdir.directory import moved
from dovetail_cli.ui.errors import CommandError, MissingError


def redo(word: str, *, kubeconfig: str | None, context: str | None, namespace: str | None) -> str:
    """Submit a new job with the spec of the one that is meant, and say what it is called."""
    wanted = parse_one(word, field="JOB")

    async def go(cluster: Cluster) -> str:
        try:
            job = await details.find(cluster, wanted=wanted)
        except MissingError as error:
            # Raises for one that never was.
            await details.remembered_or(error, cluster=cluster, wanted=wanted)
            raise CommandError(
                f"job {wanted.text} is gone: the history keeps what it was, but not what it ran"
            ) from None
        config_maps = attachments.config_maps_of(job)
        for config_map in config_maps:
            await attachments.find(cluster, config_map=config_map)
        created = await create.create(cluster, job=moved(again(job), token=secrets.token_hex(3)))
        for config_map in config_maps:
            await attachments.give(cluster, config_map=config_map, to=created)
        numbered = await create.until_numbered(cluster, job=created)
        answer = await create.until_answered(cluster, job=numbered)
        create.announce(numbered, answer=answer)
        return create.submitted(numbered, form="table")

    return work(go, kubeconfig=kubeconfig, context=context, namespace=namespace)


def again(job: GPUJob) -> GPUJob:
    """The job as it would be submitted now: not held, not cancelled, no past begin time."""
    spec = msgspec.structs.replace(
        job.spec, suspend=False, cancel=False, begin_time=None, reservation=_original_lease(job)
    )
    # Done once more, a task of an array is a job of its own.
    of_its_array = {names.LABEL_ARRAY, names.LABEL_TASK}
    labels = {name: value for name, value in job.metadata.labels.items() if name not in of_its_array}
    kept = {name: value for name, value in job.metadata.annotations.items() if name == names.DISPLAY_NAME}
    metadata = ObjectMeta(name=_first_name(job), namespace=job.metadata.namespace, labels=labels, annotations=kept)
    return msgspec.structs.replace(job, metadata=metadata, spec=spec, status=GPUJobStatus())


def _original_lease(job: GPUJob) -> ReservationSpec | None:
    """Its lease as it was asked for first: what it was renewed to is over."""
    lease = job.spec.reservation
    return None if lease is None else msgspec.structs.replace(lease, renew_time=None)


def _first_name(job: GPUJob) -> str:
    """What the job was called before a number was added to tell it from others of its name."""
    prefix = job.metadata.generate_name.removesuffix("-")
    return prefix if prefix and job.metadata.name.startswith(prefix) else job.metadata.name
