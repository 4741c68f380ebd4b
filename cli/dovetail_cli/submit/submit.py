"""gbatch's work: the command from words, files and standard input; submission; output."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dovetail.api.gpujob import GPUJob
from dovetail.kube.errors import Forbidden, KubeError
from dovetail_cli.cluster.connection import Cluster, work
from dovetail_cli.submit import config_file, create, manifest, scripts
from dovetail_cli.submit import dependencies as depending
from dovetail_cli.submit import local as local_node
from dovetail_cli.ui import output
from dovetail_cli.ui.errors import MissingError


def submit(
    submission: manifest.Submission,
    *,
    after: depending.Wanted | None,
    file: config_file.ConfigFile | None,
    local: local_node.Local,
    dry_run: bool,
    form: str,
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
) -> None:
    """Submit the job and print its number.

    It starts `after` others; `file` is submitted with it.

    With `dry_run` let the API server check it, and say where and when it would start.
    """

    async def go(cluster: Cluster) -> str:
        data = cluster.client.connection.local_data
        wanted = local_node.for_local_node(submission, asked=local, data=data, along=file, dry_run=dry_run)
        # A local node gets the file itself, a cluster a ConfigMap.
        copied = file if data is None else None
        if after is not None:
            dependencies = await depending.resolve(after, cluster=cluster)
            wanted = replace(wanted, dependencies=dependencies, any_dependency=after.any_one)
        job = manifest.build(wanted, namespace=cluster.namespace)
        if dry_run:
            return await _checked(job, file=copied, cluster=cluster, form=form)
        created = await (
            create.create(cluster, job=job) if copied is None else create_with(cluster, job=job, file=copied)
        )
        numbered = await create.until_numbered(cluster, job=created)
        create.announce(numbered)
        return create.submitted(numbered, form=form)

    print(work(go, kubeconfig=kubeconfig, context=context, namespace=namespace))


def script_of(words: Sequence[str]) -> scripts.Script | None:
    """The script that gbatch's words name; None for a command.

    Raises `MissingError` if it does not exist.
    """
    first = words[0]
    if first == "-":
        return scripts.read_script(sys.stdin.buffer.read(), name="stdin")
    if Path(first).is_file():
        return scripts.read_script(Path(first).read_bytes(), name=first)
    if first.startswith(("./", "../")) or first.endswith((".sh", ".slurm", ".sbatch")):
        raise MissingError(f"{first}: no such script here")
    return None


def command_of(
    words: Sequence[str], *, script: scripts.Script | None, file: config_file.ConfigFile | None = None
) -> list[str]:
    """The container's command for gbatch's words.

    Raises `UsageError` for a script that no program here can run.

    A `file` that goes along is handed to it, unless the words or the script say where they want it.
    """
    if script is None:
        return scripts.plain_command(words, arguments=config_file.arguments(file, words=words))
    return scripts.script_command(
        script, arguments=[*words[1:], *config_file.arguments(file, words=[script.text, *words])]
    )


async def create_with(cluster: Cluster, *, job: GPUJob, file: config_file.ConfigFile) -> GPUJob:
    """Create the job with a file that goes along. Of one that is refused nothing stays."""
    config_map = await config_file.copy_in(cluster, job=job, file=file)
    try:
        created = await create.create(cluster, job=config_file.mounted(job, file=file, config_map=config_map))
    except KubeError:
        await config_file.drop(cluster, config_map=config_map)
        raise
    await config_file.give(cluster, config_map=config_map, to=created)
    return created


async def _checked(job: GPUJob, *, file: config_file.ConfigFile | None, cluster: Cluster, form: str) -> str:
    if file is not None:
        job = config_file.mounted(job, file=file, config_map=f"{job.metadata.name}-config")
    created = await create.create(cluster, job=job, dry_run=True)
    wanted = create.as_manifest(job)
    if file is not None and form != "table":
        print("dovetail: the file of --config is no part of the manifest: gbatch copies it in", file=sys.stderr)
    match form:
        case "json":
            return output.as_json(wanted)
        case "yaml":
            return output.as_yaml(wanted)
        case _:
            would = f"Job {wanted['metadata']['name']} would be submitted (-o yaml shows it)."
            return f"{would}\n{await _foretold(created, cluster=cluster)}"


async def _foretold(job: GPUJob, *, cluster: Cluster) -> str:
    from dovetail_cli.cluster import snapshot
    from dovetail_cli.submit import dry_run as foretelling
    from dovetail_cli.ui import progress, times

    try:
        with progress.patiently() as say:
            seen = await snapshot.take(cluster, say=say)
    except Forbidden:
        return "Where and when it would start is not said: that takes the right to list the cluster's nodes and pods."
    return foretelling.foretell(job, objects=seen, now=times.utc_now())
